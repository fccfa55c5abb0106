// The runs of a folder: their curves in one picture, their reports, their cards, and what they answered.

import { curves } from "/page/chart.js";
import { ask, busy, make, repainted } from "/page/dom.js";

const DEV = "dev "; // how the names of scores on held-out data begin

function called(kind) {
  return kind.startsWith(DEV) ? `held-out ${kind.slice(DEV.length)}` : kind;
}

async function answers(name) {
  const found = await busy(`reading the answers of ${name}`, () => ask(`/api/samples/${encodeURIComponent(name)}`));
  if (!found) return undefined;
  const title = make("h2", {}, "Worst answers of ", make("bdi", { text: name }));
  if (!found.rows.length) return make("section", {}, title, make("p", { text: "Its report shows none: nothing it was asked at the end was wrong, or its task has no such table." }));
  const cell = (tag, given) => (text) => make(tag, given, make("bdi", { text }));
  const head = make("thead", {}, make("tr", {}, ...found.headers.map(cell("th", { scope: "col" }))));
  const rows = found.rows.map((row) => make("tr", {}, ...row.map(cell("td", {}))));
  return make("section", {}, title, make("div", { class: "stage", tabindex: "0", role: "group", "aria-label": `worst answers of ${name}` }, make("table", { class: "texts" }, head, make("tbody", {}, ...rows))));
}

export async function runs() {
  const all = await busy("reading the runs", () => ask("/api/runs"));
  if (!all?.length) return make("p", { text: "There are no runs here. saccade serve RUN --runs DIR names the folder where they are." });
  const kinds = [...new Set(all.flatMap((run) => Object.keys(run.curves)))].sort((a, b) => (b === "loss") - (a === "loss") || b.startsWith(DEV) - a.startsWith(DEV));
  const shown = new Set(all.slice(0, 4).map((run) => run.name));
  let kind = kinds[0];
  const stage = make("div", { class: "parts" });
  const samples = make("div", { class: "panels" });
  const opened = new Map();
  const toggle = async (name, button) => {
    if (opened.has(name)) {
      opened.get(name).remove();
      opened.delete(name);
    } else {
      const found = await answers(name);
      if (!found || opened.has(name)) return;
      opened.set(name, found);
      samples.append(found);
    }
    button.setAttribute("aria-pressed", String(opened.has(name)));
    samples.dataset.open = [...opened.keys()].join(" ");
  };
  const link = (there, kind, name) => (there ? make("a", { href: `/api/${kind}/${encodeURIComponent(name)}`, text: kind, target: "_blank", rel: "noopener", "aria-label": `${kind} of ${name}` }) : "");
  const draw = () => {
    const lines = Object.fromEntries(all.filter((run) => shown.has(run.name) && run.curves[kind]).map((run) => [run.name, run.curves[kind]]));
    stage.replaceChildren(Object.keys(lines).length ? curves({ title: called(kind), x: "step", y: called(kind), lines, points: kind.startsWith(DEV) }) : make("p", { text: `None of the chosen runs has ${called(kind)}.` }));
    stage.dataset.ready = `${kind} ${Object.keys(lines).length}`;
  };
  const pick = make("select", { "aria-label": "what is drawn", onchange: (event) => ((kind = event.target.value), draw()) }, ...kinds.map((name) => make("option", { text: called(name), value: name })));
  const rows = all.map((run) => {
    const box = make("input", { type: "checkbox", checked: shown.has(run.name), "aria-label": `show ${run.name}`, onchange: (event) => (event.target.checked ? shown.add(run.name) : shown.delete(run.name), draw()) });
    const wrong = run.has_report ? make("button", { type: "button", text: "answers", "aria-pressed": "false", "aria-label": `answers of ${run.name}`, onclick: (event) => toggle(run.name, event.currentTarget) }) : "";
    const loss = run.last_loss === null ? "" : run.last_loss.value === null ? "no number" : run.last_loss.value.toFixed(4);
    const score = run.last_scores[0];
    const held = score ? `${score.name} ${Number(score.value.toPrecision(4))} at step ${score.step}` : "";
    return make("tr", {}, make("td", {}, box), make("th", { scope: "row", text: run.name }), make("td", { text: run.task ?? "" }), make("td", { text: run.model ?? "" }), make("td", { text: run.steps === null ? "" : String(run.steps) }), make("td", { text: loss }), make("td", { class: "held", text: held }), make("td", {}, link(run.has_report, "report", run.name)), make("td", {}, link(run.has_card, "card", run.name)), make("td", {}, wrong));
  });
  const head = make("tr", {}, ...["", "run", "task", "model", "steps", "last loss", "held-out, last", "", "", ""].map((text) => (text ? make("th", { scope: "col", text }) : make("td", {}))));
  repainted(stage, draw);
  draw();
  return make("section", { "aria-label": "runs" }, make("div", { class: "row" }, make("label", {}, "draw", pick)), stage, make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "runs and their scores" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))), samples);
}
