// Line charts and bar charts as SVG.

import { drawn, make } from "/page/dom.js";

const [WIDE, HIGH, LEFT, BOTTOM, TOP] = [520, 312, 64, 40, 28];
export const INKS = ["#6a2379", "#c2571a", "#1b7f6b", "#2a5fb0", "#a81e4e", "#7a6a12", "#4b4f58", "#8a5a2b"];
const DARK = ["#d59be0", "#f0a06a", "#6fd0ba", "#8db8f5", "#f08aae", "#d8c860", "#b9bcc4", "#d6a679"];

// ticks of a linear axis at round numbers
function steps(low, high) {
  const raw = (high - low) / 5 || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const size = [1, 2, 5, 10].find((by) => by * unit >= raw) * unit;
  const ticks = [];
  for (let i = Math.ceil(low / size - 1e-6); i <= high / size + 1e-6; i++) ticks.push(Number((i * size).toPrecision(12)) || 0); // multiples, because a sum of steps misses zero
  return ticks;
}

// ticks of a logarithmic axis from 10^low to 10^high: powers of ten, and also 2 and 5 times these if there are few
function powers(low, high) {
  const [first, last] = [Math.floor(low + 1e-9), Math.ceil(high - 1e-9)];
  const by = Math.max(1, Math.ceil((last - first) / 6));
  const inside = (x) => Math.log10(x) >= low - 1e-9 && Math.log10(x) <= high + 1e-9;
  const tens = Array.from({ length: Math.floor((last - first) / by) + 1 }, (_, i) => 10 ** (first + i * by)).filter(inside);
  if (tens.length > 2) return tens;
  const all = Array.from({ length: last - first + 1 }, (_, i) => [1, 2, 5].map((times) => times * 10 ** (first + i))).flat();
  return all.filter(inside);
}

// a function from values to coordinates, and the ticks of the axis
function scale(values, from, to, log) {
  const valid = values.filter((x) => Number.isFinite(x) && (!log || x > 0)).map((x) => (log ? Math.log10(x) : x));
  let [low, high] = [Math.min(...valid), Math.max(...valid)];
  if (!valid.length) [low, high] = [0, 1];
  if (low === high) [low, high] = log ? [low - 0.5, high + 0.5] : [low - (Math.abs(low) / 2 || 0.5), high + (Math.abs(high) / 2 || 0.5)];
  const position = (x) => from + (((log ? Math.log10(x) : x) - low) / (high - low)) * (to - from);
  const ticks = log ? powers(low, high) : steps(low, high);
  return [position, ticks];
}

const plain = (x) => (Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(0) : String(Number(x.toPrecision(4))));

export function curves({ title, x = "", y = "", lines, dots = [], log_x = false, log_y = false, points = false, order = {} }) {
  const names = Object.keys(lines);
  const inkOf = (name, number) => inks[(order[name] ?? number) % inks.length]; // `order` keeps the color of a line in several charts
  const inks = document.documentElement.dataset.theme === "dark" ? DARK : INKS;
  const allPoints = [...Object.values(lines).flat(), ...dots].filter(([, value]) => value !== null);
  const [toX, xTicks] = scale(allPoints.map((p) => p[0]), LEFT, WIDE - 12, log_x);
  const [toY, yTicks] = scale(allPoints.map((p) => p[1]), HIGH - BOTTOM, TOP, log_y);
  const parts = [];
  for (const tick of yTicks) parts.push(drawn("line", { class: "grid", x1: LEFT, x2: WIDE - 12, y1: toY(tick), y2: toY(tick) }), drawn("text", { x: LEFT - 6, y: toY(tick) + 4, "text-anchor": "end", text: plain(tick) }));
  for (const tick of xTicks) parts.push(drawn("text", { x: toX(tick), y: HIGH - BOTTOM + 18, "text-anchor": "middle", text: plain(tick) }));
  parts.push(drawn("text", { x: WIDE - 12, y: HIGH - 6, "text-anchor": "end", text: x }), drawn("text", { x: 4, y: 12, text: y }));
  names.forEach((name, number) => {
    const path = lines[name]
      .filter((p) => p[1] !== null && (!log_x || p[0] > 0) && (!log_y || p[1] > 0))
      .map((p, i) => `${i ? "L" : "M"}${toX(p[0]).toFixed(1)} ${toY(p[1]).toFixed(1)}`)
      .join("");
    parts.push(drawn("path", { d: path, fill: "none", stroke: inkOf(name, number), "stroke-width": 2 }));
    if (points) for (const [px, py] of lines[name]) if (py !== null) parts.push(drawn("circle", { cx: toX(px), cy: toY(py), r: 3, fill: inkOf(name, number) }));
  });
  for (const [px, py] of dots) parts.push(drawn("circle", { cx: toX(px), cy: toY(py), r: 2.5, fill: "currentColor", opacity: 0.6 }));
  const legend = make("figcaption", {}, title, ...names.flatMap((name, number) => {
    const mark = make("span", { text: " ━ ", "aria-hidden": "true" });
    mark.style.color = inkOf(name, number);
    return [mark, make("bdi", { text: name })];
  }));
  const description = names.map((name) => `${name}: ${lines[name].length} points, last value ${plain(lines[name].at(-1)?.[1] ?? 0)}`).join("; ");
  return make("figure", {}, drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: "img", "aria-label": `${title}. ${description}` }, ...parts), legend);
}

// the longest bar has the full width, unless `max_value` is the value of a full bar; zero has no bar
export function bars({ title, names, values, max_value: end = null }) {
  const numbers = values.map((value) => value ?? 0);
  const [low, high] = [Math.min(0, ...numbers), Math.max(end ?? 0, ...numbers)];
  const toX = (value) => (160 * (value - low)) / (high - low || 1);
  const inks = document.documentElement.dataset.theme === "dark" ? DARK : INKS;
  const rows = names.map((name, i) => {
    const [from, to] = [toX(Math.min(0, numbers[i])), toX(Math.max(0, numbers[i]))];
    const bar = drawn("rect", { x: from, y: 2, width: numbers[i] ? Math.max(1, to - from) : 0, height: 12, fill: inks[numbers[i] < 0 ? 1 : 0] });
    const svg = drawn("svg", { viewBox: "0 0 160 16", width: 160, height: 16, "aria-hidden": "true" }, bar);
    return make("tr", {}, make("th", { scope: "row", text: name }), make("td", {}, svg), make("td", { text: values[i] === null ? "–" : plain(values[i]) }));
  });
  return make("figure", {}, make("table", {}, make("tbody", {}, ...rows)), make("figcaption", { text: title }));
}
