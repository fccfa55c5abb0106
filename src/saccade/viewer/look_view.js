// The view that looks: what was typed, what was answered, and where every head looked for it; two side by side to compare.

import { Source } from "/page/source.js";
import { Stage } from "/page/stage.js";
import { busy, make, repainted } from "/page/dom.js";

const LONGEST = 512; // tokens that the server writes at most

let kept = null; // what was looked at is still there when somebody comes back from a lesson

export function look(about) {
  return (kept ??= panelsOf(about));
}

function panelsOf(about) {
  const missing = Object.entries(about.models).filter(([, one]) => one.unavailable_reason);
  const told = missing.map(([name, one]) => make("p", { class: "soft" }, make("bdi", { text: name }), ` is not offered here: ${one.unavailable_reason}.`));
  if (missing.length && missing.length === Object.keys(about.models).length) return make("section", { "aria-label": "look" }, ...told);
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
  return make("section", { "aria-label": "look" }, panels, make("div", { class: "row" }, more), ...told);
}

class Panel {
  constructor(about, close) {
    this.models = Object.fromEntries(Object.entries(about.models).filter(([, one]) => !one.unavailable_reason));
    this.off = new Set();
    this.whole = null; // what is answered with all heads
    this.stage = new Stage(this);
    this.latest = 0; // the number of the last question: answers to older ones come too late
    const names = Object.keys(this.models);
    this.model = make("select", { "aria-label": "model", onchange: () => this.other() }, ...names.map((name) => make("option", { text: name, value: name })));
    this.text = make("textarea", { "aria-label": "text", dir: "auto", placeholder: "Type a text, and press Enter" });
    this.second = make("textarea", { "aria-label": "second text", dir: "auto" });
    this.hint = make("summary", {});
    this.file = make("input", { type: "file", accept: "image/*", "aria-label": "picture" });
    this.words = make("input", { type: "checkbox" });
    this.first = make("input", { type: "number", min: "0", placeholder: "all", "aria-label": "first row of a window" });
    this.length = make("input", { type: "number", min: "1", max: String(LONGEST), placeholder: "auto", "aria-label": "tokens to write", title: "The most tokens to write; without a number as many as the task allows, or 24 where a text is continued" });
    this.beams = make("input", { type: "number", min: "1", max: "16", value: "1", "aria-label": "beams" });
    this.writing = make("span", { class: "row" }, make("label", {}, "tokens", this.length), make("label", {}, "beams", this.beams));
    this.answer = make("p", { class: "answer" });
    this.cut = make("div", { "aria-live": "polite" });
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
    this.words.addEventListener("change", () => this.source && this.run());
    this.file.addEventListener("change", () => this.file.files.length && this.run());
    this.node = make("article", { class: "panel" }, form, this.answer, this.cut, ...this.stage.nodes);
    this.node.addEventListener("dragover", (event) => (event.preventDefault(), this.node.classList.add("over")));
    this.node.addEventListener("dragleave", () => this.node.classList.remove("over"));
    this.node.addEventListener("drop", (event) => this.drop(event));
    repainted(this.node, () => this.source && this.stage.draw());
    this.fresh();
  }

  // the look that is shown, or null
  get source() {
    return this.stage.source;
  }

  get about() {
    return this.models[this.model.value];
  }

  fresh() {
    const { reads_images: readsImages, generates_text: generatesText, task } = this.about ?? {};
    this.text.hidden = Boolean(readsImages);
    this.file.hidden = !readsImages;
    this.writing.hidden = !generatesText;
    this.hint.textContent = generatesText ? "What it should write, instead of what it would" : task === "span" ? "The question" : "A second text";
    this.off.clear();
  }

  // another model: what the last one showed goes, and the same question is asked of this one
  other() {
    const again = this.source !== null;
    this.fresh();
    this.clear();
    if (again && (this.about.reads_images ? this.file.files.length : this.text.value)) this.run();
  }

  // nothing is shown: what was drawn belongs to another question
  clear() {
    this.latest++;
    this.node.classList.remove("waiting");
    this.whole = null;
    for (const one of [this.answer, this.cut]) one.replaceChildren();
    this.stage.clear();
  }

  async drop(event) {
    event.preventDefault();
    this.node.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (!file) return;
    if (this.about.reads_images) this.file.files = event.dataTransfer.files;
    else this.text.value = await file.text(); // too long a text is refused in words, not cut
    this.run();
  }

  start(text, second) {
    this.text.value = text;
    if (second) this.second.value = second;
    this.run();
  }

  async question() {
    const body = { text: this.text.value, merge_subwords: this.words.checked };
    if (this.about.generates_text) body.beams = Number(this.beams.value);
    if (this.about.generates_text && this.length.value !== "") body.max_new_tokens = Number(this.length.value);
    if (this.first.value !== "") body.first_query = Number(this.first.value);
    if (this.second.value) body.second_text = this.second.value;
    if (this.about.reads_images) {
      if (!this.file.files.length) throw new Error("Choose a picture first.");
      body.image = await base64(this.file.files[0]);
      delete body.text;
    }
    return body;
  }

  async run() {
    const mine = ++this.latest;
    const off = [...this.off];
    this.node.classList.add("waiting");
    const answers = await busy("looking", async () => {
      const body = await this.question();
      const asked = JSON.stringify(body);
      const known = this.whole?.asked === asked ? this.whole : null;
      const whole = known ?? (off.length ? { asked, answer: (await new Source(this.model.value, { ...body, disabled_heads: [] }).look()).found.answer } : null);
      const source = await new Source(this.model.value, { ...body, disabled_heads: off }).look();
      return { source, whole: whole ?? { asked, answer: source.found.answer } };
    });
    if (mine !== this.latest) return;
    this.node.classList.remove("waiting");
    if (!answers) return this.clear();
    this.whole = answers.whole;
    const drawn = this.stage.show(answers.source);
    this.said();
    return drawn;
  }

  // the answer, and what it is with all heads where some that are off change it; what was not read or not written to its end
  said() {
    const { found } = this.source;
    const off = this.off.size ? ` (${this.off.size} ${this.off.size === 1 ? "head" : "heads"} off)` : "";
    const changed = this.off.size && this.whole.answer !== found.answer;
    this.answer.replaceChildren(
      found.answer ? make("bdi", { text: found.answer }) : make("span", { class: "soft", text: `no answer: ${found.no_answer_reason || "none was given"}` }),
      make("span", { class: "soft", text: off }),
      changed ? make("span", { class: "before" }, "  with all heads: ", make("bdi", { text: this.whole.answer })) : "",
    );
    const unread = found.truncated_input_tokens ? make("p", { class: "cut", text: `Not read: the last ${found.truncated_input_tokens.toLocaleString("en")} ${found.truncated_input_tokens === 1 ? "token" : "tokens"}, since the text is longer than the model can read.` }) : null;
    this.cut.replaceChildren(...[unread, this.goOn(found)].filter(Boolean));
  }

  // a text that did not end by itself says so, and can be written further
  goOn({ truncated_at: cut, max_output_tokens: room }) {
    if (cut === null) return null;
    const most = Math.min(LONGEST, room ?? LONGEST);
    const next = Math.min(most, 2 * cut);
    const said = `Cut at ${cut} ${cut === 1 ? "token" : "tokens"}: the text did not end by itself.`;
    if (next <= cut) return make("p", { class: "cut", text: `${said} ${room !== null && cut >= room ? "The model has no room for more." : "More is not written on this page."}` });
    const more = make("button", { type: "button", text: `Go on to ${next}`, onclick: () => ((this.length.value = String(next)), this.run()) });
    return make("p", { class: "cut" }, said, more);
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
