// The control flow graph: a node beside each line, edges as arcs. Forward arcs bulge to the right, back edges to the left.

import { ROW, TOP, middle, svg } from "./svg.js";

const X = 46;
const RADIUS = 5;
const LETTERS = 28; // of a line that are shown

export class Graph {
  constructor(told) {
    this.told = told;
    this.rows = [...told.nodes, told.lines.length];
    const height = TOP * 2 + ROW * (told.lines.length + 1);
    const wide = told.lines.some((line) => line.length > LETTERS);
    this.labels = wide ? told.lines.map((line) => line.replace(/^ +/, (space) => space.slice(space.length / 2))) : told.lines;
    this.letters = Math.min(Math.max(...this.labels.map((line) => line.length), 4), LETTERS);
    this.width = 108 + this.letters * 7.3;
    this.element = svg("svg", { width: this.width, height, class: "graph", role: "img" });
    this.element.append(svg("title", {}, `Control flow graph of ${told.exit} statements and the exit`));
    this.#labels();
    this.#edges();
    this.circles = this.rows.map((row, node) => {
      const circle = svg("circle", { cx: X, cy: middle(row), r: RADIUS, class: "node", "data-node": node });
      const heat = svg("circle", { cx: X, cy: middle(row), r: RADIUS - 1, class: "mass", "data-node": node });
      this.element.append(circle, heat);
      return { circle, heat };
    });
  }

  // Where the pointer is: masses by node, and the node of the true trace.
  show(masses, trueNode) {
    this.circles.forEach(({ circle, heat }, node) => {
      heat.setAttribute("fill-opacity", masses.get(node) ?? 0);
      circle.classList.toggle("here", node === trueNode);
    });
  }

  #labels() {
    const lines = this.labels;
    [...lines, "exit"].forEach((line, i) => {
      const shown = line.length > this.letters ? `${line.slice(0, this.letters - 1)}…` : line;
      if (i < lines.length) {
        this.element.append(svg("text", { x: 22, y: middle(i) + 4, class: "number" }, i + 1));
      }
      const label = svg("text", { x: 100, y: middle(i) + 4, class: i < lines.length ? "source" : "source exit" }, shown);
      label.setAttribute("xml:space", "preserve");
      this.element.append(label);
    });
  }

  #edges() {
    const { nodes, exit } = this.told;
    const edge = (from, to, kind) => {
      const [a, b] = [middle(this.rows[from]), middle(this.rows[to])];
      const span = Math.abs(to - from);
      let path;
      if (to === from + 1) {
        const shift = kind === "false" ? 2.5 : 0;
        path = `M${X + shift} ${a + RADIUS} L${X + shift} ${b - RADIUS - 3}`;
      } else if (to === from) {
        path = `M${X - RADIUS} ${a - 2} C${X - 18} ${a - 12} ${X - 18} ${a + 12} ${X - RADIUS - 2} ${a + 3}`;
      } else {
        const side = to > from ? 1 : -1;
        const reach = side * Math.min(8 + 4 * span, side > 0 ? 58 : 26);
        path = `M${X + side * RADIUS} ${a} C${X + reach} ${a} ${X + reach} ${b} ${X + side * (RADIUS + 3)} ${b}`;
      }
      this.element.append(svg("path", { d: path, class: `edge ${kind}`, "marker-end": `url(#${this.#marker(kind)})` }));
    };
    for (let node = 0; node < exit; node++) {
      const [yes, no] = [this.told.true[node], this.told.false[node]];
      const decides = /^\s*(if|while)\b/.test(this.told.lines[nodes[node]]);
      edge(node, yes, decides ? "true" : "plain");
      if (decides) edge(node, no, "false");
    }
  }

  // The arrow head of a kind of edge, made when first needed; names are the document's, so every graph has its own.
  #marker(kind) {
    this.markers ??= {};
    if (!this.markers[kind]) {
      this.markers[kind] = `arrow-${kind}-${(Graph.count = (Graph.count ?? 0) + 1)}`;
      const marker = svg(
        "marker",
        { id: this.markers[kind], viewBox: "0 0 6 6", refX: 3, refY: 3, markerWidth: 6, markerHeight: 6, orient: "auto" },
        svg("path", { d: "M0 0 L6 3 L0 6 z", class: `head ${kind}` }),
      );
      this.element.append(svg("defs", {}, marker));
    }
    return this.markers[kind];
  }
}
