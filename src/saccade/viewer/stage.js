// The picture of a look and the controls above it. Both change together: until a new picture is there the old one is hidden, and
// where it cannot be drawn the reason stands in its place.

import { headSelect, layerSelect, measureSelect, ONE_HEAD, scaleSelect, specialBox, TOKENS, viewButtons, viewsOf } from "/page/controls.js";
import { extent } from "/page/color.js";
import { heat } from "/page/heatmap.js";
import { lines } from "/page/attention_lines.js";
import { many } from "/page/all_heads.js";
import { numbers } from "/page/numbers.js";
import { picture } from "/page/image.js";
import { notesOf, rangeOf, withoutSpecial } from "/page/scale.js";
import { words } from "/page/alignment_list.js";
import { busy, make, refill, shown } from "/page/dom.js";

export class Stage {
  // `panel` knows the model that is asked, and which of its heads are off
  constructor(panel) {
    this.panel = panel;
    this.view = "lines";
    this.measure = "weight";
    this.scale = "fixed";
    this.hide = false;
    this.map = this.head = this.drawing = 0;
    this.pinned = this.source = null;
    this.judged = new Map();
    this.controls = make("div", { class: "row" });
    this.evidence = make("p", { class: "evidence", "aria-live": "polite" });
    this.node = make("div", { class: "stage", tabIndex: 0, role: "group", "aria-label": "where it looked", hidden: true });
    this.readout = make("p", { class: "readout" });
  }

  get nodes() {
    return [this.controls, this.evidence, this.node, this.readout];
  }

  clear() {
    this.drawing++;
    this.source = null;
    this.node.hidden = true;
    for (const one of this.nodes) one.replaceChildren();
  }

  show(source) {
    const { found } = source;
    if (this.source?.found.maps.length !== found.maps.length) [this.map, this.head, this.pinned] = [found.most_informative, 0, null];
    this.source = source;
    this.judged = new Map();
    return this.draw();
  }

  names(map) {
    const { axes, maps } = this.source.found;
    return [axes[maps[map].query_axis], axes[maps[map].key_axis]];
  }

  measureOf(one) {
    return one.has_value_norms ? this.measure : "weight";
  }

  // another layer, head, view, measure or scale
  set(changes) {
    Object.assign(this, changes);
    return this.draw();
  }

  async draw() {
    const mine = ++this.drawing;
    const { source } = this;
    const one = source.found.maps[this.map];
    this.node.hidden = false;
    if (!one) return refill(this.node, make("p", { text: "There is nothing to look at in this model: it has no attention, gates or channels." }));
    this.node.classList.add("stale");
    if (!viewsOf(source.found, one).includes(this.view)) this.view = "lines";
    this.head = Math.min(this.head, one.heads.length - 1);
    this.readout.textContent = "";
    this.evidence.textContent = this.judged.get(`${this.map}.${this.head}`) ?? "";
    this.choose(one, [], null);
    let failed = null;
    const drawn = await busy("drawing", async () => {
      try {
        return await this.drawn(one);
      } catch (error) {
        throw (failed = error);
      }
    });
    if (mine !== this.drawing) return;
    if (drawn) this.choose(one, [], drawn.range);
    refill(this.node, ...(drawn ? drawn.nodes : [this.failure(failed)]));
    this.node.classList.remove("stale");
    this.panel.node.dataset.ready = `${source.found.look_id}.${this.map}.${this.head}.${this.view}.${this.measure}.${this.scale}.${this.hide}`;
    if (drawn?.note) this.name(mine, one, drawn);
  }

  // what each head does takes longer to find out than to draw one of them, so it is said when the picture is there
  async name(mine, one, { range, note }) {
    const heads = await this.source.heads(this.map).catch(() => null);
    if (!heads || mine !== this.drawing) return;
    this.choose(one, heads, range);
    note(heads[this.head]);
  }

  failure(error) {
    return make("div", { class: "row" }, make("p", { class: "wrong", text: `This cannot be shown: ${error.message}` }), make("button", { type: "button", text: "Try again", onclick: () => this.draw() }));
  }

