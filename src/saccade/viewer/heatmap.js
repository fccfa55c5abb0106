// A heat map on a canvas: one row per query, one column per key.

import { extent, key, painted } from "/page/color.js";
import { make, shown } from "/page/dom.js";

const NAMED = 220; // names that are measured for the margins
const FONT = "12px system-ui, sans-serif";

function truncate(text, maxLength = 18) {
  const characters = [...shown(text)];
  return characters.length > maxLength ? characters.slice(0, maxLength - 1).join("") + "…" : characters.join("");
}

function ink() {
  return getComputedStyle(document.documentElement).getPropertyValue("--ink");
}

// `onHover` is called with the (row, column) under the pointer or the keyboard, `onSelect` with a row that was clicked; heat maps
// that are compared share `top`, the end of their scale
export function heat({ values, rows, columns, top: end = null, range = end === null ? extent(values) : { ...extent(values), top: end }, onHover = () => {}, onSelect = () => {}, label = "heat map", maxWidth = 1100 }) {
  const room = Math.max(240, Math.min(maxWidth, window.innerWidth - 260));
  const side = Math.max(3, Math.min(26, Math.floor(room / Math.max(columns.length, 1))));
  const ratio = window.devicePixelRatio || 1;
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = FONT;
  const labelStep = Math.max(1, Math.ceil(14 / side)); // small cells have a label for every few rows and columns
  const labelWidth = (names) => Math.max(20, ...names.slice(0, NAMED).map((name) => measure.measureText(truncate(name)).width));
  const left = Math.ceil(labelWidth(rows)) + 10;
  const top = Math.ceil(labelWidth(columns) * 0.87) + 14;
  const width = left + side * columns.length + 70;
  const height = top + side * rows.length + 8;
  const base = make("canvas", { width: width * ratio, height: height * ratio, tabIndex: 0, role: "img", "aria-label": label });
  const overlay = make("canvas", { width: width * ratio, height: height * ratio, "aria-hidden": "true" });
  for (const canvas of [base, overlay]) {
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = base.getContext("2d");
  pen.scale(ratio, ratio);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(painted(values, rows.length, columns.length, range), left, top, side * columns.length, side * rows.length);
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--line");
  pen.strokeRect(left - 0.5, top - 0.5, side * columns.length + 1, side * rows.length + 1); // a border, because zero has the background color
  pen.font = FONT;
  pen.fillStyle = ink();
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  rows.forEach((name, i) => i % labelStep === 0 && pen.fillText(truncate(name), left - 6, top + (i + 0.5) * side));
  pen.textAlign = "left";
  columns.forEach((name, j) => {
    if (j % labelStep) return;
    pen.save();
    pen.translate(left + (j + 0.5) * side + 3, top - 6);
    pen.rotate(-Math.PI / 3);
    pen.fillText(truncate(name), 0, 0);
    pen.restore();
  });
  const overlayPen = overlay.getContext("2d");
  overlayPen.scale(ratio, ratio);
  let cursor = null;
  const mark = (row, column) => {
    overlayPen.clearRect(0, 0, width, height);
    cursor = row === null ? null : [row, column];
    if (cursor) {
      overlayPen.strokeStyle = ink();
      overlayPen.strokeRect(left - 0.5, top + row * side - 0.5, side * columns.length + 1, side + 1);
      overlayPen.strokeRect(left + column * side - 0.5, top - 0.5, side + 1, side * rows.length + 1);
    }
    onHover(row, column);
  };
  const cellAt = (event) => {
    const box = base.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - left) / side);
    const row = Math.floor((event.clientY - box.top - top) / side);
    return row >= 0 && column >= 0 && row < rows.length && column < columns.length ? [row, column] : [null, null];
  };
  base.addEventListener("pointermove", (event) => mark(...cellAt(event)));
  base.addEventListener("pointerleave", () => mark(null, null));
  base.addEventListener("click", (event) => cellAt(event)[0] !== null && onSelect(cellAt(event)[0]));
  base.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = cursor ? [cursor[0] + step[0], cursor[1] + step[1]] : [0, 0];
    mark(Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column)));
  });
  return make("div", {}, make("div", { class: "heat" }, base, overlay), key(range));
}
