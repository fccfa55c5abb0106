// Tokens on both sides and lines between them, as wide as the weight on the scale below; a token that is pointed at or chosen shows its own.

import { extent, rgb, widthKey } from "/page/color.js";
import { make, shown } from "/page/dom.js";

const HIGH = 26; // of a token
const MOST = 3000; // lines at a time
const FEW = 400; // tokens on a side: a canvas has an end
const WIDEST = 7; // pixels of a line at the end of the scale
const LEAST = 0.01; // of the scale: a thinner line could not be seen

const widthOf = (share) => Math.max(0.3, WIDEST * Math.min(1, share));

// of many rows those around the chosen one
function around(count, row) {
  const first = Math.max(0, Math.min((row ?? 0) - FEW / 2, count - FEW));
  return Array.from({ length: Math.min(count, FEW) }, (_, i) => first + i);
}

// of many columns those that one of these rows looks at most, in the order of the text
function sought(values, rows, count) {
  const all = Array.from({ length: count }, (_, j) => j);
  if (count <= FEW) return all;
  const peak = all.map((j) => Math.max(...rows.map((i) => Math.abs(values[i * count + j]))));
  return all.sort((a, b) => peak[b] - peak[a]).slice(0, FEW).sort((a, b) => a - b);
}

export function lines({ values, rows, columns, range = extent(values), told = () => {}, pinned = null, chosen = () => {} }) {
  const count = columns.length;
  const looking = around(rows.length, pinned);
  const looked = sought(values, looking, count);
  const canvas = make("canvas", { "aria-hidden": "true" });
  const tally = make("p", { class: "soft" });
  const token = (name, i, kind) =>
    make("button", {
      type: "button",
      text: shown(name),
      dir: "auto",
      title: shown(name),
      "data-at": String(i),
      onpointerenter: () => kind === "left" && show(i),
      onpointerleave: () => kind === "left" && show(pinned),
      onfocus: () => kind === "left" && show(i),
      onclick: () => kind === "left" && chosen(i),
    });
  const side = (names, places, kind) => {
    const all = places.map((i) => token(names[i], i, kind));
    if (kind === "left") all[looking.indexOf(pinned)]?.classList.add("pinned");
    const label = kind === "left" ? "tokens that look" : "tokens that are looked at";
    return [make("ol", { class: kind, "aria-label": label }, ...all.map((one) => make("li", {}, one))), all];
  };
  const [left] = side(rows, looking, "left");
  const [right, seen] = side(columns, looked, "right");
  const high = HIGH * Math.max(looking.length, looked.length);

  function show(row) {
    const wide = canvas.clientWidth || 320;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.height = `${high}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const links = [];
    looking.forEach((i, up) => {
      if (row !== null && i !== row) return;
      looked.forEach((j, down) => {
        const weight = values[i * count + j] / range.top;
        if (Math.abs(weight) > LEAST) links.push([Math.abs(weight), up, down, weight < 0]);
      });
    });
    links.sort((a, b) => b[0] - a[0]);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    pen.globalAlpha = row === null ? 0.6 : 0.85;
    for (const [weight, up, down, negative] of links.slice(0, MOST)) {
      pen.lineWidth = widthOf(weight);
      pen.setLineDash(negative ? [5, 4] : []);
      pen.beginPath();
      pen.moveTo(0, (up + 0.5) * HIGH - 1);
      pen.bezierCurveTo(wide / 3, (up + 0.5) * HIGH - 1, (2 * wide) / 3, (down + 0.5) * HIGH - 1, wide, (down + 0.5) * HIGH - 1);
      pen.stroke();
    }
    seen.forEach((one, down) => {
      if (row === null) {
        one.style.background = "";
        one.style.color = "";
        return;
      }
      const [r, g, b] = rgb(values[row * count + looked[down]], range);
      one.style.background = `rgb(${r} ${g} ${b})`;
      one.style.color = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
    });
    left.querySelector(".shown")?.classList.remove("shown");
    if (row !== null) left.children[looking.indexOf(row)]?.firstElementChild.classList.add("shown");
    tally.textContent = links.length > MOST ? `Of ${links.length.toLocaleString("en")} lines the ${MOST.toLocaleString("en")} widest are drawn.` : "";
    let best = 0;
    if (row !== null) for (let j = 0; j < count; j++) if (values[row * count + j] > values[row * count + best]) best = j;
    told(row, row === null ? null : best);
  }
  const less = looking.length < rows.length || looked.length < count;
  const note = less ? make("p", { class: "soft", text: `${looking.length} of ${rows.length} rows, and of ${count} columns the ${looked.length} that they look at most` }) : "";
  requestAnimationFrame(() => show(pinned));
  const said = `${range.said ? `${range.said}; ` : ""}below ${Number((LEAST * range.top).toPrecision(2))} no line is drawn${range.signed ? "; dashed lines are negative" : ""}`;
  return make("div", {}, widthKey({ ...range, said }, widthOf), tally, note, make("div", { class: "lines" }, left, canvas, right));
}
