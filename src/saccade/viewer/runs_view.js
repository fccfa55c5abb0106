// The runs of a folder: their curves in one chart, their reports, model cards and worst predictions.

import { curves } from "/page/chart.js";
import { ask, busy, make, repainted } from "/page/dom.js";

const DEV = "dev "; // prefix of the names of scores on held-out data

function displayName(metric) {
  return metric.startsWith(DEV) ? `held-out ${metric.slice(DEV.length)}` : metric;
}

async function predictions(name) {
  const samples = await busy(`Loading the predictions of ${name}`, () => ask(`/api/samples/${encodeURIComponent(name)}`));
  if (!samples) return undefined;
  const title = make("h2", {}, "Worst predictions of ", make("bdi", { text: name }));
  if (!samples.rows.length) return make("section", {}, title, make("p", { text: "The report of this run lists none: the last evaluation had no wrong predictions, or the task has no such table." }));
  const cell = (tag, attributes) => (text) => make(tag, attributes, make("bdi", { text }));
  const head = make("thead", {}, make("tr", {}, ...samples.headers.map(cell("th", { scope: "col" }))));
  const rows = samples.rows.map((row) => make("tr", {}, ...row.map(cell("td", {}))));
  return make("section", {}, title, make("div", { class: "stage", tabindex: "0", role: "group", "aria-label": `worst predictions of ${name}` }, make("table", { class: "texts" }, head, make("tbody", {}, ...rows))));
}

export async function runs() {
  const all = await busy("Loading the runs", () => ask("/api/runs"));
  if (!all?.length) return make("p", { text: "There are no runs. Start the server with saccade serve --runs DIR to show the runs of a folder." });
  const metrics = [...new Set(all.flatMap((run) => Object.keys(run.curves)))].sort((a, b) => (b === "loss") - (a === "loss") || b.startsWith(DEV) - a.startsWith(DEV));
  const selected = new Set(all.filter((run) => Object.keys(run.curves).length).slice(0, 4).map((run) => run.name));
  let metric = metrics[0];
  const plot = make("div", { class: "parts" });
  const panels = make("div", { class: "panels" });
  const opened = new Map();
  const toggle = async (name, button) => {
    if (opened.has(name)) {
      opened.get(name).remove();
      opened.delete(name);
    } else {
      const section = await predictions(name);
      if (!section || opened.has(name)) return;
      opened.set(name, section);
      panels.append(section);
    }
    button.setAttribute("aria-pressed", String(opened.has(name)));
    panels.dataset.open = [...opened.keys()].join(" ");
  };
  const link = (exists, kind, name) => (exists ? make("a", { href: `/api/${kind}/${encodeURIComponent(name)}`, text: kind, target: "_blank", rel: "noopener", "aria-label": `${kind} of ${name}` }) : "");
  const chart = (shown) => {
    const lines = Object.fromEntries(all.filter((run) => selected.has(run.name) && run.curves[shown]).map((run) => [run.name, run.curves[shown]]));
    const order = Object.fromEntries([...selected].map((run, number) => [run, number]));
    const name = displayName(shown);
    const figure = Object.keys(lines).length ? curves({ title: name, x: "step", y: name, lines, points: shown.startsWith(DEV), order }) : make("p", { text: `None of the selected runs has the metric ${name}.` });
    return [figure, Object.keys(lines).length];
  };
  const draw = () => {
    if (!metric) return plot.replaceChildren(make("p", { text: "No run of this folder has metrics yet." }));
    const [figure, count] = chart(metric);
    const main = metric === "loss" && all.find((run) => selected.has(run.name) && run.last_scores.length);
    const beside = main ? [chart(DEV + main.last_scores[0].name)[0]] : []; // the loss has the scores of the evaluations beside it
    plot.replaceChildren(figure, ...beside);
    plot.dataset.ready = `${metric} ${count}`;
  };
  const metricSelect = make("select", { "aria-label": "metric", onchange: (event) => ((metric = event.target.value), draw()) }, ...metrics.map((name) => make("option", { text: displayName(name), value: name })));
  const rows = all.map((run) => {
    const box = make("input", { type: "checkbox", checked: selected.has(run.name), "aria-label": `show ${run.name}`, onchange: (event) => (event.target.checked ? selected.add(run.name) : selected.delete(run.name), draw()) });
    const button = run.has_report ? make("button", { type: "button", text: "predictions", "aria-pressed": "false", "aria-label": `predictions of ${run.name}`, onclick: (event) => toggle(run.name, event.currentTarget) }) : "";
    const loss = run.last_loss === null ? "" : run.last_loss.value === null ? "not finite" : run.last_loss.value.toFixed(4);
    const last = run.last_scores[0];
    const evaluation = last ? `${last.name} ${Number(last.value.toPrecision(4))} at step ${last.step}` : "";
    const text = (content) => make("td", { class: "words", text: content });
    const number = (content) => make("td", { text: content });
    const pages = make("td", { class: "words" }, link(run.has_report, "report", run.name), " ", link(run.has_card, "card", run.name), " ", button);
    return make("tr", {}, make("td", {}, box), make("th", { class: "words", scope: "row", text: run.name }), text(run.score), text(evaluation), number(loss), text(run.state), number(run.minutes === null ? "" : run.minutes.toFixed(1)), number(run.size), text([run.task, run.model].filter(Boolean).join(", ")), pages);
  });
  const column = (title, kind) => make("th", { scope: "col", class: kind, text: title });
  const titles = [column("run", "words"), column("score (95 % interval)", "words"), column("last evaluation", "words"), column("last loss", ""), column("state", "words"), column("minutes", ""), column("parameters, size", ""), column("task, model", "words")];
  const head = make("tr", {}, make("td", {}), ...titles, make("td", {}));
  repainted(plot, draw);
  draw();
  return make("section", { "aria-label": "Runs" }, make("div", { class: "row" }, make("label", {}, "metric", metricSelect)), plot, make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "runs and their scores" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))), panels);
}
