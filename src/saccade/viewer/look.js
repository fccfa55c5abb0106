// The view that looks: what was typed, what was answered, and where every head looked for it; two side by side to compare.

import { heat } from "/page/heat.js";
import { fromHalf } from "/page/half.js";
import { lines } from "/page/lines.js";
import { many } from "/page/many.js";
import { numbers } from "/page/numbers.js";
import { picture } from "/page/picture.js";
import { words } from "/page/words.js";
import { ask, busy, make, refill, repainted, shown } from "/page/tell.js";

const VIEWS = { lines: "Lines", heat: "Heat map", many: "All heads", numbers: "Numbers", words: "Word for word", picture: "Picture" };

let kept = null; // what was looked at is still there when somebody comes back from a lesson

export function look(about) {
  return (kept ??= panelsOf(about));
}

function panelsOf(about) {
  const panels = make("div", { class: "panels" });
  const more = make("button", { type: "button", text: "Compare with another", onclick: () => add() });
  const add = () => {
    const panel = new Panel(about, panels.children.length > 0 ? () => remove(panel) : null);
    panels.append(panel.node);
    more.hidden = panels.children.length > 1;
    return panel;
  };
  const remove = (panel) => {
    panel.node.remove();
    more.hidden = false;
  };
  const first = add();
  const given = new URLSearchParams(location.search);
  if (given.get("text")) first.start(given.get("text"), given.get("second"));
  return make("section", { "aria-label": "look" }, panels, make("div", { class: "row" }, more));
}

