// The result of one request to a model, and the weights and statistics that the server has for it. A result that the server no
// longer caches is requested again, so that figures always belong to the prediction that is shown.

import { fromHalf } from "/page/float16.js";
import { ask } from "/page/dom.js";

const GONE = 410; // HTTP status of a result that is no longer cached

export class LookClient {
  constructor(model, body) {
    this.model = model;
    this.body = body;
    this.responses = new Map();
  }

  async look() {
    this.result = await ask(`/api/look/${encodeURIComponent(this.model)}`, this.body);
    return this;
  }

  // the weights of all heads of a map, (heads, queries, keys), times the value norms for the measure "value_norm"
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

  // cache a response; a request that failed is sent again the next time
  once(name, request) {
    if (!this.responses.has(name)) {
      const response = request();
      this.responses.set(name, response);
      response.catch(() => this.responses.delete(name));
    }
    return this.responses.get(name);
  }

  async get(kind, rest) {
    const path = () => `/api/${kind}/${encodeURIComponent(this.model)}/${this.result.look_id}${rest}`;
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
    const result = await ask(`/api/look/${encodeURIComponent(this.model)}`, this.body);
    const withoutId = ({ look_id, ...rest }) => JSON.stringify(rest);
    if (withoutId(result) !== withoutId(this.result)) throw new Error("The model now gives another result for this input; press Look to show it.");
    this.result.look_id = result.look_id;
  }
}
