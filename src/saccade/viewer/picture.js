// The picture with the gaze on it, word by word: what a word did not look at is darkened.

import { make, shown } from "/page/tell.js";

export function picture({ values, rows, columns, grid, address, pinned, told, pin }) {
  const [high, wide] = grid;
  const before = columns.length - high * wide; // tokens in front of the cells
  const image = make("img", { src: address, alt: "the picture that was looked at" });
  const shade = make("canvas", { width: wide, height: high, "aria-hidden": "true" });
  const word = make("output", { text: "" });
  let at = pinned ?? 0;
  let playing = null;
  const show = (row) => {
    at = (row + rows.length) % rows.length;
    pin(at);
    const seen = values.subarray(at * columns.length + before, (at + 1) * columns.length);
    const top = Math.max(...seen) || 1;
    const pixels = new ImageData(wide, high);
    seen.forEach((weight, i) => {
      const light = 60 + 195 * (weight / top);
      pixels.data.set([light, light, light, 255], 4 * i);
    });
    shade.getContext("2d").putImageData(pixels, 0, 0);
    word.textContent = shown(rows[at]);
    told(at, before + seen.indexOf(Math.max(...seen)));
  };
  const step = (by) => make("button", { type: "button", text: by < 0 ? "◀ word before" : "next word ▶", onclick: () => show(at + by) });
  const play = make("button", {
    type: "button",
    text: "play",
    "aria-pressed": "false",
    onclick: () => {
      clearInterval(playing);
      playing = playing === null ? setInterval(() => (play.isConnected ? show(at + 1) : clearInterval(playing)), 700) : null;
      play.setAttribute("aria-pressed", String(playing !== null));
    },
  });
  show(at);
  return make("div", {}, make("div", { class: "row" }, step(-1), step(1), play, word), make("div", { class: "picture" }, image, shade));
}
