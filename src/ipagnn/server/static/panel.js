// What one model did: graph, heat map and results.

import { Graph } from "./graph.js";
import { HeatMap } from "./heatmap.js";
import { grouped, power } from "./number.js";
import { results, trust, verdict } from "./results.js";
import { html } from "./svg.js";
import { Values } from "./values.js";

export class Panel {
  constructor(told, tip, goTo) {
    this.told = told;
    this.goTo = goTo;
    this.tip = tip;
    this.element = html("article", { className: "panel" });
    this.element.setAttribute("aria-label", `Model ${told.model}`);
    const steps = told.steps === null ? "" : `${told.steps.toLocaleString("en")} steps, `;
    this.element.append(html("h3", {}, told.model, " ", html("small", {}, `${steps}results modulo `, power(told.modulus))));
    this.pictures = html("div", { className: "pictures" });
    this.values = told.beliefs && new Values(told, goTo);
    this.wider = html("p", { className: "wider hint", hidden: true });
    const drawn = html("div", { className: "drawn" }, this.pictures, this.wider);
    const shown = html("div", { className: "steps" }, drawn, ...(this.values ? [this.values.element] : []));
    this.element.append(verdict(told), trust(told), results(told), shown);
  }

  get last() {
    return this.told.pointer ? this.told.pointer.length - 1 : 0;
  }

  // Drawn when it is on the page, for the room there decides how wide a step is.
  draw() {
    this.graph = new Graph(this.told);
    const box = html("div", { className: "scroll", tabIndex: 0 });
    box.setAttribute("aria-label", "Heat map; arrows move through the steps");
    box.setAttribute("role", "group");
    this.pictures.replaceChildren(this.graph.element);
    if (this.told.pointer) {
      this.pictures.append(box);
      this.map = new HeatMap(this.told, Math.max(120, this.pictures.clientWidth - this.graph.width - 6));
      box.append(this.map.element);
      box.addEventListener("scroll", () => this.#tellWidth());
      this.map.element.addEventListener("click", (event) => this.goTo(this.map.find(event).step));
      this.map.element.addEventListener("mousemove", (event) => this.#tell(event, this.map.find(event)));
      box.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!by) return;
        event.preventDefault();
        this.goTo(this.step + by);
      });
    }
    this.graph.element.addEventListener("mousemove", (event) => {
      const node = event.target.dataset?.node;
      if (node === undefined) this.tip.hide();
      else this.#tell(event, { step: this.step, node: Number(node) });
    });
    this.pictures.addEventListener("mouseleave", () => this.tip.hide());
    this.#tellWidth();
  }

  // Says which steps are to be seen where there is no room for all.
  #tellWidth() {
    const box = this.map?.element.parentElement;
    const hidden = box && box.scrollWidth > box.clientWidth;
    this.wider.hidden = !hidden;
    box?.classList.toggle("goes-on", hidden && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    if (!hidden) return;
    const [first, last] = this.map.stepsBetween(box.scrollLeft, box.scrollLeft + box.clientWidth);
    this.wider.textContent = `Steps ${first} to ${last} of ${this.last} are shown; the heat map scrolls sideways.`;
  }

  show(step) {
    this.step = Math.min(step, this.last);
    this.graph.show(this.masses(), this.#trueNode());
    this.map?.show(this.step);
    this.values?.show(this.step);
  }

  // Pointer mass by node at the current step.
  masses() {
    return new Map(this.told.pointer?.[this.step] ?? []);
  }

  // Pointer mass by line of the program.
  massesByLine() {
    const { nodes } = this.told;
    return new Map([...this.masses()].flatMap(([node, mass]) => (node < nodes.length ? [[nodes[node], mass]] : [])));
  }

  // What is to be said about a node at a step.
  describe(step, node) {
    const { told } = this;
    const parts = [`step ${step}`];
    if (node >= 0) {
      const line = told.nodes[node];
      parts.push(line === undefined ? "exit" : `line ${line + 1}: ${told.lines[line].trim()}`);
      const mass = new Map(told.pointer?.[step] ?? []).get(node) ?? 0;
      parts.push(`p = ${mass.toFixed(3)}`);
      const yes = new Map(told.branch?.[step] ?? []).get(node);
      if (yes !== undefined) parts.push(`true branch ${yes.toFixed(3)}, false branch ${(1 - yes).toFixed(3)}`);
    }
    const really = told.trace?.[step];
    if (really) {
      const held = really.branch === null ? "" : really.branch ? ", condition holds" : ", condition does not hold";
      parts.push(`true trace: line ${really.line + 1}, v${told.variable} = ${grouped(really.v0)}${held}`);
    } else if (told.trace) {
      parts.push("true trace: ended");
    }
    return parts;
  }

  #trueNode() {
    const { trace, nodes, exit, trace_length: length } = this.told;
    if (!trace) return -1;
    if (trace[this.step]) return nodes.indexOf(trace[this.step].line);
    return length !== null && this.step >= length ? exit : -1;
  }

  #tell(event, { step, node }) {
    this.tip.show(event, this.describe(step, node));
  }
}
