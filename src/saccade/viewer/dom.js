// Small helpers that every view uses: make elements (text is always text), ask the server, and say what is going on.

export function make(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function drawn(tag, given = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export async function ask(path, body) {
  const how = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  let answer;
  try {
    answer = await fetch(path, how);
  } catch {
    throw new Error("The server does not answer; is it still running where it was started?");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(said.error ?? `The server answered with ${answer.status}.`), { status: answer.status });
  }
  const kind = answer.headers.get("Content-Type") ?? "";
  return kind.startsWith("application/json") ? answer.json() : answer.arrayBuffer();
}

export function say(text, wrong = false) {
  const line = document.getElementById("status");
  line.textContent = text;
  line.classList.toggle("wrong", wrong);
}

// put other things into a node, and give the keyboard back to whoever used it there: to what stands in the same place, or to the node
export function refill(node, ...children) {
  const way = [];
  let at = document.activeElement;
  for (; at && at !== node; at = at.parentElement) way.unshift([at.tagName, at.parentElement ? [...at.parentElement.children].indexOf(at) : 0]);
  node.replaceChildren(...children.filter((child) => child !== null));
  if (at !== node || !way.length) return;
  const found = way.reduce((inside, [tag, i]) => (inside?.children[i]?.tagName === tag ? inside.children[i] : null), node);
  (found ?? node).focus({ preventScroll: true });
}

// what is drawn in the colours of the page is drawn again when the page turns light or dark
export function repainted(node, draw) {
  addEventListener("repaint", () => node.isConnected && draw());
}

// run some work, and say so if it takes long or fails
export async function busy(what, work) {
  const slow = setTimeout(() => say(`${what} …`), 300);
  try {
    const found = await work();
    say("");
    return found;
  } catch (error) {
    say(error.message, true);
    return undefined;
  } finally {
    clearTimeout(slow);
  }
}

export const dark = () => document.documentElement.dataset.theme === "dark";

// a token as it can be seen: spaces and line breaks are shown
export function shown(token) {
  const text = token.replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  return text.trim() === "" ? text.replace(/ /g, "␣") || "∅" : text;
}
