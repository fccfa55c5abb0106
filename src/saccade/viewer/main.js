// Start of the page: the view follows the fragment of the URL, and the theme follows the system until it is changed.

import { learn as setColors } from "/page/color.js";
import { learn } from "/page/lessons_view.js";
import { look } from "/page/look_view.js";
import { runs } from "/page/runs_view.js";
import { save } from "/page/save.js";
import { ask, busy, say } from "/page/dom.js";

const VIEWS = { look, learn, runs };
const theme = document.getElementById("theme");
let about = null;

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  theme.setAttribute("aria-pressed", String(name === "dark"));
}

async function show() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const view = VIEWS[name] ? name : Object.keys(about.models).length ? "look" : "learn";
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.getAttribute("href") === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `saccade: ${view}`;
  const main = document.getElementById("view");
  main.replaceChildren(await VIEWS[view](about, ...rest));
  main.dataset.view = view;
  if (view === "look") dispatchEvent(new Event("repaint")); // it is kept while another view is shown, and the theme may have changed
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
theme.addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  dispatchEvent(new Event("repaint"));
});
document.getElementById("save").addEventListener("click", () => busy("Saving", () => save(document.getElementById("view"))));
about = await busy("Connecting to the server", () => ask("/api/about"));
if (about) {
  setColors(about.colors);
  addEventListener("hashchange", show);
  await show();
} else say("The server does not respond; start it again with saccade serve.", true);
