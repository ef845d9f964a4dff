// What the model says, beside the truth: bars, and sentences about how it came to it.

import { number } from "./number.js";
import { html, percent } from "./svg.js";

const LEAST_SHOWN = 0.0005; // what is less prints as 0.0%
const SHORT = 6; // digits of results that stand beside their bars; longer ones stand above them

export function results(told) {
  return html("div", { className: "results" }, bars(told), notes(told));
}

export function verdict(told) {
  return html("p", { className: "verdict" }, ...sentence(told));
}

function sentence(told) {
  const mass = told.exit_mass === null ? "" : ` of the ${percent(told.exit_mass)} that reached the exit`;
  const sure = told.proved === false ? "not proved to be right" : `${percent(told.confidence)}${mass}`;
  const says = ["says ", html("b", {}, number(told.value)), ` (${sure})`];
  if (told.true_value !== null) {
    const right = told.value === told.true_value;
    const mark = html("span", { className: right ? "right" : "off" }, right ? "✓ right" : "✗ not right");
    const after = ` after ${told.trace_length.toLocaleString("en")} statements`;
    return [...says, "; the true result is ", html("b", {}, number(told.true_value)), after, " ", mark];
  }
  if (told.exact) {
    const [likely] = told.exact;
    const fillings = told.samples ? `${told.samples.toLocaleString("en")} sampled` : "all";
    return [...says, `; over ${fillings} fillings the likeliest is `, html("b", {}, number(likely.value)), ` (${percent(likely.probability)})`];
  }
  return [...says, `; there is no true result. ${told.why}`];
}

// What the answer rests on, and what speaks against it.
export function trust(told) {
  const list = html("ul", {}, ...told.warnings.map((warning) => html("li", {}, warning)));
  return html("div", { className: "trust" }, html("p", {}, `Trust: ${told.trust}.`), ...(told.warnings.length ? [list] : []));
}

function bars(told) {
  const exact = new Map((told.exact ?? []).map((one) => [one.value, one]));
  const shown = told.top.filter((one, i) => i === 0 || one.probability >= LEAST_SHOWN);
  const rows = shown.map((one) => ({ ...one, exact: exact.get(one.value)?.probability ?? 0 }));
  const seen = new Set(rows.map((one) => one.value));
  for (const one of (told.exact ?? []).slice(0, 5)) {
    if (!seen.has(one.value)) rows.push({ value: one.value, probability: one.predicted, exact: one.probability });
  }
  if (told.true_value !== null && !seen.has(told.true_value)) {
    rows.push({ value: told.true_value, probability: told.true_probability, exact: 0 });
  }
  const head = html("tr", {}, html("th", { scope: "col" }, "result"), html("th", { scope: "col" }, "model"));
  if (told.exact) head.append(html("th", { scope: "col" }, "exact, over all fillings"));
  const body = rows.map((one) => {
    const row = html("tr", {}, html("th", { scope: "row" }, number(one.value)), html("td", {}, bar(one.probability, "said")));
    if (told.exact) row.append(html("td", {}, bar(one.exact, "exact")));
    if (one.value === told.true_value) {
      row.className = "truth";
      row.firstChild.append(" ", html("small", {}, "true"));
    }
    return row;
  });
  const table = html("table", { className: "bars" }, html("thead", {}, head), html("tbody", {}, ...body));
  table.classList.toggle("long", rows.some((one) => String(one.value).length > SHORT));
  return table;
}

// All bars, of whichever panel, model and program, are drawn on one scale: the track is 100%.
function bar(share, kind) {
  const fill = html("span", { className: `fill ${kind}` });
  fill.style.width = `${100 * share}%`;
  return html("span", { className: "bar" }, html("span", { className: "track" }, fill), html("span", {}, percent(share)));
}

function notes(told) {
  const list = html("ul", { className: "notes" });
  const say = (text) => list.append(html("li", {}, text));
  if (told.pointer === null) say("This model has no instruction pointer.");
  if (told.path) {
    const count = `${told.path.length.toLocaleString("en")} statements`;
    const ends = { true: `${count} to the exit`, false: `not at the exit after ${count}`, null: `more than ${count}` };
    say(`Most likely path: ${ends[told.path_ends]}.`);
  }
  if (told.soft?.length) {
    const lines = [...new Set(told.soft.map((one) => one.line + 1))].sort((a, b) => a - b);
    say(`Soft branch decisions: ${told.soft.length}, in line${lines.length > 1 ? "s" : ""} ${lines.join(", ")}.`);
  } else if (told.soft) {
    say("Every branch decision that mattered was discrete.");
  }
  if (told.shortcuts?.length) {
    const parts = told.shortcuts.map((one) => `${one.line + 1} (${one.visits.toFixed(1)} of ${one.executed.toLocaleString("en")})`);
    say(`Short-cut lines (visits of executions): ${parts.slice(0, 12).join(", ")}${parts.length > 12 ? ", …" : "."}`);
  } else if (told.shortcuts) {
    say("No line was short-cut.");
  }
  if (told.dropped > 0.001) say(`Pointer mass not followed, for the program is long: ${percent(told.dropped)}.`);
  return list;
}
