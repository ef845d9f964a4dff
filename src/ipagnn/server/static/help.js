// Examples to click, and the card that says what may be typed.

import { html } from "./svg.js";

// Text with parts in backquotes, as elements.
export function prose(text) {
  return text.split("`").map((part, i) => (i % 2 ? html("code", {}, part) : part));
}

export function exampleButtons(examples, choose) {
  return examples.map((example) => {
    const button = html("button", { type: "button", title: example.about.replaceAll("`", "") }, example.name);
    button.addEventListener("click", () => choose(example));
    return button;
  });
}

export function languageRows(forms) {
  return forms.map((form) => {
    const said = html("td", {}, ...prose(form.meaning), ".");
    return html("tr", {}, html("th", { scope: "row" }, html("code", {}, form.text)), said);
  });
}
