// The interactive lessons: text, formula, source code of the library, and figures that follow the controls.

import { bars, curves } from "/page/chart.js";
import { heat } from "/page/heatmap.js";
import { ask, busy, make, repainted } from "/page/dom.js";

export async function learn(_, name) {
  const lessons = await busy("Loading the lessons", () => ask("/api/lessons"));
  if (!lessons) return make("p", { text: "The lessons could not be loaded." });
  const selected = lessons.find((lesson) => lesson.name === name) ?? lessons[0];
  const list = make("ol", {}, ...lessons.map((lesson) => make("li", {}, make("a", { href: `#learn/${lesson.name}`, text: lesson.title, "aria-current": String(lesson === selected) }))));
  return make("section", { class: "lessons", "aria-label": "Learn" }, make("nav", { "aria-label": "Lessons" }, list), article(selected));
}

function article(lesson) {
  const figures = make("div", { class: "parts" });
  const summary = make("p", { "aria-live": "polite" });
  const formula = make("p", { class: "formula", text: lesson.formula });
  const inputs = new Map();
  const node = make("article", {});
  let latest = 0;
  const draw = async () => {
    const request = ++latest;
    const query = [...inputs].map(([name, input]) => `set=${encodeURIComponent(`${name}:${input.value}`)}`).join("&");
    const result = await busy("Computing", () => ask(`/api/lesson/${lesson.name}?${query}`));
    if (!result || request !== latest) return;
    summary.textContent = result.summary;
    formula.textContent = result.formula;
    limit(result.control_limits);
    figures.replaceChildren(...result.figures.map(drawFigure), ...(result.offered_demo ? [trainingOffer(result.offered_demo, draw)] : []));
    node.dataset.ready = String(request);
  };
  const outputs = new Map();
  // lower the maximum of a slider, for example to the number of words of the sentence
  const limit = (limits) => {
    for (const control of lesson.controls.filter(({ kind }) => kind === "range")) {
      const input = inputs.get(control.name);
      input.max = String(Math.min(control.high, limits[control.name] ?? control.high));
      outputs.get(control.name).textContent = input.value;
    }
  };
  const controls = lesson.controls.map((control) => {
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
  const code = lesson.code.map(({ name, source }) => make("details", {}, make("summary", { text: name }), make("pre", { tabIndex: 0 }, make("code", { text: source }))));
  node.append(make("h2", { text: lesson.title }), make("p", { text: lesson.description }), formula, make("div", { class: "row" }, ...controls), summary, figures, ...code);
  repainted(node, draw);
  draw();
  return node;
}

// a button that trains the missing models, with the progress
function trainingOffer(demo, onFinish) {
  const progress = make("p", { class: "readout", "aria-live": "polite" });
  const button = make("button", { type: "button", text: "Train the models" });
  const node = make("div", { class: "offer" }, button, progress);
  const follow = async () => {
    button.disabled = true;
    for (;;) {
      const status = await ask("/api/demo").catch((error) => ({ failed: true, last_line: error.message }));
      if (!node.isConnected) return;
      progress.textContent = status.last_line;
      if (status.failed || !status.running) {
        button.disabled = false;
        if (!status.failed) onFinish();
        return;
      }
      await new Promise((wake) => setTimeout(wake, 1000));
    }
  };
  button.addEventListener("click", async () => {
    if (await busy("Starting", () => ask(`/api/demo/${demo}`, {}))) follow();
  });
  ask("/api/demo").then((status) => status.running && status.demo === demo && follow(), () => {});
  return node;
}

function field({ kind, low, high, step, choices, default: value, label }) {
  if (kind === "choice") return make("select", { "aria-label": label }, ...choices.map((name) => make("option", { text: name, value: name, selected: name === value })));
  if (kind === "range") return make("input", { type: "range", min: String(low), max: String(high), step: String(step), value, "aria-label": label });
  return make("input", { type: "text", value, size: "40", "aria-label": label });
}

function drawFigure(figure) {
  const { kind, title, rows, columns } = figure;
  if (kind === "linechart") return curves(figure);
  if (kind === "barchart") return bars(figure);
  if (kind === "table") {
    const head = make("tr", {}, ...figure.headers.map((text) => make("th", { scope: "col", text })));
    const body = rows.map((row) => make("tr", {}, ...row.map((text) => make("td", { text }))));
    const prose = rows.some((row) => row.slice(1).some((text) => text.length > 24));
    return make("figure", { class: prose ? "texts" : "" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)), make("figcaption", { text: title }));
  }
  if (kind === "image") return image(figure);
  const readout = make("p", { class: "readout" });
  const values = Float32Array.from(figure.values.flat(), (x) => x ?? NaN);
  const onHover = (row, column) => (readout.textContent = row === null ? "" : `${rows[row]} → ${columns[column]}: ${values[row * columns.length + column].toFixed(4)}`);
  return make("figure", {}, heat({ values, rows, columns, onHover, label: title, maxWidth: 460, top: figure.vmax }), readout, make("figcaption", { text: title }));
}

// an RGB image, enlarged without smoothing
function image({ title, pixels }) {
  const canvas = make("canvas", { width: pixels[0].length, height: pixels.length, role: "img", "aria-label": title });
  const flat = pixels.flat().flatMap(([red, green, blue]) => [red, green, blue, 255]);
  canvas.getContext("2d").putImageData(new ImageData(Uint8ClampedArray.from(flat), pixels[0].length), 0, 0);
  canvas.style.cssText = "width: 256px; image-rendering: pixelated";
  return make("figure", {}, canvas, make("figcaption", { text: title }));
}
