// Helpers of all views: create elements (text is never parsed as HTML), send requests, and show the status.

export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// an SVG element
export function drawn(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// the JSON or the bytes of a response; an error has the message of the server
export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not respond; check that saccade serve is still running.");
  }
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({}));
    throw Object.assign(new Error(error ?? `The server returned the status ${response.status}.`), { status: response.status });
  }
  const type = response.headers.get("Content-Type") ?? "";
  return type.startsWith("application/json") ? response.json() : response.arrayBuffer();
}

// show a message in the status line
export function say(text, wrong = false) {
  const line = document.getElementById("status");
  line.textContent = text;
  line.classList.toggle("wrong", wrong);
}

// replace the children of a node; keyboard focus inside it goes to the new element at the same path, or to the node
export function refill(node, ...children) {
  const path = [];
  let focused = document.activeElement;
  for (; focused && focused !== node; focused = focused.parentElement) path.unshift([focused.tagName, focused.parentElement ? [...focused.parentElement.children].indexOf(focused) : 0]);
  node.replaceChildren(...children.filter((child) => child !== null));
  if (focused !== node || !path.length) return;
  const target = path.reduce((parent, [tag, i]) => (parent?.children[i]?.tagName === tag ? parent.children[i] : null), node);
  (target ?? node).focus({ preventScroll: true });
}

// draw again when the page changes between light and dark
export function repainted(node, draw) {
  addEventListener("repaint", () => node.isConnected && draw());
}

// run an asynchronous task; the status line names it if it takes long, and has the error if it fails
export async function busy(name, task) {
  const timer = setTimeout(() => say(`${name} …`), 300);
  try {
    const result = await task();
    say("");
    return result;
  } catch (error) {
    say(error.message, true);
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

export const dark = () => document.documentElement.dataset.theme === "dark";

// a token with visible spaces and line breaks
export function shown(token) {
  const text = token.replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  return text.trim() === "" ? text.replace(/ /g, "␣") || "∅" : text;
}
