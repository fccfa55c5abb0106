// Thumbnails of all heads of all layers: a click opens the heat map of a head, a checkbox ablates the head.

import { extent, key, painted } from "/page/color.js";
import { rangeOf } from "/page/scale.js";
import { make } from "/page/dom.js";

const SIDE = 96; // of a thumbnail, in pixels

function thumbnail(values, rows, columns, range) {
  const canvas = make("canvas", { width: SIDE, height: SIDE, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = Math.max(rows, columns) > SIDE;
  pen.drawImage(painted(values, rows, columns, range), 0, 0, SIDE, SIDE);
  return canvas;
}

// the name of a head for ablation, or null if it cannot be ablated
function ablationName(panel, map, head) {
  const layer = panel.about.heads.filter((ref) => ref.kind === map.kind && ref.side === map.side && ref.layer === map.layer);
  return layer.find((ref) => ref.head === map.heads[head])?.name ?? null;
}

export async function many(mapPanel) {
  const { source, panel } = mapPanel;
  const { result } = source;
  const sections = [];
  let legend = "";
  let whole = true;
  for (const [number, map] of result.maps.entries()) {
    if (mapPanel.source !== source) break; // another result is shown by now
    const [query, keys] = [result.axes[map.query_axis], result.axes[map.key_axis]];
    const measure = mapPanel.measureOf(map);
    const [weights, heads] = await Promise.all([source.weights(number, measure), source.heads(number)]);
    const mapExtent = extent(weights);
    const size = query.tokens.length * keys.tokens.length;
    const figures = map.heads.map((_, head) => {
      const name = ablationName(panel, map, head);
      const label = heads[head]?.label ?? "";
      const values = weights.subarray(head * size, (head + 1) * size);
      const button = make(
        "button",
        { type: "button", "aria-label": `${map.title}, ${map.head_names[head]}: ${label}`, onclick: () => mapPanel.set({ map: number, head, view: "heat" }) },
        thumbnail(values, query.tokens.length, keys.tokens.length, rangeOf(map, measure, mapPanel.scale, mapExtent, values)),
      );
      const checkbox = name && make("input", { type: "checkbox", checked: !panel.disabled.has(name), onchange: (event) => panel.setEnabled(name, event.target.checked) });
      return make("figure", {}, button, make("figcaption", { text: label === map.head_names[head] ? label : `${map.head_names[head]}: ${label}` }), checkbox && make("label", {}, checkbox, "on"));
    });
    const range = rangeOf(map, measure, "fixed", mapExtent, weights);
    const repeated = legend === range.legend; // the legend is shown once if it is the same for all layers
    legend = range.legend;
    whole &&= range.whole;
    const scale = mapPanel.scale === "own" ? make("p", { class: "soft", text: "The scale of each head ends at its largest value." }) : repeated ? null : key(range);
    sections.push(make("h3", { text: map.title }), ...(scale ? [scale] : []), make("div", { class: "many" }, ...figures));
  }
  return [make("div", {}, ...sections), whole ? "0 to 1" : "to the largest of each layer"];
}
