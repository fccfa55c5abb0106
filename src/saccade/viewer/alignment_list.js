// Which word became which, read off one head: a matrix of words with its links, and the links as Pharaoh writes them.

import { heat } from "/page/heatmap.js";
import { make } from "/page/dom.js";

export function words({ alignment_head: head, source, target, weights, pharaoh }) {
  const values = Float32Array.from(weights.flat());
  const links = new Map(pharaoh.split(" ").filter(Boolean).map((link) => link.split("-").map(Number).reverse()));
  const rows = target.map((word, i) => make("li", {}, make("bdi", { text: word }), " ← ", make("bdi", { text: links.has(i) ? source[links.get(i)] : "–" })));
  const map = heat({ values, rows: target, columns: source, range: { signed: false, top: 1, said: "attention weight of words, from 0 to 1" }, label: `which word became which, by ${head}` });
  return make("div", {}, make("p", { class: "soft", text: `by ${head}` }), make("div", { class: "parts" }, map, make("ol", {}, ...rows)), make("p", {}, "Pharaoh: ", make("code", { text: pharaoh })));
}
