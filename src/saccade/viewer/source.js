// One look of a model, and what the server tells about it. A look that the server does not keep any more is asked for again, so
// that what is drawn is always the look whose answer is shown.

import { fromHalf } from "/page/float16.js";
import { ask } from "/page/dom.js";

const GONE = 410;

export class Source {
  constructor(model, body) {
    this.model = model;
    this.body = body;
    this.answers = new Map();
  }

  async look() {
    this.found = await ask(`/api/look/${encodeURIComponent(this.model)}`, this.body);
    return this;
  }

  // all heads of a map, (heads, queries, keys): the weights, or with the measure "value_norm" each times the norm of its value
  weights(map, measure = "weight") {
    return this.once(`weights ${map} ${measure}`, async () => fromHalf(await this.get("look", `/${map}?measure=${measure}`)));
  }

  heads(map) {
    return this.once(`heads ${map}`, () => this.get("heads", `/${map}`));
  }

  evidence(map, head) {
    return this.once(`evidence ${map} ${head}`, () => this.get("faithfulness", `/${map}/${head}`));
  }

  page() {
    return this.get("page", "");
  }

  // what was answered is kept; what failed is asked again the next time
  once(name, work) {
    if (!this.answers.has(name)) {
      const answer = work();
      this.answers.set(name, answer);
      answer.catch(() => this.answers.delete(name));
    }
    return this.answers.get(name);
  }

  async get(kind, rest) {
    const path = () => `/api/${kind}/${encodeURIComponent(this.model)}/${this.found.look_id}${rest}`;
    try {
      return await ask(path());
    } catch (error) {
      if (error.status !== GONE) throw error;
      await this.renew();
      return ask(path());
    }
  }

  renew() {
    this.renewing ??= this.again().finally(() => (this.renewing = null));
    return this.renewing;
  }

  async again() {
    const found = await ask(`/api/look/${encodeURIComponent(this.model)}`, this.body);
    const told = ({ look_id, ...rest }) => JSON.stringify(rest);
    if (told(found) !== told(this.found)) throw new Error("The same question is answered otherwise by now; press Look to see it.");
    this.found.look_id = found.look_id;
  }
}
