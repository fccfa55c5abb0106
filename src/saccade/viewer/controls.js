// The controls above a picture: which layer and head, which view, what its colors stand for, and what is left out.

import { make } from "/page/dom.js";

export const VIEWS = { lines: "Lines", heat: "Heat map", many: "All heads", numbers: "Numbers", words: "Word for word", picture: "Picture" };
export const ONE_HEAD = ["lines", "heat", "numbers", "picture"]; // views of one layer and one head
export const TOKENS = ["lines", "heat", "numbers"]; // views from which tokens can be left out
const MEASURES = { weight: "attention weight", value_norm: "weight × value norm" };

// the views that a map has: the picture under a map of its cells, and words where something was translated
export function viewsOf(found, one) {
  const { grid } = found.axes[one.key_axis];
  return Object.keys(VIEWS).filter((name) => (name !== "picture" || (found.image && grid)) && (name !== "words" || found.alignment));
}

function select(label, names, chosen, onchange) {
  return make("select", { "aria-label": label, onchange: (event) => onchange(event.target.value) }, ...names.map(([value, text, disabled = false]) => make("option", { value, text, selected: value === chosen, disabled })));
}

export function measureSelect(stage, one) {
  const names = Object.entries(MEASURES).map(([value, text]) => [value, text, value === "value_norm" && !one.has_value_norms]);
  const node = select("what is drawn", names, stage.measureOf(one), (value) => stage.set({ measure: value }));
  node.title = "A weight says how large a share a token has in the sum; times the norm of its value vector, how much of the token is passed on (Kobayashi et al. 2020)";
  return make("label", {}, "show", node);
}

export function scaleSelect(stage, range) {
  const names = [
    ["fixed", range.fixed],
    ["own", "to the largest shown"],
  ];
  return make("label", {}, "scale", select("scale", names, stage.scale, (value) => stage.set({ scale: value })));
}

export function specialBox(stage) {
  const box = make("input", { type: "checkbox", checked: stage.hide, onchange: (event) => stage.set({ hide: event.target.checked }) });
  return make("label", {}, box, "hide special tokens");
}

export function layerSelect(stage, maps) {
  return make("label", {}, "layer", select("layer", maps.map((map, i) => [String(i), map.title]), String(stage.map), (value) => stage.set({ map: Number(value) })));
}

export function headSelect(stage, one, heads) {
  const said = (i) => (heads[i]?.label && heads[i].label !== one.head_names[i] ? `${one.head_names[i]}: ${heads[i].label}` : one.head_names[i]);
  return make("label", {}, "head", select("head", one.head_names.map((_, i) => [String(i), said(i)]), String(stage.head), (value) => stage.set({ head: Number(value) })));
}

export function viewButtons(stage, names) {
  return names.map((name) => make("button", { type: "button", text: VIEWS[name], "aria-pressed": String(name === stage.view), onclick: () => stage.set({ view: name }) }));
}
