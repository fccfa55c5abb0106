// Tokens on both sides and lines between them, as strong as the weight; a token that is pointed at or chosen shows its own.

import { extent, rgb } from "/page/colour.js";
import { make, shown } from "/page/tell.js";

const HIGH = 26; // of a token
const MOST = 3000; // lines at a time

export function lines({ values, rows, columns, told = () => {}, pinned = null, chosen = () => {} }) {
  const range = extent(values);
  const canvas = make("canvas", { "aria-hidden": "true" });
  const token = (name, i, kind) =>
    make("button", {
      type: "button",
      text: shown(name),
      dir: "auto",
      title: shown(name),
      onpointerenter: () => kind === "left" && show(i),
      onpointerleave: () => kind === "left" && show(pinned),
      onfocus: () => kind === "left" && show(i),
      onclick: () => kind === "left" && chosen(i),
    });
  const side = (names, kind) => {
    const all = names.map((name, i) => token(name, i, kind));
    if (kind === "left" && pinned !== null && all[pinned]) all[pinned].classList.add("pinned");
    const label = kind === "left" ? "tokens that look" : "tokens that are looked at";
    return [make("ol", { class: kind, "aria-label": label }, ...all.map((one) => make("li", {}, one))), all];
  };
  const [left] = side(rows, "left");
  const [right, seen] = side(columns, "right");
  const high = HIGH * Math.max(rows.length, columns.length);

  function show(row) {
    const wide = canvas.clientWidth || 320;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.height = `${high}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const count = columns.length;
    const from = row === null ? 0 : row;
    const to = row === null ? rows.length : row + 1;
    const links = [];
    for (let i = from; i < to; i++) {
      for (let j = 0; j < count; j++) {
        const weight = Math.abs(values[i * count + j]) / range.top;
        if (weight > 0.01) links.push([weight, i, j]);
      }
    }
    links.sort((a, b) => b[0] - a[0]);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    for (const [weight, i, j] of links.slice(0, MOST)) {
      pen.globalAlpha = row === null ? weight * 0.8 : Math.max(0.06, weight);
      pen.lineWidth = 0.6 + 3 * weight;
      pen.beginPath();
      pen.moveTo(0, (i + 0.5) * HIGH - 1);
      pen.bezierCurveTo(wide / 3, (i + 0.5) * HIGH - 1, (2 * wide) / 3, (j + 0.5) * HIGH - 1, wide, (j + 0.5) * HIGH - 1);
      pen.stroke();
    }
    seen.forEach((one, j) => {
      if (row === null) {
        one.style.background = "";
        one.style.color = "";
        return;
      }
      const [r, g, b] = rgb(values[row * count + j], range);
      one.style.background = `rgb(${r} ${g} ${b})`;
      one.style.color = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
    });
    let best = 0;
    if (row !== null) for (let j = 0; j < count; j++) if (values[row * count + j] > values[row * count + best]) best = j;
    told(row, row === null ? null : best);
  }
  const whole = make("div", { class: "lines" }, left, canvas, right);
  requestAnimationFrame(() => show(pinned));
  return whole;
}
