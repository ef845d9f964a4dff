// The editor: a text area over a backdrop that shows errors and the pointer, beside a gutter of line numbers.
// The text area is as large as its text, so that one box scrolls all three.

import { html } from "./svg.js";

const MASK = "[MASK]";
const MASKED = /^(\s*)(\[MASK\]|_(\s*=\s*0)?)\s*(#.*)?$/;
const MASKABLE = /^\s*v0\s*[-+*]=/; // what the masked line may have been

export class Editor {
  constructor(root, changed) {
    this.changed = changed;
    this.error = null;
    this.masses = new Map();
    this.hidden = null; // what the masked line said: {line, text}
    this.gutter = html("div", { className: "gutter" });
    this.gutter.setAttribute("role", "toolbar");
    this.gutter.setAttribute("aria-orientation", "vertical");
    this.gutter.setAttribute("aria-label", "Mask a line");
    this.backdrop = html("div", { className: "backdrop" });
    this.backdrop.setAttribute("aria-hidden", "true");
    this.area = html("textarea", { spellcheck: false, wrap: "off", autocapitalize: "off", autocomplete: "off" });
    this.area.setAttribute("aria-label", "Program");
    this.area.placeholder = "v0 = 7\nv0 += 3";
    this.area.setAttribute("aria-describedby", "error");
    root.append(this.gutter, html("div", { className: "page" }, this.backdrop, this.area));
    this.area.addEventListener("input", () => this.#edited());
    this.area.addEventListener("keydown", (event) => this.#key(event));
    this.gutter.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.mask(Number(button.dataset.line));
    });
    this.gutter.addEventListener("keydown", (event) => this.#move(event));
  }

  get value() {
    return this.area.value;
  }

  set value(text) {
    this.hidden = null;
    this.area.value = text;
    this.#edited();
  }

  get lines() {
    return this.area.value.split("\n");
  }

  // The lines of the text that are lines of the program: comments and blank ones are not.
  get programLines() {
    return this.lines.flatMap((line, i) => (line.split("#")[0].trim() ? [i] : []));
  }

  get isMasked() {
    return this.lines.some((line) => MASKED.test(line));
  }

  // Mask a line, or show again what it said. One line at a time can be masked.
  mask(line) {
    const lines = this.lines;
    const masked = lines.findIndex((text) => MASKED.test(text));
    if (masked !== line && !MASKABLE.test(lines[line] ?? "")) return;
    if (masked >= 0) {
      lines[masked] = this.hidden?.line === masked ? this.hidden.text : lines[masked].replace(MASKED, "$1v0 += 1");
    }
    this.hidden = null;
    if (masked !== line) {
      this.hidden = { line, text: lines[line] };
      lines[line] = lines[line].replace(/^(\s*).*$/, `$1${MASK}`);
    }
    const focus = this.gutter.contains(document.activeElement);
    const { selectionStart } = this.area;
    this.area.value = lines.join("\n");
    this.area.setSelectionRange(selectionStart, selectionStart);
    this.#edited(line);
    if (focus) this.gutter.children[line]?.focus();
  }

  showError(error) {
    this.error = error;
    this.area.setAttribute("aria-invalid", error ? "true" : "false");
    this.#draw();
  }

  // Shade lines of the text by pointer mass.
  showPointer(masses) {
    this.masses = masses;
    this.#shade();
  }

  #edited(stop = 0) {
    const lines = this.lines;
    this.area.rows = lines.length;
    this.area.cols = Math.max(20, ...lines.map((line) => line.length + 2));
    this.error = null;
    this.masses = new Map();
    this.gutter.replaceChildren(...lines.map((text, i) => this.#number(text, i, i === stop)));
    this.#draw();
    this.changed();
  }

  #number(text, i, stop) {
    const masked = MASKED.test(text);
    const button = html("button", { type: "button", textContent: i + 1, tabIndex: stop ? 0 : -1 });
    button.dataset.line = i;
    button.setAttribute("aria-pressed", masked);
    const able = masked || MASKABLE.test(text);
    button.setAttribute("aria-disabled", !able);
    button.title = masked ? "Show the line again" : able ? "Mask this line" : "Only v0 += N, v0 -= N and v0 *= N can be masked";
    button.setAttribute("aria-label", `Line ${i + 1}: ${button.title}`);
    return button;
  }

  #draw() {
    const { error } = this;
    const rows = this.lines.map((text, i) => {
      const row = html("div", { className: "row" });
      if (error?.line === i + 1) {
        row.classList.add("wrong");
        const at = Math.min(Math.max((error.column ?? 1) - 1, 0), text.length);
        const end = at + Math.max(1, (text.slice(at).match(/^\S+/) ?? [" "])[0].length);
        row.append(text.slice(0, at), html("mark", {}, text.slice(at, end) || " "));
      }
      return row;
    });
    this.backdrop.replaceChildren(...rows);
    [...this.gutter.children].forEach((button, i) => button.classList.toggle("wrong", error?.line === i + 1));
    this.#shade();
  }

  #shade() {
    [...this.backdrop.children].forEach((row, i) => {
      row.style.setProperty("--mass", this.masses.get(i) ?? 0);
    });
  }

  #key(event) {
    if (event.altKey && event.key.toLowerCase() === "m") {
      event.preventDefault();
      this.mask(this.area.value.slice(0, this.area.selectionStart).split("\n").length - 1);
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      // The next line begins where this one does, one level deeper after a colon.
      const line = this.area.value.slice(0, this.area.selectionStart).split("\n").at(-1);
      const indent = line.match(/^\s*/)[0] + (/:\s*$/.test(line) ? "  " : "");
      if (!indent) return;
      event.preventDefault();
      this.area.setRangeText(`\n${indent}`, this.area.selectionStart, this.area.selectionEnd, "end");
      this.#edited();
    }
  }

  // One stop for the tab key; arrows go from number to number.
  #move(event) {
    const buttons = [...this.gutter.children];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined || !buttons[to]) return;
    event.preventDefault();
    buttons[at].tabIndex = -1;
    buttons[to].tabIndex = 0;
    buttons[to].focus();
  }
}
