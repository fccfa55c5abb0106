// The picture with the gaze on it, word by word: every cell is as bright as its weight, by the formula of explain/overlay.py.

import { make, shown } from "/page/dom.js";

const [DARK, GLOW] = [0.15, 60];

async function pixelsOf(address) {
  const image = make("img", { src: address });
  await image.decode();
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  return pen.getImageData(0, 0, canvas.width, canvas.height);
}

// `light` are weights by the largest, a number for each cell; a cell ends where the next begins, and nothing is between
function lit(plain, light, [high, wide]) {
  const out = new ImageData(plain.width, plain.height);
  for (let y = 0; y < plain.height; y++) {
    for (let x = 0; x < plain.width; x++) {
      const cell = Math.floor((y * high) / plain.height) * wide + Math.floor((x * wide) / plain.width);
      const mask = DARK + (1 - DARK) * light[cell];
      const at = 4 * (y * plain.width + x);
      for (let c = 0; c < 3; c++) out.data[at + c] = plain.data[at + c] * mask + GLOW * (mask - DARK);
      out.data[at + 3] = 255;
    }
  }
  return out;
}

export async function picture({ values, rows, columns, grid, address, pinned, told, pin }) {
  const plain = await pixelsOf(address);
  const before = columns.length - grid[0] * grid[1]; // tokens in front of the cells
  const cells = (row) => values.subarray(row * columns.length + before, (row + 1) * columns.length);
  const top = rows.reduce((most, _, row) => Math.max(most, ...cells(row)), 0) || 1; // one scale for all words
  const canvas = make("canvas", { width: plain.width, height: plain.height, role: "img", "aria-label": "the picture, as bright as it was looked at" });
  const word = make("output", { text: "" });
  let at = pinned ?? 0;
  let playing = null;
  const show = (row) => {
    at = (row + rows.length) % rows.length;
    pin(at);
    const seen = cells(at);
    canvas.getContext("2d").putImageData(lit(plain, seen.map((weight) => Math.min(1, Math.max(0, weight / top))), grid), 0, 0);
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
  const image = make("img", { src: address, alt: "the picture that was looked at" });
  const legend = make("p", { class: "soft", text: `Brightness is weight: the darkest stands for 0, the brightest for ${Number(top.toPrecision(3))}, the largest weight of all words.` });
  return make("div", {}, make("div", { class: "row" }, step(-1), step(1), play, word), make("div", { class: "picture" }, canvas, image), legend);
}
