// All layers and heads as small pictures; one that is clicked becomes the large one, and each can be switched off.

import { extent, painted } from "/page/colour.js";
import { make } from "/page/tell.js";

const SIDE = 96;

function thumbnail(values, rows, columns) {
  const canvas = make("canvas", { width: SIDE, height: SIDE, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = Math.max(rows, columns) > SIDE;
  pen.drawImage(painted(values, rows, columns, extent(values)), 0, 0, SIDE, SIDE);
  return canvas;
}

// the name that the server gives a head, or null where it cannot be switched off
function switchOf(panel, map, head) {
  const same = panel.about.heads.filter((one) => one.kind === map.kind && one.side === map.side && one.layer === map.layer);
  return same.find((one) => one.head === map.heads[head])?.name ?? null;
}

export async function many(panel) {
  const { found } = panel;
  const sections = [];
  for (const [number, map] of found.maps.entries()) {
    if (panel.found !== found) break; // something else is looked at by now
    const [query, key] = panel.names(number);
    const [all, heads] = await Promise.all([panel.weightsOf(number), panel.headsOf(number)]);
    const size = query.tokens.length * key.tokens.length;
    const figures = map.heads.map((_, head) => {
      const name = switchOf(panel, map, head);
      const named = heads[head]?.named ?? "";
      const open = make(
        "button",
        {
          type: "button",
          "aria-label": `${map.title}, ${map.called[head]}: ${named}`,
          onclick: () => {
            [panel.map, panel.head, panel.view] = [number, head, "heat"];
            panel.draw();
          },
        },
        thumbnail(all.subarray(head * size, (head + 1) * size), query.tokens.length, key.tokens.length),
      );
      const on = name && make("input", { type: "checkbox", checked: !panel.off.has(name), onchange: (event) => panel.switchOff(name, event.target.checked) });
      return make("figure", {}, open, make("figcaption", { text: `${map.called[head]}: ${named}` }), on && make("label", {}, on, "on"));
    });
    sections.push(make("h3", { text: map.title }), make("div", { class: "many" }, ...figures));
  }
  return make("div", {}, ...sections);
}
