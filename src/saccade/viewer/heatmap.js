// A heat map on a canvas: a row for each token that looks, a column for each that is looked at.

import { extent, key, painted } from "/page/color.js";
import { make, shown } from "/page/dom.js";

const NAMED = 220; // tokens that get a name each; beyond, every few
const FONT = "12px system-ui, sans-serif";

function cut(text, most = 18) {
  const letters = [...shown(text)];
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
}

function ink() {
  return getComputedStyle(document.documentElement).getPropertyValue("--ink");
}

// `told` hears (row, column) under the pointer or the keyboard, `chosen` a row that was clicked; maps that are compared share
// the end of their scale, `top`
export function heat({ values, rows, columns, top: end = null, range = end === null ? extent(values) : { ...extent(values), top: end }, told = () => {}, chosen = () => {}, label = "heat map", most = 1100 }) {
  const room = Math.max(240, Math.min(most, window.innerWidth - 260));
  const side = Math.max(3, Math.min(26, Math.floor(room / Math.max(columns.length, 1))));
  const ratio = window.devicePixelRatio || 1;
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = FONT;
  const every = Math.max(1, Math.ceil(14 / side));
  const wide = (names) => Math.max(20, ...names.slice(0, NAMED).map((name) => measure.measureText(cut(name)).width));
  const left = Math.ceil(wide(rows)) + 10;
  const top = Math.ceil(wide(columns) * 0.87) + 14;
  const width = left + side * columns.length + 70;
  const height = top + side * rows.length + 8;
  const base = make("canvas", { width: width * ratio, height: height * ratio, tabIndex: 0, role: "img", "aria-label": label });
  const over = make("canvas", { width: width * ratio, height: height * ratio, "aria-hidden": "true" });
  for (const one of [base, over]) {
    one.style.width = `${width}px`;
    one.style.height = `${height}px`;
  }
  const pen = base.getContext("2d");
  pen.scale(ratio, ratio);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(painted(values, rows.length, columns.length, range), left, top, side * columns.length, side * rows.length);
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--line");
  pen.strokeRect(left - 0.5, top - 0.5, side * columns.length + 1, side * rows.length + 1); // zero is the ground, so the map has a rim
  pen.font = FONT;
  pen.fillStyle = ink();
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  rows.forEach((name, i) => i % every === 0 && pen.fillText(cut(name), left - 6, top + (i + 0.5) * side));
  pen.textAlign = "left";
  columns.forEach((name, j) => {
    if (j % every) return;
    pen.save();
    pen.translate(left + (j + 0.5) * side + 3, top - 6);
    pen.rotate(-Math.PI / 3);
    pen.fillText(cut(name), 0, 0);
    pen.restore();
  });
  const glass = over.getContext("2d");
  glass.scale(ratio, ratio);
  let at = null;
  const mark = (row, column) => {
    glass.clearRect(0, 0, width, height);
    at = row === null ? null : [row, column];
    if (at) {
      glass.strokeStyle = ink();
      glass.strokeRect(left - 0.5, top + row * side - 0.5, side * columns.length + 1, side + 1);
      glass.strokeRect(left + column * side - 0.5, top - 0.5, side + 1, side * rows.length + 1);
    }
    told(row, column);
  };
  const place = (event) => {
    const box = base.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - left) / side);
    const row = Math.floor((event.clientY - box.top - top) / side);
    return row >= 0 && column >= 0 && row < rows.length && column < columns.length ? [row, column] : [null, null];
  };
  base.addEventListener("pointermove", (event) => mark(...place(event)));
  base.addEventListener("pointerleave", () => mark(null, null));
  base.addEventListener("click", (event) => place(event)[0] !== null && chosen(place(event)[0]));
  base.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = at ? [at[0] + step[0], at[1] + step[1]] : [0, 0];
    mark(Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column)));
  });
  return make("div", {}, make("div", { class: "heat" }, base, over), key(range));
}
