// The attention of each generated word over the image: the brightness of a region is its weight, as in explain/overlay.py.

import { make, shown } from "/page/dom.js";

const [DARK, GLOW] = [0.15, 60];

async function pixelsOf(url) {
  const image = make("img", { src: url });
  await image.decode();
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  return pen.getImageData(0, 0, canvas.width, canvas.height);
}

// `weights` has a number from 0 to 1 for each region of the grid
function lit(plain, weights, [rows, columns]) {
  const pixels = new ImageData(plain.width, plain.height);
  for (let y = 0; y < plain.height; y++) {
    for (let x = 0; x < plain.width; x++) {
      const cell = Math.floor((y * rows) / plain.height) * columns + Math.floor((x * columns) / plain.width);
      const mask = DARK + (1 - DARK) * weights[cell];
      const start = 4 * (y * plain.width + x);
      for (let c = 0; c < 3; c++) pixels.data[start + c] = plain.data[start + c] * mask + GLOW * (mask - DARK);
      pixels.data[start + 3] = 255;
    }
  }
  return pixels;
}

export async function picture({ values, rows, columns, grid, url, quantity, pinned, onHover, pin }) {
  const plain = await pixelsOf(url);
  const offset = columns.length - grid[0] * grid[1]; // special tokens before the regions
  const regions = (row) => values.subarray(row * columns.length + offset, (row + 1) * columns.length);
  const top = rows.reduce((largest, _, row) => Math.max(largest, ...regions(row)), 0) || 1; // the scale is the same for all words
  const canvas = make("canvas", { width: plain.width, height: plain.height, role: "img", "aria-label": "the image, its brightness showing the attention weights" });
  const word = make("output", { text: "" });
  let current = pinned ?? 0;
  let timer = null;
  const show = (row) => {
    current = (row + rows.length) % rows.length;
    pin(current);
    const weights = regions(current);
    canvas.getContext("2d").putImageData(lit(plain, weights.map((weight) => Math.min(1, Math.max(0, weight / top))), grid), 0, 0);
    word.textContent = shown(rows[current]);
    onHover(current, offset + weights.indexOf(Math.max(...weights)));
  };
  const step = (by) => make("button", { type: "button", text: by < 0 ? "◀ Previous word" : "Next word ▶", onclick: () => show(current + by) });
  const play = make("button", {
    type: "button",
    text: "Play",
    "aria-pressed": "false",
    onclick: () => {
      clearInterval(timer);
      timer = timer === null ? setInterval(() => (play.isConnected ? show(current + 1) : clearInterval(timer)), 700) : null;
      play.setAttribute("aria-pressed", String(timer !== null));
    },
  });
  show(current);
  const image = make("img", { src: url, alt: "the input image" });
  const legend = make("p", { class: "soft", text: `Brightness shows the ${quantity}: the darkest regions stand for 0, the brightest for ${Number(top.toPrecision(3))}, the largest value of all words.` });
  return make("div", {}, make("div", { class: "row" }, step(-1), step(1), play, word), make("div", { class: "picture" }, canvas, image), legend);
}
