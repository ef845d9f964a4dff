// Whole numbers as they come over the wire: numbers, or text where JavaScript would round them. Long ones in groups of three.

import { html } from "./svg.js";

const LONG = 5; // digits from which a number is shown in groups

const groupsOf = (text) => (text.length < LONG ? [text] : text.match(/\d{1,3}(?=(\d{3})*$)/g));

// A number as an element; copied, it has no spaces. Beside the true one, the digits that differ are marked.
export function number(value, real = value) {
  const text = String(value);
  const truth = String(real).padStart(text.length, "0").slice(-text.length);
  let at = 0;
  const parts = groupsOf(text).map((group) => {
    const part = html("span");
    for (const digit of group) {
      part.append(digit === truth[at] ? digit : html("mark", {}, digit));
      at += 1;
    }
    part.normalize();
    return part;
  });
  return html("span", { className: "number" }, ...parts);
}

// The same as text, with narrow spaces.
export function grouped(value) {
  return groupsOf(String(value)).join("\u202f");
}

// A modulus, as a power of ten where it is a large one.
export function power(value) {
  const zeros = /^10{6,}$/.test(String(value)) ? String(value).length - 1 : 0;
  return zeros ? html("span", {}, "10", html("sup", {}, zeros)) : Number(value).toLocaleString("en");
}
