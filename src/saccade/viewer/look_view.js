// The view Look: an input, the prediction of a model, and the attention of every head; two panels side by side to compare.

import { LookClient } from "/page/look_client.js";
import { MapPanel } from "/page/map_panel.js";
import { busy, make, repainted } from "/page/dom.js";

const MAX_NEW_TOKENS = 512; // the limit of the server

let section = null; // kept while another view is shown

export function look(about) {
  return (section ??= panelsOf(about));
}

function panelsOf(about) {
  const unavailable = Object.entries(about.models).filter(([, model]) => model.unavailable_reason);
  const notes = unavailable.map(([name, model]) => make("p", { class: "soft" }, make("bdi", { text: name }), ` is not available here: ${model.unavailable_reason}.`));
  if (unavailable.length && unavailable.length === Object.keys(about.models).length) return make("section", { "aria-label": "Look" }, ...notes);
  const panels = make("div", { class: "panels" });
  const compare = make("button", { type: "button", text: "Add a comparison", onclick: () => add() });
  const add = () => {
    const panel = new Panel(about, panels.children.length > 0 ? () => remove(panel) : null);
    panels.append(panel.node);
    compare.hidden = panels.children.length > 1;
    return panel;
  };
  const remove = (panel) => {
    panel.node.remove();
    compare.hidden = false;
  };
  const first = add();
  const query = new URLSearchParams(location.search);
  if (query.get("text")) first.start(query.get("text"), query.get("second"));
  return make("section", { "aria-label": "Look" }, panels, make("div", { class: "row" }, compare), ...notes);
}

