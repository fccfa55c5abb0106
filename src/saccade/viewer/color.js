// The color maps of all figures, the same as in the library; zero has the background color of the page, light or dark.

import { dark, make } from "/page/dom.js";

let scales = { light: [], dark: [], signed: [], signed_dark: [] };

// #rrggbb as three numbers
function bytes(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// set the color maps that the server sends
export function learn(colors) {
  scales = Object.fromEntries(Object.entries(colors).map(([name, hexColors]) => [name, hexColors.map(bytes)]));
}

export function extent(values) {
  let low = 0;
  let high = 0;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return { signed: low < 0, top: Math.max(high, -low) || 1 };
}

export function rgb(value, { signed, top }) {
  if (!Number.isFinite(value)) return [128, 128, 128];
  const scale = signed ? (dark() ? scales.signed_dark : scales.signed) : dark() ? scales.dark : scales.light;
  const share = signed ? (value / top + 1) / 2 : value / top;
  return scale[Math.round(Math.min(1, Math.max(0, share)) * (scale.length - 1))] ?? [0, 0, 0];
}

// a color bar with the values of its ends, and a legend
export function key({ signed, top, legend = "" }) {
  const steps = Float32Array.from({ length: 96 }, (_, i) => top * (signed ? i / 47.5 - 1 : i / 95));
  const strip = painted(steps, 1, steps.length, { signed, top });
  strip.setAttribute("aria-hidden", "true");
  strip.className = "strip";
  return make("p", { class: "key soft" }, signed ? plain(-top) : "0", strip, plain(top), legend && make("span", { text: legend }));
}

// sample lines with the weights that they stand for, and a legend
export function widthKey({ top, legend = "" }, widthOf) {
  const samples = [0.1, 0.5, 1].flatMap((share) => {
    const line = make("span", { class: "sample", "aria-hidden": "true" });
    line.style.height = `${widthOf(share)}px`;
    return [line, plain(share * top)];
  });
  return make("p", { class: "key soft" }, ...samples, legend && make("span", { text: legend }));
}

function plain(value) {
  return String(Number(value.toPrecision(3)));
}

// a matrix as image data with one pixel per value
export function image(values, rows, columns, range = extent(values)) {
  const pixels = new ImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    const [r, g, b] = rgb(values[i], range);
    pixels.data.set([r, g, b, 255], 4 * i);
  }
  return pixels;
}

// a matrix as a canvas with one pixel per value
export function painted(values, rows, columns, range) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.getContext("2d").putImageData(image(values, rows, columns, range), 0, 0);
  return canvas;
}
