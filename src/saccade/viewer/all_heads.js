// All layers and heads as small pictures; one that is clicked becomes the large one, and each can be switched off.

import { extent, key, painted } from "/page/color.js";
import { rangeOf } from "/page/scale.js";
import { make } from "/page/dom.js";

const SIDE = 96;

function thumbnail(values, rows, columns, range) {
  const canvas = make("canvas", { width: SIDE, height: SIDE, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = Math.max(rows, columns) > SIDE;
  pen.drawImage(painted(values, rows, columns, range), 0, 0, SIDE, SIDE);
  return canvas;
}

// the name that the server gives a head, or null where it cannot be switched off
function switchOf(panel, map, head) {
  const same = panel.about.heads.filter((one) => one.kind === map.kind && one.side === map.side && one.layer === map.layer);
  return same.find((one) => one.head === map.heads[head])?.name ?? null;
}

export async function many(stage) {
  const { source, panel } = stage;
  const { found } = source;
  const sections = [];
  let legend = "";
  let whole = true;
  for (const [number, map] of found.maps.entries()) {
    if (stage.source !== source) break; // something else is looked at by now
    const [query, keys] = [found.axes[map.query_axis], found.axes[map.key_axis]];
    const measure = stage.measureOf(map);
    const [all, heads] = await Promise.all([source.weights(number, measure), source.heads(number)]);
    const every = extent(all);
    const size = query.tokens.length * keys.tokens.length;
    const figures = map.heads.map((_, head) => {
      const name = switchOf(panel, map, head);
      const label = heads[head]?.label ?? "";
      const values = all.subarray(head * size, (head + 1) * size);
      const open = make(
        "button",
        { type: "button", "aria-label": `${map.title}, ${map.head_names[head]}: ${label}`, onclick: () => stage.set({ map: number, head, view: "heat" }) },
        thumbnail(values, query.tokens.length, keys.tokens.length, rangeOf(map, measure, stage.scale, every, values)),
      );
      const on = name && make("input", { type: "checkbox", checked: !panel.off.has(name), onchange: (event) => panel.switchOff(name, event.target.checked) });
      return make("figure", {}, open, make("figcaption", { text: label === map.head_names[head] ? label : `${map.head_names[head]}: ${label}` }), on && make("label", {}, on, "on"));
    });
    const range = rangeOf(map, measure, "fixed", every, all);
    const same = legend === range.said; // what holds for all layers is said once
    legend = range.said;
    whole &&= range.whole;
    const scale = stage.scale === "own" ? make("p", { class: "soft", text: "Each head has a scale of its own, which ends at its largest." }) : same ? null : key(range);
    sections.push(make("h3", { text: map.title }), ...(scale ? [scale] : []), make("div", { class: "many" }, ...figures));
  }
  return [make("div", {}, ...sections), whole ? "0 to 1" : "to the largest of each layer"];
}
