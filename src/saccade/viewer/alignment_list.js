// Word alignment of a translation: a heat map of words, a list, and the links in Pharaoh format.

import { heat } from "/page/heatmap.js";
import { make } from "/page/dom.js";

export function words({ alignment_head: head, source, target, weights, pharaoh }) {
  const values = Float32Array.from(weights.flat());
  const links = new Map(pharaoh.split(" ").filter(Boolean).map((link) => link.split("-").map(Number).reverse()));
  const rows = target.map((word, i) => make("li", {}, make("bdi", { text: word }), " ← ", make("bdi", { text: links.has(i) ? source[links.get(i)] : "–" })));
  const heatMap = heat({ values, rows: target, columns: source, range: { signed: false, top: 1, legend: "attention weight of words, from 0 to 1" }, label: `word alignment by ${head}` });
  return make("div", {}, make("p", { class: "soft", text: `Alignment by ${head}` }), make("div", { class: "parts" }, heatMap, make("ol", {}, ...rows)), make("p", {}, "Pharaoh format: ", make("code", { text: pharaoh })));
}
