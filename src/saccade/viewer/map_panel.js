// The figure of a result and the controls above it. Both change together: the old figure is hidden until the new one is drawn, and an
// error message is shown in its place if it cannot be drawn.

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

export class MapPanel {
  // `panel` has the model and its disabled heads
  constructor(panel) {
    this.panel = panel;
    this.view = "lines";
    this.measure = "weight";
    this.scale = "fixed";
    this.hide = false;
    this.map = this.head = this.drawing = 0;
    this.pinned = this.source = null;
    this.faithfulness = new Map(); // results of the test by map and head
    this.controls = make("div", { class: "row" });
    this.evidence = make("p", { class: "evidence", "aria-live": "polite" });
    this.node = make("div", { class: "stage", tabIndex: 0, role: "group", "aria-label": "attention", hidden: true });
    this.readout = make("p", { class: "readout" });
  }

  get nodes() {
    return [this.controls, this.evidence, this.node, this.readout];
  }

  clear() {
    this.drawing++;
    this.source = null;
    this.node.hidden = true;
    for (const node of this.nodes) node.replaceChildren();
  }

  show(source) {
    const { result } = source;
    if (this.source?.result.maps.length !== result.maps.length) [this.map, this.head, this.pinned] = [result.most_informative, 0, null];
    this.source = source;
    this.faithfulness = new Map();
    return this.draw();
  }

  // the query axis and the key axis of a map
  axes(map) {
    const { axes, maps } = this.source.result;
    return [axes[maps[map].query_axis], axes[maps[map].key_axis]];
  }

  measureOf(map) {
    return map.has_value_norms ? this.measure : "weight";
  }

  // change the layer, head, view, measure or scale
  set(changes) {
    Object.assign(this, changes);
    return this.draw();
  }

  async draw() {
    const request = ++this.drawing;
    const { source } = this;
    const map = source.result.maps[this.map];
    this.node.hidden = false;
    if (!map) return refill(this.node, make("p", { text: "This model has no attention, gates or channels to show." }));
    this.node.classList.add("stale");
    if (!viewsOf(source.result, map).includes(this.view)) this.view = "lines";
    this.head = Math.min(this.head, map.heads.length - 1);
    this.readout.textContent = "";
    this.evidence.textContent = this.faithfulness.get(`${this.map}.${this.head}`) ?? "";
    this.showControls(map, [], null);
    let failure = null;
    const figure = await busy("Drawing", async () => {
      try {
        return await this.figureOf(map);
      } catch (error) {
        throw (failure = error);
      }
    });
    if (request !== this.drawing) return;
    if (figure) this.showControls(map, [], figure.range);
    refill(this.node, ...(figure ? figure.nodes : [this.errorNode(failure)]));
    this.node.classList.remove("stale");
    this.panel.node.dataset.ready = `${source.result.look_id}.${this.map}.${this.head}.${this.view}.${this.measure}.${this.scale}.${this.hide}`;
    if (figure?.note) this.addHeadLabels(request, map, figure);
  }

  // the statistics of the heads take longer than drawing one of them, so their labels are added after the figure
  async addHeadLabels(request, map, { range, note }) {
    const heads = await this.source.heads(this.map).catch(() => null);
    if (!heads || request !== this.drawing) return;
    this.showControls(map, heads, range);
    note(heads[this.head]);
  }

  errorNode(error) {
    return make("div", { class: "row" }, make("p", { class: "wrong", text: `This cannot be shown: ${error.message}` }), make("button", { type: "button", text: "Try again", onclick: () => this.draw() }));
  }

