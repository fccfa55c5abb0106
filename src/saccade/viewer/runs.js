// The runs of a folder: their curves in one picture, their scores, and their reports.

import { curves } from "/page/chart.js";
import { ask, busy, make } from "/page/tell.js";

export async function runs() {
  const all = await busy("reading the runs", () => ask("/api/runs"));
  if (!all?.length) return make("p", { text: "There are no runs here. saccade serve RUN --runs DIR names the folder where they are." });
  const kinds = [...new Set(all.flatMap((run) => Object.keys(run.curves)))].sort((a, b) => (b === "loss") - (a === "loss"));
  const shown = new Set(all.slice(0, 4).map((run) => run.name));
  let kind = kinds[0];
  const stage = make("div", { class: "parts" });
  const draw = () => {
    const lines = Object.fromEntries(all.filter((run) => shown.has(run.name) && run.curves[kind]).map((run) => [run.name, run.curves[kind]]));
    stage.replaceChildren(Object.keys(lines).length ? curves({ title: kind, x: "step", y: kind, lines }) : make("p", { text: `None of the chosen runs has ${kind}.` }));
    stage.dataset.ready = `${kind} ${Object.keys(lines).length}`;
  };
  const pick = make("select", { "aria-label": "what is drawn", onchange: (event) => ((kind = event.target.value), draw()) }, ...kinds.map((name) => make("option", { text: name, value: name })));
  const rows = all.map((run) => {
    const box = make("input", { type: "checkbox", checked: shown.has(run.name), "aria-label": `show ${run.name}`, onchange: (event) => (event.target.checked ? shown.add(run.name) : shown.delete(run.name), draw()) });
    const report = run.report ? make("a", { href: `/api/report/${encodeURIComponent(run.name)}`, text: "report", target: "_blank", rel: "noopener" }) : "";
    const last = run.curves.loss?.at(-1);
    return make("tr", {}, make("td", {}, box), make("th", { scope: "row", text: run.name }), make("td", { text: run.task ?? "" }), make("td", { text: run.model ?? "" }), make("td", { text: last ? String(last[0]) : "" }), make("td", { text: last ? last[1].toFixed(4) : "" }), make("td", {}, report));
  });
  const head = make("tr", {}, ...["", "run", "task", "model", "steps", "last loss", ""].map((text) => (text ? make("th", { scope: "col", text }) : make("td", {}))));
  draw();
  return make("section", { "aria-label": "runs" }, make("div", { class: "row" }, make("label", {}, "draw", pick)), stage, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}
