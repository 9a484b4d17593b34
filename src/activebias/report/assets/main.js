"use strict";
/* What is shown now, and who has to know when it changes. */
Report.main = (() => {
  const { byId, make, fill } = Report.dom;
  const { header } = Report.data;
  let run = null;
  let chosen = null;

  const every = () => Uint32Array.from(run.columns.label.keys());
  const drawMap = () => Report.map.draw(run, byId("map-only").checked ? Report.table.rows() : every(), chosen);

  function choose(instance) {
    chosen = instance;
    Report.table.mark(instance);
    Report.map.mark(instance);
    if (instance === null) Report.detail.hide();
    else Report.detail.show(run, instance);
  }

  function restrict(instances) {
    byId("map-clear").hidden = instances === null;
    if (instances === null) Report.map.clearSelection();
    Report.table.restrict(instances);
    if (byId("map-only").checked && instances === null) drawMap();
  }

  function filtersChanged() {
    if (byId("map-only").checked) drawMap();
  }

  /** What stands between backquotes is a command. */
  const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));

  function showSummary() {
    document.querySelector("h1").textContent = run.title;
    byId("subtitle").textContent = run.subtitle;
    fill(byId("figures"), ...run.figures.map(({ value, name, note, accent }) =>
      make("div", { class: accent ? "accent" : null }, make("dt", {}, name), make("dd", {}, value), note ? make("small", {}, note) : null)));
    fill(byId("sentences"), ...run.sentences.map((text) => make("p", {}, text)));
    fill(byId("warnings"), ...run.warnings.map((text) => make("p", { class: "callout" }, make("strong", {}, "Take care: "), text)));
    fill(byId("advice"), ...run.advice.map((text) => make("li", {}, ...withCode(text))));
    const skipped = byId("skipped");
    skipped.hidden = run.skipped.length === 0;
    skipped.querySelector("summary").textContent = `${Report.dom.count(run.skipped.length)} left out of training`;
    fill(skipped.querySelector("ul"), ...run.skipped.slice(0, 500).map(({ what, why }) => make("li", {}, make("code", {}, what), `: ${why}`)));
    byId("curves-note").textContent = run.curves_note;
    byId("budget").textContent = run.budget;
  }

  async function drawAll() {
    const drawings = [Report.plots.curves(run), Report.plots.emphasis(run), Report.plots.weights(run), drawMap()];
    if (header.runs.length > 1 && !header.comparison.hides_errors) drawings.push(Report.plots.comparison(header.comparison.curves));
    await Promise.all(drawings);
    if (chosen !== null) await Report.detail.show(run, chosen);
  }

  async function showRun(number) {
    run = { ...(await Report.data.run(number)), number };
    chosen = null;
    Report.detail.hide();
    byId("map-clear").hidden = true;
    showSummary();
    Report.decisions.use(run);
    Report.table.use(run);
    Report.classes.use(run);
    await drawAll();
  }

  function offerRuns() {
    if (header.runs.length < 2) return;
    for (const element of document.querySelectorAll("[data-several]")) element.hidden = false;
    fill(byId("run"), ...header.runs.map(({ name }, number) => make("option", { value: number }, name)));
    byId("run").addEventListener("change", (event) => showRun(Number(event.target.value)));
    Report.plots.comparisonTables(header.comparison);
  }

  async function start() {
    Report.table.start();
    Report.decisions.start();
    offerRuns();
    byId("map-only").addEventListener("change", drawMap);
    byId("map-clear").addEventListener("click", () => restrict(null));
    addEventListener("keydown", (event) => { if (event.key === "Escape" && chosen !== null) choose(null); });
    Report.theme.start();
    await showRun(0);
    Report.theme.onChange(drawAll);
    performance.mark("report-ready");
    document.documentElement.dataset.ready = "true";
  }

  return { start, showRun, choose, restrict, filtersChanged, current: () => run, chosen: () => chosen };
})();

Report.main.start().catch((error) => {
  const problem = Report.dom.byId("problem");
  problem.textContent = typeof DecompressionStream === "undefined"
    ? "This report needs a browser of 2023 or later (DecompressionStream)."
    : `The report could not be shown: ${error.message}`;
  problem.hidden = false;
  throw error;
});