class Panel {
  constructor(about, onClose) {
    this.models = Object.fromEntries(Object.entries(about.models).filter(([, model]) => !model.unavailable_reason));
    this.disabled = new Set(); // names of ablated heads
    this.baseline = null; // the prediction with all heads
    this.mapPanel = new MapPanel(this);
    this.latest = 0; // the number of the last request; responses to earlier ones are ignored
    const names = Object.keys(this.models);
    this.model = make("select", { "aria-label": "model", onchange: () => this.changeModel() }, ...names.map((name) => make("option", { text: name, value: name })));
    this.text = make("textarea", { "aria-label": "text", dir: "auto", placeholder: "Type a text and press Enter" });
    this.second = make("textarea", { "aria-label": "second text", dir: "auto" });
    this.hint = make("summary", {});
    this.file = make("input", { type: "file", accept: "image/*", "aria-label": "image" });
    this.words = make("input", { type: "checkbox" });
    this.first = make("input", { type: "number", min: "0", placeholder: "all", "aria-label": "first row" });
    this.length = make("input", { type: "number", min: "1", max: String(MAX_NEW_TOKENS), placeholder: "auto", "aria-label": "max new tokens", title: "Maximum number of tokens to generate; auto: as many as the task allows, or 24 to continue a text" });
    this.beams = make("input", { type: "number", min: "1", max: "16", value: "1", "aria-label": "beams" });
    this.generation = make("span", { class: "row" }, make("label", {}, "max new tokens", this.length), make("label", {}, "beams", this.beams));
    this.answer = make("p", { class: "answer" });
    this.cut = make("div", { "aria-live": "polite" });
    this.extra = make("details", {}, this.hint, this.second);
    const form = make(
      "form",
      { onsubmit: (event) => (event.preventDefault(), this.run()) },
      make("div", { class: "row" }, names.length > 1 ? make("label", {}, "model", this.model) : make("strong", { text: names[0] ?? "no model" }), onClose && make("button", { type: "button", text: "Close", onclick: onClose })),
      this.text,
      this.file,
      this.extra,
      make("div", { class: "row" }, make("button", { class: "first", text: "Look" }), make("label", { title: "Merge the subword tokens of each word" }, this.words, "whole words"), make("label", { title: "For long texts: show 64 rows without pooling, from this row on; otherwise the map is pooled to at most 256 × 256 points" }, "first row", this.first), this.generation),
    );
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.run();
      }
    });
    this.words.addEventListener("change", () => this.source && this.run());
    this.file.addEventListener("change", () => this.file.files.length && this.run());
    this.node = make("article", { class: "panel" }, form, this.answer, this.cut, ...this.mapPanel.nodes);
    this.node.addEventListener("dragover", (event) => (event.preventDefault(), this.node.classList.add("over")));
    this.node.addEventListener("dragleave", () => this.node.classList.remove("over"));
    this.node.addEventListener("drop", (event) => this.drop(event));
    repainted(this.node, () => this.source && this.mapPanel.draw());
    this.adaptForm();
  }

  // the result that is shown, or null
  get source() {
    return this.mapPanel.source;
  }

  get about() {
    return this.models[this.model.value];
  }

  // show the inputs that the model takes
  adaptForm() {
    const { reads_images: readsImages, generates_text: generatesText, task } = this.about ?? {};
    this.text.hidden = Boolean(readsImages);
    this.file.hidden = !readsImages;
    this.generation.hidden = !generatesText;
    this.hint.textContent = generatesText ? "Analyze this output instead of the generated one" : task === "span" ? "Question" : "Second text";
    this.disabled.clear();
  }

  // clear the result of the previous model, and run the new one on the same input
  changeModel() {
    const again = this.source !== null;
    this.adaptForm();
    this.clear();
    if (again && (this.about.reads_images ? this.file.files.length : this.text.value)) this.run();
  }

  // remove the result, and ignore responses to earlier requests
  clear() {
    this.latest++;
    this.node.classList.remove("waiting");
    this.baseline = null;
    for (const node of [this.answer, this.cut]) node.replaceChildren();
    this.mapPanel.clear();
  }

  async drop(event) {
    event.preventDefault();
    this.node.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (!file) return;
    if (this.about.reads_images) this.file.files = event.dataTransfer.files;
    else this.text.value = await file.text(); // the server rejects a text that is too long
    this.run();
  }

  start(text, second) {
    this.text.value = text;
    if (second) this.second.value = second;
    this.run();
  }

  async requestBody() {
    const body = { text: this.text.value, merge_subwords: this.words.checked };
    if (this.about.generates_text) body.beams = Number(this.beams.value);
    if (this.about.generates_text && this.length.value !== "") body.max_new_tokens = Number(this.length.value);
    if (this.first.value !== "") body.first_query = Number(this.first.value);
    if (this.second.value) body.second_text = this.second.value;
    if (this.about.reads_images) {
      if (!this.file.files.length) throw new Error("Choose an image first.");
      body.image = await base64(this.file.files[0]);
      delete body.text;
    }
    return body;
  }

  async run() {
    const request = ++this.latest;
    const disabledHeads = [...this.disabled];
    this.node.classList.add("waiting");
    const response = await busy("Computing attention", async () => {
      const body = await this.requestBody();
      const key = JSON.stringify(body);
      const known = this.baseline?.key === key ? this.baseline : null;
      const baseline = known ?? (disabledHeads.length ? { key, answer: (await new LookClient(this.model.value, { ...body, disabled_heads: [] }).look()).result.answer } : null);
      const source = await new LookClient(this.model.value, { ...body, disabled_heads: disabledHeads }).look();
      return { source, baseline: baseline ?? { key, answer: source.result.answer } };
    });
    if (request !== this.latest) return;
    this.node.classList.remove("waiting");
    if (!response) return this.clear();
    this.baseline = response.baseline;
    const drawn = this.mapPanel.show(response.source);
    this.showAnswer();
    return drawn;
  }

  // the prediction, the one with all heads if ablation changes it, and notes about truncated input or output
  showAnswer() {
    const { result } = this.source;
    const count = this.disabled.size;
    const changed = count && this.baseline.answer !== result.answer;
    this.answer.replaceChildren(
      result.answer ? make("bdi", { text: result.answer }) : make("span", { class: "soft", text: `no prediction: ${result.no_answer_reason || "the output is empty"}` }),
      make("span", { class: "soft", text: count ? ` (${count} ${count === 1 ? "head" : "heads"} off)` : "" }),
      changed ? make("span", { class: "before" }, "  with all heads: ", make("bdi", { text: this.baseline.answer })) : "",
    );
    const unread = result.truncated_input_tokens;
    const note = unread ? make("p", { class: "cut", text: `Input truncated: the last ${unread.toLocaleString("en")} ${unread === 1 ? "token" : "tokens"} were not read, because the text is longer than the maximum length of the model.` }) : null;
    this.cut.replaceChildren(...[note, this.truncationNote(result)].filter(Boolean));
  }

  // generated text that was cut off, with a button to generate more
  truncationNote({ truncated_at: length, max_output_tokens: limit }) {
    if (length === null) return null;
    const next = Math.min(MAX_NEW_TOKENS, limit ?? MAX_NEW_TOKENS, 2 * length);
    const text = `Cut off after ${length} ${length === 1 ? "token" : "tokens"}, before the end of the text.`;
    if (next <= length) return make("p", { class: "cut", text: `${text} ${limit !== null && length >= limit ? "The model has reached its maximum length." : "This page generates no more."}` });
    const more = make("button", { type: "button", text: `Continue to ${next} tokens`, onclick: () => ((this.length.value = String(next)), this.run()) });
    return make("p", { class: "cut" }, text, more);
  }

  setEnabled(name, enabled) {
    if (enabled) this.disabled.delete(name);
    else this.disabled.add(name);
    return this.run();
  }
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(",")[1] ?? "");
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
