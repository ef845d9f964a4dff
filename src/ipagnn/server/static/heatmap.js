// The heat map: lines down, steps across, as dark as there is pointer; dots for the true trace.

import { ROW, TOP, middle, svg } from "./svg.js";

const WIDEST = 20;
const NARROWEST = 3;

export class HeatMap {
  constructor(told, available) {
    this.told = told;
    this.rows = [...told.nodes, told.lines.length];
    const steps = told.pointer.length;
    this.cell = Math.max(NARROWEST, Math.min(WIDEST, available / steps));
    const height = TOP * 2 + ROW * (told.lines.length + 1);
    const width = this.cell * steps;
    this.element = svg("svg", { width: width + 2, height, class: "heat-map", role: "img" });
    this.element.append(svg("title", {}, `Instruction pointer over ${steps - 1} steps`));
    for (let row = 0; row <= told.lines.length; row += 1) {
      this.element.append(svg("line", { x1: 0, x2: width, y1: middle(row), y2: middle(row), class: "guide" }));
    }
    this.cursor = svg("rect", { x: 0, y: 0, width: this.cell, height, class: "cursor" });
    this.element.append(this.cursor);
    told.pointer.forEach((entries, t) => {
      for (const [node, mass] of entries) {
        this.element.append(
          svg("rect", {
            x: (t * this.cell).toFixed(2),
            y: TOP + ROW * this.rows[node] + 1,
            width: this.cell.toFixed(2),
            height: ROW - 2,
            "fill-opacity": mass,
            class: "mass",
          }),
        );
      }
    });
    const parts = told.beliefs?.parts ?? null;
    if (parts !== null && parts < steps) {
      const mark = svg("line", { x1: parts * this.cell, x2: parts * this.cell, y1: 0, y2: height, class: "parts" });
      mark.append(svg("title", {}, `From step ${parts} on, not everything is as it truly is`));
      this.element.append(mark);
    }
    const size = Math.min(2.6, this.cell / 2.6);
    told.trace?.forEach((step, t) => {
      const at = { cx: ((t + 0.5) * this.cell).toFixed(2), cy: middle(step.line), r: size, class: "dot" };
      this.element.append(svg("circle", at));
    });
  }

  show(step) {
    this.cursor.setAttribute("x", step * this.cell);
    const box = this.element.parentElement;
    if (!box) return;
    const at = step * this.cell;
    if (at < box.scrollLeft || at > box.scrollLeft + box.clientWidth - this.cell) {
      box.scrollLeft = at - box.clientWidth / 2;
    }
  }

  // The first and the last step between two places across.
  stepsBetween(left, right) {
    const last = this.told.pointer.length - 1;
    return [Math.ceil(left / this.cell), Math.min(last, Math.floor(right / this.cell) - 1)];
  }

  // The step and node under the mouse; no node on lines without one.
  find(event) {
    const box = this.element.getBoundingClientRect();
    const step = Math.floor((event.clientX - box.left) / this.cell);
    const row = Math.floor((event.clientY - box.top - TOP) / ROW);
    return { step: Math.min(Math.max(step, 0), this.told.pointer.length - 1), node: this.rows.indexOf(row) };
  }
}
