// The weights as a table of numbers; for long texts the first rows and columns, or the rows around the selected one.

import { make, shown } from "/page/dom.js";

const MAX_CELLS = 40; // rows, and columns

export function numbers({ values, rows, columns, pinned }) {
  const first = Math.max(0, Math.min((pinned ?? 0) - MAX_CELLS / 2, rows.length - MAX_CELLS));
  const visible = rows.slice(first, first + MAX_CELLS);
  const head = make("tr", {}, make("td", {}), ...columns.slice(0, MAX_CELLS).map((name) => make("th", { scope: "col", text: shown(name) })));
  const body = visible.map((name, i) => {
    const cells = columns.slice(0, MAX_CELLS).map((_, j) => make("td", { text: values[(first + i) * columns.length + j].toFixed(3) }));
    return make("tr", {}, make("th", { scope: "row", text: shown(name) }), ...cells);
  });
  const truncated = rows.length > MAX_CELLS || columns.length > MAX_CELLS;
  const note = truncated ? make("p", { class: "soft", text: `${visible.length} of ${rows.length} rows and ${Math.min(MAX_CELLS, columns.length)} of ${columns.length} columns` }) : "";
  return make("div", {}, note, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}