  // the title, the notes and the drawing of a map, and its scale
  async figureOf(map) {
    const { source, head, view } = this;
    const [query, key] = this.axes(this.map);
    if (view === "many") {
      const [node, fixed] = await many(this);
      return { nodes: [node], range: { fixed } };
    }
    if (view === "words") return { nodes: [words(source.result.alignment)], range: null };
    const measure = this.measureOf(map);
    const weights = await source.weights(this.map, measure);
    const size = query.tokens.length * key.tokens.length;
    const hide = this.hide && TOKENS.includes(view);
    const visible = withoutSpecial(weights.subarray(head * size, (head + 1) * size), query, key, hide);
    const range = rangeOf(map, measure, this.scale, extent(weights), visible.values);
    const options = {
      values: visible.values,
      range,
      rows: visible.rows.map((i) => query.tokens[i]),
      columns: visible.columns.map((j) => key.tokens[j]),
      onHover: (row, column) => this.showValue(row, column, options),
      pinned: visible.rows.includes(this.pinned) ? visible.rows.indexOf(this.pinned) : null,
      onSelect: (row) => this.set({ pinned: visible.rows[row] === this.pinned ? null : visible.rows[row] }),
      label: `${map.title}, ${map.head_names[head]}: ${visible.rows.length} rows and ${visible.columns.length} columns`,
    };
    const keyAbove = (node) => (node.prepend(node.querySelector(".key")), node); // below a long map it would be out of sight
    const imageOptions = { quantity: measure === "value_norm" ? "weight × value norm" : "attention weight", grid: key.grid, url: source.result.image, pin: (row) => (this.pinned = row) };
    const views = { lines, heat: () => keyAbove(heat(options)), numbers, picture: () => picture({ ...options, ...imageOptions }) };
    const notes = make("ul", { class: "notes" });
    const note = (stats) => notes.replaceChildren(...notesOf(source.result, map, { measure, hide, view: TOKENS.includes(view), head: stats }).map((text) => make("li", { text })));
    note(null);
    const title = make("p", { class: "title", text: `${map.title}, ${map.head_names[head]}${measure === "value_norm" ? ": weight × value norm" : ""}` });
    return { nodes: [title, notes, await views[view](options)], range, note };
  }

  showControls(map, heads, range) {
    const { result } = this.source;
    const single = ONE_HEAD.includes(this.view);
    const axes = this.axes(this.map);
    const step = (by, text) => make("button", { type: "button", text, onclick: () => this.step(by) });
    const test = single && this.panel.about.has_answer && ["self", "cross"].includes(map.kind) && make("button", { type: "button", text: "Test faithfulness", title: "Does the prediction depend on the tokens that this head attends to?", onclick: () => this.testFaithfulness() });
    const attention = ["self", "cross", "image"].includes(map.kind);
    const controls = [
      single && layerSelect(this, result.maps),
      single && headSelect(this, map, heads),
      ...viewButtons(this, viewsOf(result, map)),
      this.view !== "words" && attention && measureSelect(this, map),
      ["lines", "heat", "many"].includes(this.view) && scaleSelect(this, range ?? { fixed: "0 to 1" }),
      TOKENS.includes(this.view) && axes.some((axis) => axis.special_tokens.length) && specialBox(this),
      single && this.view !== "picture" && step(-1, "◀ Previous token"),
      single && this.view !== "picture" && step(1, "Next token ▶"),
      test,
      make("button", { type: "button", text: "Save all maps", onclick: () => this.save() }),
    ];
    refill(this.controls, ...controls.filter(Boolean));
  }

  async save() {
    const page = await busy("Saving", () => this.source.page());
    if (!page) return;
    const link = make("a", { href: URL.createObjectURL(new Blob([page], { type: "text/html" })), download: "looks.html" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  // select the next or the previous query token, without hidden tokens
  step(by) {
    const [{ tokens, special_tokens: special }] = this.axes(this.map);
    const hidden = (i) => this.hide && special.includes(i) && special.length < tokens.length;
    let next = this.pinned === null ? (by > 0 ? 0 : tokens.length - 1) : (this.pinned + by + tokens.length) % tokens.length;
    while (hidden(next)) next = (next + by + tokens.length) % tokens.length;
    return this.set({ pinned: next });
  }

  // test the faithfulness of the selected head with gradients, and by deleting the tokens that it attends to
  async testFaithfulness() {
    const { source, map, head } = this;
    const evidence = await busy("Testing faithfulness with gradients and token deletion", () => source.evidence(map, source.result.maps[map].heads[head]));
    if (!evidence || source !== this.source) return;
    const number = (value) => (value === null ? "–" : value.toFixed(2));
    this.faithfulness.set(`${map}.${head}`, `${evidence.title}: gradients ${number(evidence.gradient_correlation)}, deletion ${number(evidence.deletion_score)}; ${evidence.label}`);
    return this.draw();
  }

  showValue(row, column, { values, rows, columns }) {
    this.readout.textContent = row === null ? "" : `${shown(rows[row])} → ${shown(columns[column])}: ${values[row * columns.length + column].toFixed(4)}`;
  }
}
