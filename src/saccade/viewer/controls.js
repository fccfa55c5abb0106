// The controls above a figure: layer and head, view, measure, scale, and special tokens.

import { make } from "/page/dom.js";

export const VIEWS = { lines: "Lines", heat: "Heat map", many: "All heads", numbers: "Numbers", words: "Word alignment", picture: "Image" };
export const ONE_HEAD = ["lines", "heat", "numbers", "picture"]; // views of one layer and one head
export const TOKENS = ["lines", "heat", "numbers"]; // views that can hide special tokens
const MEASURES = { weight: "attention weight", value_norm: "weight × value norm" };

// the views of a map: the image view needs a grid of image regions, the word alignment a translation
export function viewsOf(result, map) {
  const { grid } = result.axes[map.key_axis];
  return Object.keys(VIEWS).filter((name) => (name !== "picture" || (result.image && grid)) && (name !== "words" || result.alignment));
}

function select(label, options, selected, onchange) {
  return make("select", { "aria-label": label, onchange: (event) => onchange(event.target.value) }, ...options.map(([value, text, disabled = false]) => make("option", { value, text, selected: value === selected, disabled })));
}

export function measureSelect(mapPanel, map) {
  const options = Object.entries(MEASURES).map(([value, text]) => [value, text, value === "value_norm" && !map.has_value_norms]);
  const node = select("measure", options, mapPanel.measureOf(map), (value) => mapPanel.set({ measure: value }));
  node.title = "The attention weight is the share of a token in the weighted sum; times the norm of its value vector, it is how much of the token is passed on (Kobayashi et al. 2020)";
  return make("label", {}, "show", node);
}

export function scaleSelect(mapPanel, range) {
  const options = [
    ["fixed", range.fixed],
    ["own", "to the largest shown"],
  ];
  return make("label", {}, "scale", select("scale", options, mapPanel.scale, (value) => mapPanel.set({ scale: value })));
}

export function specialBox(mapPanel) {
  const box = make("input", { type: "checkbox", checked: mapPanel.hide, onchange: (event) => mapPanel.set({ hide: event.target.checked }) });
  return make("label", {}, box, "hide special tokens");
}

export function layerSelect(mapPanel, maps) {
  return make("label", {}, "layer", select("layer", maps.map((map, i) => [String(i), map.title]), String(mapPanel.map), (value) => mapPanel.set({ map: Number(value) })));
}

export function headSelect(mapPanel, map, heads) {
  const label = (i) => (heads[i]?.label && heads[i].label !== map.head_names[i] ? `${map.head_names[i]}: ${heads[i].label}` : map.head_names[i]);
  return make("label", {}, "head", select("head", map.head_names.map((_, i) => [String(i), label(i)]), String(mapPanel.head), (value) => mapPanel.set({ head: Number(value) })));
}

export function viewButtons(mapPanel, names) {
  return names.map((name) => make("button", { type: "button", text: VIEWS[name], "aria-pressed": String(name === mapPanel.view), onclick: () => mapPanel.set({ view: name }) }));
}
