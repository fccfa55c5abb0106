// Lines from query tokens to key tokens, as wide as the attention weight; only the lines of one query while it is hovered or selected.

import { extent, rgb, widthKey } from "/page/color.js";
import { make, shown } from "/page/dom.js";

const ROW_HEIGHT = 26; // of a token, in pixels
const MAX_LINES = 3000;
const MAX_TOKENS = 400; // on each side, because the height of a canvas is limited
const MAX_LINE_WIDTH = 7; // pixels, at the end of the scale
const MIN_WEIGHT = 0.01; // relative to the scale; thinner lines would not be visible

const widthOf = (share) => Math.max(0.3, MAX_LINE_WIDTH * Math.min(1, share));

// indices of at most MAX_TOKENS queries around the selected one
function nearbyQueries(count, row) {
  const first = Math.max(0, Math.min((row ?? 0) - MAX_TOKENS / 2, count - MAX_TOKENS));
  return Array.from({ length: Math.min(count, MAX_TOKENS) }, (_, i) => first + i);
}

// indices of at most MAX_TOKENS keys, those with the largest weights from these queries, in the order of the text
function topKeys(values, queries, count) {
  const all = Array.from({ length: count }, (_, j) => j);
  if (count <= MAX_TOKENS) return all;
  const peak = all.map((j) => Math.max(...queries.map((i) => Math.abs(values[i * count + j]))));
  return all.sort((a, b) => peak[b] - peak[a]).slice(0, MAX_TOKENS).sort((a, b) => a - b);
}

// `onHover` is called with the row and its key of the largest weight, `onSelect` with a row that was clicked
export function lines({ values, rows, columns, range = extent(values), onHover = () => {}, pinned = null, onSelect = () => {} }) {
  const count = columns.length;
  const queries = nearbyQueries(rows.length, pinned);
  const keys = topKeys(values, queries, count);
  const canvas = make("canvas", { "aria-hidden": "true" });
  const lineCount = make("p", { class: "soft" });
  const token = (name, i, side) =>
    make("button", {
      type: "button",
      text: shown(name),
      dir: "auto",
      title: shown(name),
      "data-at": String(i),
      onpointerenter: () => side === "left" && show(i),
      onpointerleave: () => side === "left" && show(pinned),
      onfocus: () => side === "left" && show(i),
      onclick: () => side === "left" && onSelect(i),
    });
  const tokenList = (names, indices, side) => {
    const buttons = indices.map((i) => token(names[i], i, side));
    if (side === "left") buttons[queries.indexOf(pinned)]?.classList.add("pinned");
    const label = side === "left" ? "query tokens" : "key tokens";
    return [make("ol", { class: side, "aria-label": label }, ...buttons.map((button) => make("li", {}, button))), buttons];
  };
  const [left] = tokenList(rows, queries, "left");
  const [right, keyButtons] = tokenList(columns, keys, "right");
  const height = ROW_HEIGHT * Math.max(queries.length, keys.length);

  function show(row) {
    const width = canvas.clientWidth || 320;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const links = [];
    queries.forEach((i, from) => {
      if (row !== null && i !== row) return;
      keys.forEach((j, to) => {
        const weight = values[i * count + j] / range.top;
        if (Math.abs(weight) > MIN_WEIGHT) links.push([Math.abs(weight), from, to, weight < 0]);
      });
    });
    links.sort((a, b) => b[0] - a[0]);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    pen.globalAlpha = row === null ? 0.6 : 0.85;
    for (const [weight, from, to, negative] of links.slice(0, MAX_LINES)) {
      const [y1, y2] = [(from + 0.5) * ROW_HEIGHT - 1, (to + 0.5) * ROW_HEIGHT - 1];
      pen.lineWidth = widthOf(weight);
      pen.setLineDash(negative ? [5, 4] : []);
      pen.beginPath();
      pen.moveTo(0, y1);
      pen.bezierCurveTo(width / 3, y1, (2 * width) / 3, y2, width, y2);
      pen.stroke();
    }
    keyButtons.forEach((button, to) => {
      if (row === null) {
        button.style.background = "";
        button.style.color = "";
        return;
      }
      const [r, g, b] = rgb(values[row * count + keys[to]], range);
      button.style.background = `rgb(${r} ${g} ${b})`;
      button.style.color = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
    });
    left.querySelector(".shown")?.classList.remove("shown");
    if (row !== null) left.children[queries.indexOf(row)]?.firstElementChild.classList.add("shown");
    lineCount.textContent = links.length > MAX_LINES ? `The ${MAX_LINES.toLocaleString("en")} widest of ${links.length.toLocaleString("en")} lines are drawn.` : "";
    let best = 0;
    if (row !== null) for (let j = 0; j < count; j++) if (values[row * count + j] > values[row * count + best]) best = j;
    onHover(row, row === null ? null : best);
  }
  const truncated = queries.length < rows.length || keys.length < count;
  const note = truncated ? make("p", { class: "soft", text: `${queries.length} of ${rows.length} queries, and the ${keys.length} of ${count} keys with the largest weights from them` }) : "";
  requestAnimationFrame(() => show(pinned));
  const legend = `${range.legend ? `${range.legend}; ` : ""}no lines below ${Number((MIN_WEIGHT * range.top).toPrecision(2))}${range.signed ? "; dashed lines are negative" : ""}`;
  return make("div", {}, widthKey({ ...range, legend }, widthOf), lineCount, note, make("div", { class: "lines" }, left, canvas, right));
}
