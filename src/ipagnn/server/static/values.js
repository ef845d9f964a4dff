// The values of the variables by step: what the model believes, how surely, and what is true where that is something else.

import { number } from "./number.js";
import { html, percent } from "./svg.js";

const ROWS = 200; // that are on the page at once
const WIDE = 26; // digits of a row, from which the table has the width of the panel
const SURE = 0.995; // probabilities above this are not written out

export class Values {
  constructor(told, goTo) {
    this.told = told;
    this.goTo = goTo;
    this.beliefs = told.beliefs;
    this.first = -1;
    const names = this.beliefs.variables.map((k) => html("th", { scope: "col" }, `v${k}`));
    const head = html("tr", {}, html("th", { scope: "col" }, "step"), html("th", { scope: "col" }, "line"), ...names);
    this.body = html("tbody");
    this.box = html("div", { className: "value-rows", tabIndex: 0 }, html("table", {}, html("thead", {}, head), this.body));
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", "Values of the variables by step");
    this.element = html("div", { className: `values${this.#isWide() ? " wide" : ""}` }, this.#summary(), this.box);
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) this.goTo(Number(row.dataset.step));
    });
  }

  show(step) {
    const last = this.beliefs.lines.length - 1;
    const at = Math.min(step, last);
    if (this.first < 0 || at < this.first || at >= this.first + ROWS) this.#fill(Math.max(0, at - ROWS / 2));
    this.body.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const row = this.body.children[at - this.first];
    row.setAttribute("aria-current", "step");
    const top = row.offsetTop - this.box.querySelector("thead").offsetHeight;
    const hidden = top < this.box.scrollTop || row.offsetTop + row.offsetHeight > this.box.scrollTop + this.box.clientHeight;
    if (hidden) this.box.scrollTop = row.offsetTop - this.box.clientHeight / 2;
  }

  #fill(first) {
    this.first = first;
    const end = Math.min(first + ROWS, this.beliefs.lines.length);
    this.body.replaceChildren(...Array.from({ length: end - first }, (_, i) => this.#row(first + i)));
    this.box.scrollTop = 0;
  }

  #row(t) {
    const { lines, true_lines: real } = this.beliefs;
    const row = html("tr", {}, html("th", { scope: "row" }, t));
    row.dataset.step = t;
    if (t === this.beliefs.parts) row.className = "parts";
    const astray = real !== null && lines[t] !== real[t];
    const line = html("td", { className: astray ? "off" : "" }, named(lines[t]));
    if (astray) line.append(html("small", {}, ` ≠ ${named(real[t])}`));
    row.append(line, ...this.beliefs.variables.map((_, k) => this.#cell(t, k)));
    return row;
  }

  #cell(t, k) {
    const { values, probabilities, true_values: real } = this.beliefs;
    const value = values[t][k];
    const wrong = real !== null && value !== real[t][k];
    const changed = t > 0 && value !== values[t - 1][k];
    const cell = html("td", { className: wrong ? "off" : changed ? "changed" : "" }, number(value, wrong ? real[t][k] : value));
    if (probabilities[t][k] < SURE) cell.append(html("small", {}, ` ${percent(probabilities[t][k])}`));
    if (wrong) cell.append(html("small", { className: "truly" }, "≠ ", number(real[t][k])));
    return cell;
  }

  // Whether there is no room for the table beside the heat map.
  #isWide() {
    const digits = this.beliefs.variables.map((_, k) => Math.max(...this.beliefs.values.map((row) => String(row[k]).length)));
    return digits.reduce((sum, each) => sum + each + 2, 0) > WIDE;
  }

  #summary() {
    const { parts, true_values: real, lines } = this.beliefs;
    const line = html("p", {}, "Values before each step");
    if (real === null) {
      line.append(": those of the likeliest fillings.");
    } else if (parts === null) {
      line.append(": ", html("span", { className: "right" }, "✓ all true"), lines.at(-1) < 0 ? "." : ", as far as they are shown.");
    } else {
      const jump = html("button", { type: "button" }, `step ${parts.toLocaleString("en")}`);
      jump.addEventListener("click", () => this.goTo(parts));
      line.append(": ", html("span", { className: "off" }, "✗ they part from the truth"), " at ", jump, ".");
    }
    return line;
  }
}

function named(line) {
  return line < 0 ? "exit" : line + 1;
}
