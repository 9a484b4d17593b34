"use strict";
/* Small helpers. Whatever comes from the data enters the page as text: nothing here parses markup. */
const Report = {};

Report.dom = (() => {
  const byId = (id) => document.getElementById(id);

  /** Make an element. Children that are strings become text nodes; attributes of value null are left out. */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick") element.addEventListener("click", value);
      else if (value !== null) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  function fill(element, ...children) {
    element.replaceChildren(...children.filter((child) => child !== null));
    return element;
  }

  /** A list of terms and their values. */
  function terms(pairs, attributes = {}) {
    const list = make("dl", attributes);
    for (const [term, value] of pairs) list.append(make("dt", {}, term), make("dd", {}, value));
    return list;
  }

  const count = (number) => Number(number).toLocaleString("en");
  const percent = (share) => Number.isNaN(share) ? "–" : `${(100 * share).toFixed(share > 0 && share < 0.095 ? 1 : 0)} %`;
  const decimal = (number, digits = 3) => (Number.isFinite(number) ? number.toFixed(digits) : "–");

  /** Plotly reads <b>, <a href> and the like in its texts, so names from the data go there escaped. */
  const forPlotly = (text) =>
    String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("$", "&#36;");

  const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

  return { byId, make, fill, terms, count, percent, decimal, forPlotly, shorten };
})();

Report.theme = (() => {
  const { byId } = Report.dom;
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];

  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : systemDark.matches;
  };

  /** The value of a colour of the style sheet, as Plotly understands it: `rgb(…)`. */
  function colour(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  function tell() {
    byId("theme").setAttribute("aria-pressed", String(isDark()));
    byId("theme").textContent = isDark() ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
    for (const listener of listeners) listener();
  }

  function choose(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    tell();
  }

  function start() {
    byId("theme").addEventListener("click", () => choose(isDark() ? "light" : "dark"));
    systemDark.addEventListener("change", tell);
    let before = null;
    addEventListener("beforeprint", () => {
      before = document.documentElement.dataset.theme ?? null;
      choose("light");
      Report.plots.fit(true);
    });
    addEventListener("afterprint", () => {
      choose(before);
      Report.plots.fit(false);
    });
    tell();
  }

  return { colour, start, onChange: (listener) => listeners.push(listener) };
})();