class Panel {
  constructor(about, close) {
    this.models = about.models;
    this.view = "lines";
    this.off = new Set();
    this.map = this.head = 0;
    this.pinned = null;
    this.found = this.whole = null;
    this.latest = 0; // the number of the last question: answers to older ones come too late
    const names = Object.keys(this.models);
    this.model = make("select", { "aria-label": "model", onchange: () => this.other() }, ...names.map((name) => make("option", { text: name, value: name })));
    this.text = make("textarea", { "aria-label": "text", dir: "auto", placeholder: "Type a text, and press Enter" });
    this.second = make("textarea", { "aria-label": "second text", dir: "auto" });
    this.hint = make("summary", {});
    this.file = make("input", { type: "file", accept: "image/*", "aria-label": "picture" });
    this.words = make("input", { type: "checkbox" });
    this.first = make("input", { type: "number", min: "0", placeholder: "all", "aria-label": "first row of a window" });
    this.length = make("input", { type: "number", min: "1", max: "512", value: "24", "aria-label": "tokens to write" });
    this.beams = make("input", { type: "number", min: "1", max: "16", value: "1", "aria-label": "beams" });
    this.writing = make("span", { class: "row" }, make("label", {}, "tokens", this.length), make("label", {}, "beams", this.beams));
    this.answer = make("p", { class: "answer" });
    this.controls = make("div", { class: "row" });
    this.stage = make("div", { class: "stage", tabIndex: 0, role: "group", "aria-label": "where it looked" });
    this.readout = make("p", { class: "readout" });
    this.evidence = make("p", { class: "evidence", "aria-live": "polite" });
    this.extra = make("details", {}, this.hint, this.second);
    const form = make(
      "form",
      { onsubmit: (event) => (event.preventDefault(), this.run()) },
      make("div", { class: "row" }, names.length > 1 ? make("label", {}, "model", this.model) : make("strong", { text: names[0] ?? "no model" }), close && make("button", { type: "button", text: "Close", onclick: close })),
      this.text,
      this.file,
      this.extra,
      make("div", { class: "row" }, make("button", { class: "first", text: "Look" }), make("label", {}, this.words, "whole words"), make("label", { title: "Of a long text 64 rows as they are, from this one on; all of it is pooled to 256 points a side" }, "rows from", this.first), this.writing),
    );
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.run();
      }
    });
    this.words.addEventListener("change", () => this.found && this.run());
    this.file.addEventListener("change", () => this.file.files.length && this.run());
    this.node = make("article", { class: "panel" }, form, this.answer, this.controls, this.evidence, this.stage, this.readout);
    this.node.addEventListener("dragover", (event) => (event.preventDefault(), this.node.classList.add("over")));
    this.node.addEventListener("dragleave", () => this.node.classList.remove("over"));
    this.node.addEventListener("drop", (event) => this.drop(event));
    this.stage.hidden = true;
    repainted(this.node, () => this.found && this.draw());
    this.fresh();
  }

  get about() {
    return this.models[this.model.value];
  }

  fresh() {
    const { sees, writes, task } = this.about ?? {};
    this.text.hidden = Boolean(sees);
    this.file.hidden = !sees;
    this.writing.hidden = !writes;
    this.hint.textContent = writes ? "What it should write, instead of what it would" : task === "span" ? "The question" : "A second text";
    this.off.clear();
  }

  // another model: what the last one showed goes, and the same question is asked of this one
  other() {
    const again = this.found !== null;
    this.latest++;
    this.fresh();
    this.found = this.whole = null;
    this.stage.hidden = true;
    for (const one of [this.answer, this.controls, this.evidence, this.stage, this.readout]) one.replaceChildren();
    if (again && (this.about.sees ? this.file.files.length : this.text.value)) this.run();
  }

  async drop(event) {
    event.preventDefault();
    this.node.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (!file) return;
    if (this.about.sees) this.file.files = event.dataTransfer.files;
    else this.text.value = (await file.text()).slice(0, 200000);
    this.run();
  }

  start(text, second) {
    this.text.value = text;
    if (second) this.second.value = second;
    this.run();
  }

  async run() {
    const mine = ++this.latest;
    const body = { text: this.text.value, words: this.words.checked };
    if (this.about.writes) Object.assign(body, { length: Number(this.length.value), beams: Number(this.beams.value) });
    if (this.first.value !== "") body.first = Number(this.first.value);
    if (this.second.value) body.second = this.second.value;
    if (this.about.sees) {
      if (!this.file.files.length) return busy("", () => Promise.reject(new Error("Choose a picture first.")));
      body.picture = await base64(this.file.files[0]);
      delete body.text;
    }
    const whole = JSON.stringify(body);
    const path = `/api/look/${encodeURIComponent(this.model.value)}`;
    const off = [...this.off];
    const known = this.whole?.asked === whole ? this.whole.answer : null;
    const [found, plain] = (await busy("looking", async () => {
      const before = off.length && known === null ? (await ask(path, { ...body, off: [] })).answer : known;
      const seen = await ask(path, { ...body, off });
      return [seen, off.length ? before : seen.answer];
    })) ?? [];
    if (!found || mine !== this.latest) return;
    this.whole = { asked: whole, answer: plain };
    const same = this.found && this.found.maps.length === found.maps.length;
    this.found = found;
    this.weights = new Map();
    this.heads = new Map();
    this.judged = new Map();
    if (!same) [this.map, this.head, this.pinned] = [found.telling, 0, null];
    this.said();
    await this.draw();
  }

  // the answer, and what it is with all heads where some that are off change it
  said() {
    const off = this.off.size ? ` (${this.off.size} ${this.off.size === 1 ? "head" : "heads"} off)` : "";
    const changed = this.off.size && this.whole.answer !== this.found.answer;
    this.answer.replaceChildren(
      make("bdi", { text: this.found.answer || this.found.model }),
      make("span", { class: "soft", text: off }),
      changed ? make("span", { class: "before" }, "  with all heads: ", make("bdi", { text: this.whole.answer })) : "",
    );
  }

  async weightsOf(map) {
    if (!this.weights.has(map)) {
      const path = `${encodeURIComponent(this.model.value)}/${this.found.look}/${map}`;
      this.weights.set(map, ask(`/api/look/${path}`).then(fromHalf));
    }
    return this.weights.get(map);
  }

  async headsOf(map) {
    if (!this.heads.has(map)) {
      this.heads.set(map, ask(`/api/heads/${encodeURIComponent(this.model.value)}/${this.found.look}/${map}`));
    }
    return this.heads.get(map);
  }

  names(map) {
    const { query, key } = this.found.maps[map];
    return [this.found.axes[query], this.found.axes[key]];
  }

  async draw() {
    const { maps } = this.found;
    if (!maps.length) return;
    const one = maps[this.map];
    const [query, key] = this.names(this.map);
    const { found, map } = this;
    const all = await busy("fetching the weights", () => this.weightsOf(map));
    if (!all || found !== this.found || map !== this.map) return;
    this.head = Math.min(this.head, one.heads.length - 1);
    const size = query.tokens.length * key.tokens.length;
    const values = all.subarray(this.head * size, (this.head + 1) * size);
    this.choose(one, []);
    this.evidence.textContent = this.judged.get(`${map}.${this.head}`) ?? "";
    const drawing = this.map;
    this.headsOf(drawing).then((heads) => this.map === drawing && this.found?.maps[drawing] === one && this.choose(one, heads), () => {});
    const given = {
      values,
      rows: query.tokens,
      columns: key.tokens,
      told: (row, column) => this.tell(row, column, values),
      pinned: this.pinned,
      chosen: (row) => ((this.pinned = row === this.pinned ? null : row), this.draw()),
      label: `${one.title}, ${one.called[this.head]}: ${query.tokens.length} rows and ${key.tokens.length} columns`,
    };
    const views = { lines, heat, numbers, picture: (its) => picture({ ...its, grid: key.grid, address: this.found.picture, pin: (row) => (this.pinned = row) }), many: () => many(this), words: () => words(this.found.aligned) };
    this.stage.hidden = false;
    const drawn = await views[this.view](given);
    if (found !== this.found) return;
    refill(this.stage, drawn);
    this.node.dataset.ready = `${this.found.look}.${this.map}.${this.head}.${this.view}`;
  }

  choose(one, heads) {
    const titles = this.found.maps.map((map) => map.title);
    const where = make("select", { "aria-label": "layer", onchange: (event) => ((this.map = event.target.selectedIndex), this.draw()) }, ...titles.map((title, i) => make("option", { text: title, selected: i === this.map })));
    const said = (i) => (heads[i]?.named && heads[i].named !== one.called[i] ? `${one.called[i]}: ${heads[i].named}` : one.called[i]);
    const which = make("select", { "aria-label": "head", onchange: (event) => ((this.head = event.target.selectedIndex), this.draw()) }, ...one.called.map((_, i) => make("option", { text: said(i), selected: i === this.head })));
    const [, key] = this.names(this.map);
    const known = Object.entries(VIEWS).filter(([name]) => (name !== "picture" || (this.found.picture && key.grid)) && (name !== "words" || this.found.aligned));
    const views = known.map(([name, text]) => make("button", { type: "button", text, "aria-pressed": String(name === this.view), onclick: () => ((this.view = name), this.draw()) }));
    const step = (by, text) => make("button", { type: "button", text, onclick: () => this.step(by) });
    const matters = this.about.answers && ["self", "across"].includes(one.kind) && make("button", { type: "button", text: "Does it matter?", title: "Whether the answer depends on what this head points at", onclick: () => this.judge() });
    const save = make("a", { href: `/api/page/${encodeURIComponent(this.model.value)}/${this.found.look}`, download: "looks.html", text: "save as one file" });
    refill(this.controls, make("label", {}, "layer", where), make("label", {}, "head", which), ...views, step(-1, "◀ token"), step(1, "token ▶"), matters || null, save);
  }

  // what one token looked at, then the next: a text as it was written
  step(by) {
    const count = this.names(this.map)[0].tokens.length;
    this.pinned = this.pinned === null ? (by > 0 ? 0 : count - 1) : (this.pinned + by + count) % count;
    if (this.view === "many") this.view = "lines";
    return this.draw();
  }

  // the head that is shown, held against gradients and against the answer without the tokens it points at
  async judge() {
    const { found, map, head } = this;
    const path = `${encodeURIComponent(this.model.value)}/${found.look}/${map}/${found.maps[map].heads[head]}`;
    const said = await busy("asking gradients, and the answer without some tokens", () => ask(`/api/agree/${path}`));
    if (!said || found !== this.found) return;
    const number = (value) => (value === null ? "–" : value.toFixed(2));
    this.judged.set(`${map}.${head}`, `${said.title}: gradients ${number(said.gradients)}, deletion ${number(said.deletion)}; ${said.label}`);
    return this.draw();
  }

  tell(row, column, values) {
    if (row === null) {
      this.readout.textContent = "";
      return;
    }
    const [query, key] = this.names(this.map);
    const weight = values[row * key.tokens.length + column];
    this.readout.textContent = `${shown(query.tokens[row])} → ${shown(key.tokens[column])}: ${weight.toFixed(4)}`;
  }

  switchOff(name, on) {
    if (on) this.off.delete(name);
    else this.off.add(name);
    return this.run();
  }
}

function base64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(",")[1] ?? "");
    reader.onerror = () => failed(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
