// The lessons, live: prose, the equation, the library's own code, and pictures that follow the controls.

import { bars, curves } from "/page/chart.js";
import { heat } from "/page/heatmap.js";
import { ask, busy, make, repainted } from "/page/dom.js";

export async function learn(_, name) {
  const lessons = await busy("fetching the lessons", () => ask("/api/lessons"));
  if (!lessons) return make("p", { text: "The lessons cannot be fetched." });
  const chosen = lessons.find((one) => one.name === name) ?? lessons[0];
  const list = make("ol", {}, ...lessons.map((one) => make("li", {}, make("a", { href: `#learn/${one.name}`, text: one.title, "aria-current": String(one === chosen) }))));
  return make("section", { class: "lessons", "aria-label": "learn" }, make("nav", { "aria-label": "lessons" }, list), lesson(chosen));
}

function lesson(one) {
  const parts = make("div", { class: "parts" });
  const said = make("p", { "aria-live": "polite" });
  const formula = make("p", { class: "formula", text: one.formula });
  const inputs = new Map();
  const node = make("article", {});
  let latest = 0;
  const draw = async () => {
    const mine = ++latest;
    const set = [...inputs].map(([name, input]) => `set=${encodeURIComponent(`${name}:${input.value}`)}`).join("&");
    const found = await busy("drawing", () => ask(`/api/lesson/${one.name}?${set}`));
    if (!found || mine !== latest) return;
    said.textContent = found.summary;
    formula.textContent = found.formula;
    limit(found.control_limits);
    parts.replaceChildren(...found.figures.map(part), ...(found.offered_demo ? [offer(found.offered_demo, draw)] : []));
    node.dataset.ready = String(mine);
  };
  const outputs = new Map();
  // a slider ends where moving it further would change nothing, such as at the last word of a sentence
  const limit = (limits) => {
    for (const control of one.controls.filter(({ kind }) => kind === "range")) {
      const input = inputs.get(control.name);
      input.max = String(Math.min(control.high, limits[control.name] ?? control.high));
      outputs.get(control.name).textContent = input.value;
    }
  };
  const controls = one.controls.map((control) => {
    const input = field(control);
    const value = make("output", { text: control.kind === "range" ? control.default : "" });
    outputs.set(control.name, value);
    input.addEventListener("input", () => {
      if (control.kind === "range") value.textContent = input.value;
      draw();
    });
    inputs.set(control.name, input);
    return make("label", {}, control.label, input, value);
  });
  const code = one.code.map(({ name, source }) => make("details", {}, make("summary", { text: name }), make("pre", { tabIndex: 0 }, make("code", { text: source }))));
  node.append(make("h2", { text: one.title }), make("p", { text: one.description }), formula, make("div", { class: "row" }, ...controls), said, parts, ...code);
  repainted(node, draw);
  draw();
  return node;
}

// a button that has the missing models trained, and says how far that is
function offer(demo, done) {
  const line = make("p", { class: "readout", "aria-live": "polite" });
  const button = make("button", { type: "button", text: "Train it now" });
  const node = make("div", { class: "offer" }, button, line);
  const follow = async () => {
    button.disabled = true;
    for (;;) {
      const told = await ask("/api/demo").catch((error) => ({ failed: true, last_line: error.message }));
      if (!node.isConnected) return;
      line.textContent = told.last_line;
      if (told.failed || !told.running) {
        button.disabled = false;
        if (!told.failed) done();
        return;
      }
      await new Promise((wake) => setTimeout(wake, 1000));
    }
  };
  button.addEventListener("click", async () => {
    if (await busy("beginning", () => ask(`/api/demo/${demo}`, {}))) follow();
  });
  ask("/api/demo").then((told) => told.running && told.demo === demo && follow(), () => {});
  return node;
}

function field({ kind, low, high, step, choices, default: value, label }) {
  if (kind === "choice") return make("select", { "aria-label": label }, ...choices.map((name) => make("option", { text: name, value: name, selected: name === value })));
  if (kind === "range") return make("input", { type: "range", min: String(low), max: String(high), step: String(step), value, "aria-label": label });
  return make("input", { type: "text", value, size: "40", "aria-label": label });
}

function part(one) {
  if (one.kind === "linechart") return curves(one);
  if (one.kind === "barchart") return bars(one);
  if (one.kind === "table") {
    const head = make("tr", {}, ...one.headers.map((text) => make("th", { scope: "col", text })));
    const rows = one.rows.map((row) => make("tr", {}, ...row.map((text) => make("td", { text }))));
    const prose = one.rows.some((row) => row.slice(1).some((text) => text.length > 24));
    return make("figure", { class: prose ? "texts" : "" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)), make("figcaption", { text: one.title }));
  }
  if (one.kind === "image") return image(one);
  const readout = make("p", { class: "readout" });
  const values = Float32Array.from(one.values.flat(), (x) => x ?? NaN);
  const told = (row, column) => (readout.textContent = row === null ? "" : `${one.rows[row]} → ${one.columns[column]}: ${values[row * one.columns.length + column].toFixed(4)}`);
  return make("figure", {}, heat({ values, rows: one.rows, columns: one.columns, told, label: one.title, most: 460, top: one.vmax }), readout, make("figcaption", { text: one.title }));
}

// a picture in its own colours, pixel by pixel
function image({ title, pixels }) {
  const canvas = make("canvas", { width: pixels[0].length, height: pixels.length, role: "img", "aria-label": title });
  const flat = pixels.flat().flatMap(([red, green, blue]) => [red, green, blue, 255]);
  canvas.getContext("2d").putImageData(new ImageData(Uint8ClampedArray.from(flat), pixels[0].length), 0, 0);
  canvas.style.cssText = "width: 256px; image-rendering: pixelated";
  return make("figure", {}, canvas, make("figcaption", { text: title }));
}
