// Making elements of SVG and HTML.

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function html(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export const ROW = 20; // pixels a line has in graph and heat map alike
export const TOP = 6;

export const middle = (row) => TOP + ROW * (row + 0.5);

export function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1%";
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;
}
