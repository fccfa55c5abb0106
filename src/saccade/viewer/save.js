// What is seen, as one file that opens from disk: drawings become pictures, and nothing in it can be pressed any more.

import { make } from "/page/dom.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const STILL = ":disabled { opacity: 1; cursor: default; } :disabled:not([aria-pressed]) { color: inherit; }";

// what somebody typed or chose stands in no attribute, so a copy would not have it
function settled(copy, node) {
  if (node.type === "checkbox" || node.type === "radio") copy.toggleAttribute("checked", node.checked);
  else if (node.tagName === "TEXTAREA") copy.textContent = node.value;
  else if (node.tagName === "SELECT") [...copy.options].forEach((one, i) => one.toggleAttribute("selected", i === node.selectedIndex));
  else if (node.tagName === "INPUT" && node.type !== "file") copy.setAttribute("value", node.value);
}

function drawing(node) {
  const image = make("img", { src: node.toDataURL(), alt: node.getAttribute("aria-label") ?? "" });
  image.style.cssText = node.style.cssText;
  for (const side of ["width", "height"]) image.style[side] ||= `${node[side === "width" ? "clientWidth" : "clientHeight"]}px`;
  image.className = "drawn";
  return image;
}

export function still(view) {
  const copy = view.cloneNode(true);
  const every = [...view.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((one, i) => {
    const node = every[i];
    settled(one, node);
    if (one.tagName === "CANVAS") one.replaceWith(drawing(node));
    else if (one.tagName === "A") one.replaceWith(...(node.closest("nav, ol") ? one.childNodes : []));
    else if (one.tagName === "BUTTON" && !node.closest(".stage") && one.getAttribute("aria-pressed") !== "true") one.remove();
    else if (one.type === "file") one.remove();
    else if (["BUTTON", "SELECT", "INPUT"].includes(one.tagName)) one.disabled = true;
    if (one.tagName === "TEXTAREA") one.readOnly = true;
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
