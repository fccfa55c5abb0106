// The weights as a table, for those who read rather than look; of long texts the beginning, or what surrounds the chosen row.

import { make, shown } from "/page/dom.js";

const MOST = 40; // rows and columns

export function numbers({ values, rows, columns, pinned }) {
  const first = Math.max(0, Math.min((pinned ?? 0) - MOST / 2, rows.length - MOST));
  const some = rows.slice(first, first + MOST);
  const head = make("tr", {}, make("td", {}), ...columns.slice(0, MOST).map((name) => make("th", { scope: "col", text: shown(name) })));
  const body = some.map((name, i) => {
    const cells = columns.slice(0, MOST).map((_, j) => make("td", { text: values[(first + i) * columns.length + j].toFixed(3) }));
    return make("tr", {}, make("th", { scope: "row", text: shown(name) }), ...cells);
  });
  const less = rows.length > MOST || columns.length > MOST;
  const note = less ? make("p", { class: "soft", text: `${some.length} of ${rows.length} rows and ${Math.min(MOST, columns.length)} of ${columns.length} columns` }) : "";
  return make("div", {}, note, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}