  // everything that belongs to the picture of one map: its title, the picture with its scale, and what has to be said about it
  async drawn(one) {
    const { source, map, head, view } = this;
    const [query, key] = this.names(map);
    if (view === "many") {
      const [node, fixed] = await many(this);
      return { nodes: [node], range: { fixed } };
    }
    if (view === "words") return { nodes: [words(source.found.alignment)], range: null };
    const measure = this.measureOf(one);
    const all = await source.weights(map, measure);
    const size = query.tokens.length * key.tokens.length;
    const hide = this.hide && TOKENS.includes(view);
    const left = withoutSpecial(all.subarray(head * size, (head + 1) * size), query, key, hide);
    const range = rangeOf(one, measure, this.scale, extent(all), left.values);
    const given = {
      values: left.values,
      range,
      rows: left.rows.map((i) => query.tokens[i]),
      columns: left.columns.map((j) => key.tokens[j]),
      told: (row, column) => this.tell(row, column, left.values, given),
      pinned: left.rows.includes(this.pinned) ? left.rows.indexOf(this.pinned) : null,
      chosen: (row) => this.set({ pinned: left.rows[row] === this.pinned ? null : left.rows[row] }),
      label: `${one.title}, ${one.head_names[head]}: ${left.rows.length} rows and ${left.columns.length} columns`,
    };
    const above = (node) => (node.prepend(node.querySelector(".key")), node); // a long map would hide its scale below
    const views = { lines, heat: (its) => above(heat(its)), numbers, picture: (its) => picture({ ...its, grid: key.grid, address: source.found.image, pin: (row) => (this.pinned = row) }) };
    const notes = make("ul", { class: "notes" });
    const note = (known) => notes.replaceChildren(...notesOf(source.found, one, { measure, hide, view: TOKENS.includes(view), head: known }).map((text) => make("li", { text })));
    note(null);
    const title = make("p", { class: "title", text: `${one.title}, ${one.head_names[head]}${measure === "value_norm" ? ": weight × value norm" : ""}` });
    return { nodes: [title, notes, await views[view](given)], range, note };
  }

  choose(one, heads, range) {
    const { found } = this.source;
    const single = ONE_HEAD.includes(this.view);
    const axes = this.names(this.map);
    const step = (by, text) => make("button", { type: "button", text, onclick: () => this.step(by) });
    const matters = single && this.panel.about.has_answer && ["self", "cross"].includes(one.kind) && make("button", { type: "button", text: "Does it matter?", title: "Whether the answer depends on what this head points at", onclick: () => this.judge() });
    const attention = ["self", "cross", "picture"].includes(one.kind);
    const controls = [
      single && layerSelect(this, found.maps),
      single && headSelect(this, one, heads),
      ...viewButtons(this, viewsOf(found, one)),
      this.view !== "words" && attention && measureSelect(this, one),
      ["lines", "heat", "many"].includes(this.view) && scaleSelect(this, range ?? { fixed: "0 to 1" }),
      TOKENS.includes(this.view) && axes.some((axis) => axis.special_tokens.length) && specialBox(this),
      single && this.view !== "picture" && step(-1, "◀ token"),
      single && this.view !== "picture" && step(1, "token ▶"),
      matters,
      make("button", { type: "button", text: "save as one file", onclick: () => this.save() }),
    ];
    refill(this.controls, ...controls.filter(Boolean));
  }

  async save() {
    const page = await busy("saving", () => this.source.page());
    if (!page) return;
    const link = make("a", { href: URL.createObjectURL(new Blob([page], { type: "text/html" })), download: "looks.html" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  // what one token looked at, then the next: a text as it was written; tokens that are hidden are passed over
  step(by) {
    const [{ tokens, special_tokens: special }] = this.names(this.map);
    const hidden = (i) => this.hide && special.includes(i) && special.length < tokens.length;
    let next = this.pinned === null ? (by > 0 ? 0 : tokens.length - 1) : (this.pinned + by + tokens.length) % tokens.length;
    while (hidden(next)) next = (next + by + tokens.length) % tokens.length;
    return this.set({ pinned: next });
  }

  // the head that is shown, held against gradients and against the answer without the tokens it points at
  async judge() {
    const { source, map, head } = this;
    const said = await busy("asking gradients, and the answer without some tokens", () => source.evidence(map, source.found.maps[map].heads[head]));
    if (!said || source !== this.source) return;
    const number = (value) => (value === null ? "–" : value.toFixed(2));
    this.judged.set(`${map}.${head}`, `${said.title}: gradients ${number(said.gradient_correlation)}, deletion ${number(said.deletion_score)}; ${said.label}`);
    return this.draw();
  }

  tell(row, column, values, { rows, columns }) {
    this.readout.textContent = row === null ? "" : `${shown(rows[row])} → ${shown(columns[column])}: ${values[row * columns.length + column].toFixed(4)}`;
  }
}
