// Save the current view as a self-contained HTML file: canvases become images, and controls are disabled.

import { make } from "/page/dom.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const STILL = ":disabled { opacity: 1; cursor: default; } :disabled:not([aria-pressed]) { color: inherit; }";

// copy the state of an input, which cloneNode does not copy
function copyState(copy, node) {
  if (node.type === "checkbox" || node.type === "radio") copy.toggleAttribute("checked", node.checked);
  else if (node.tagName === "TEXTAREA") copy.textContent = node.value;
  else if (node.tagName === "SELECT") [...copy.options].forEach((option, i) => option.toggleAttribute("selected", i === node.selectedIndex));
  else if (node.tagName === "INPUT" && node.type !== "file") copy.setAttribute("value", node.value);
}

function imageOf(node) {
  const image = make("img", { src: node.toDataURL(), alt: node.getAttribute("aria-label") ?? "" });
  image.style.cssText = node.style.cssText;
  for (const side of ["width", "height"]) image.style[side] ||= `${node[side === "width" ? "clientWidth" : "clientHeight"]}px`;
  image.className = "drawn";
  return image;
}

// a static copy of a view
export function still(view) {
  const copy = view.cloneNode(true);
  const nodes = [...view.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((element, i) => {
    const node = nodes[i];
    copyState(element, node);
    if (element.tagName === "CANVAS") element.replaceWith(imageOf(node));
    else if (element.tagName === "A") element.replaceWith(...(node.closest("nav, ol") ? element.childNodes : []));
    else if (element.tagName === "BUTTON" && !node.closest(".stage") && element.getAttribute("aria-pressed") !== "true") element.remove();
    else if (element.type === "file") element.remove();
    else if (["BUTTON", "SELECT", "INPUT"].includes(element.tagName)) element.disabled = true;
    if (element.tagName === "TEXTAREA") element.readOnly = true;
  });
  return copy;
}

export async function save(view) {
  const style = await (await fetch("/page/style.css")).text();
  const body = make("body", {}, make("main", {}, still(view.firstElementChild)));
  const { lang, dataset } = document.documentElement;
  const policy = make("meta", { "http-equiv": "Content-Security-Policy", content: POLICY });
  const head = make("head", {}, make("meta", { charset: "utf-8" }), policy, make("title", { text: document.title }), make("style", { text: `${style}\n${STILL}` }));
  const page = make("html", { lang, "data-theme": dataset.theme }, head, body);
  const link = make("a", { href: URL.createObjectURL(new Blob([`<!DOCTYPE html>\n${page.outerHTML}`], { type: "text/html" })), download: `saccade-${view.dataset.view}.html` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
