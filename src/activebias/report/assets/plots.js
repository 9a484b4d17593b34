"use strict";
/* The charts that are not the map: curves, weights, comparison, and one instance's probabilities. */
Report.plots = (() => {
  const { byId, make, fill, count, decimal, forPlotly } = Report.dom;
  const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false };
  // Okabe and Ito's colours, which people with any colour vision tell apart; readable on light and dark.
  const lines = () => [Report.theme.colour("accent"), "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid"];

  function axis(title, extra = {}) {
    const line = Report.theme.colour("line");
    return {
      title: { text: title, font: { size: 13 }, standoff: 12 },
      gridcolor: line, linecolor: line, zeroline: false, automargin: true, ...extra,
    };
  }

  function layout(extra = {}) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: Report.theme.colour("ink") },
      margin: { l: 64, r: 32, t: 28, b: 56 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, xanchor: "left" },
      hoverlabel: { bgcolor: Report.theme.colour("surface"), bordercolor: Report.theme.colour("line"), font: { color: Report.theme.colour("ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: Report.theme.colour("muted"), activecolor: Report.theme.colour("accent") },
      ...extra,
    };
  }

  const epochsOf = (values) => values.map((_, i) => i + 1);
  const curveTitle = (name) => {
    const words = name.replaceAll("_", " ");
    return words.charAt(0).toUpperCase() + words.slice(1);
  };

  function burnInMark(run) {
    if (!(run.burn_in > 0) || run.burn_in >= run.epochs) return {};
    const muted = Report.theme.colour("muted");
    return {
      shapes: [{ type: "line", x0: run.burn_in, x1: run.burn_in, y0: 0, y1: 1, yref: "paper", line: { color: muted, width: 1, dash: "dot" } }],
      annotations: [{ x: run.burn_in, y: 1, yref: "paper", text: "emphasis begins", showarrow: false, xanchor: "left", yanchor: "top", xshift: 5, font: { color: muted, size: 12 } }],
    };
  }

  const errorCurves = (run) => Object.entries(run.curves).filter(([name]) => name.endsWith("_error"));

  function curves(run) {
    const colours = lines();
    const traces = errorCurves(run).map(([name, values], i) => ({
      x: epochsOf(values), y: values, name: forPlotly(curveTitle(name)), mode: values.length < 2 ? "markers" : "lines",
      line: { color: colours[i % colours.length], width: 2.5, dash: DASHES[i % DASHES.length] }, hovertemplate: "%{y:.2f} %",
    }));
    // Room above the highest point, for the words at the end of the burn-in.
    const top = 1.12 * Math.max(...traces.flatMap((trace) => trace.y)) || 1;
    const shape = layout({
      hovermode: "x unified", ...burnInMark(run),
      xaxis: axis("epoch"), yaxis: axis("error", { ticksuffix: " %", range: [0, top] }),
    });
    fillCurvesTable(run);
    return Plotly.react(byId("curves-plot"), traces, shape, CONFIG);
  }

  function fillCurvesTable(run) {
    const found = Object.entries(run.curves);
    const table = byId("curves-table");
    fill(table.tHead, make("tr", {}, make("th", { scope: "col" }, "Epoch"), ...found.map(([name]) => make("th", { scope: "col", class: "number" }, curveTitle(name)))));
    const length = Math.max(0, ...found.map(([, values]) => values.length));
    fill(table.tBodies[0], ...Array.from({ length }, (_, epoch) =>
      make("tr", {}, make("th", { scope: "row" }, String(epoch + 1)), ...found.map(([, values]) => make("td", { class: "number" }, decimal(values[epoch] ?? NaN, 2))))));
  }

  function weights(run) {
    const values = run.columns.weight.filter((weight) => !Number.isNaN(weight));
    let low = Infinity, high = -Infinity, sum = 0, squares = 0;
    for (const value of values) {
      low = Math.min(low, value);
      high = Math.max(high, value);
      sum += value;
      squares += value * value;
    }
    const effective = squares > 0 ? (sum * sum) / squares : values.length;
    const bins = 50, width = (high - low) / bins || 1;
    const heights = new Array(high > low ? bins : 1).fill(0);
    for (const value of values) heights[Math.min(heights.length - 1, Math.floor((value - low) / width))] += 1;
    byId("weights-note").textContent = high > low
      ? `Final weights lie between ${decimal(low, 2)} and ${decimal(high, 2)}. In effect the loss sees ${count(Math.round(effective))} of ${count(values.length)} instances (effective sample size).`
      : `Every instance has the weight ${decimal(low, 2)}: this method does not weigh, or training ended within the burn-in.`;
    const centres = heights.map((_, i) => low + (i + 0.5) * width);
    const trace = {
      type: "bar", x: centres, y: heights, width: width * 0.92, marker: { color: Report.theme.colour("accent") },
      hovertemplate: "weight about %{x:.2f}: %{y} instances<extra></extra>",
    };
    return Plotly.react(byId("weights-plot"), [trace], layout({ bargap: 0, xaxis: axis("weight in the loss"), yaxis: axis("instances") }), CONFIG);
  }

  const logit = (p) => Math.log(p / (1 - p));

  /** The weight that a method has learnt for each p̄: a line an epoch, from pale to dark. */
  function emphasis(run) {
    for (const element of document.querySelectorAll("[data-learnt]")) element.hidden = !run.emphasis;
    if (!run.emphasis) return null;
    const { epochs, means, weights } = run.emphasis;
    const last = epochs.length - 1, colour = Report.theme.colour("accent");
    byId("emphasis-note").textContent = run.emphasis_note;
    const traces = weights.map((row, i) => ({
      x: means.map(logit), y: row, mode: "lines", name: `epoch ${epochs[i]}`, showlegend: i === 0 || i === last,
      opacity: last ? 0.2 + (0.8 * i) / last : 1, line: { color: colour, width: i === last ? 3 : 1.5 },
      customdata: means, hovertemplate: `epoch ${epochs[i]}: p̄ %{customdata:.3f}, weight %{y:.2f}<extra></extra>`,
    }));
    const ticks = [0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999];
    const one = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: Report.theme.colour("muted"), width: 1, dash: "dot" } };
    const shape = layout({
      xaxis: axis("p̄", { tickvals: ticks.map(logit), ticktext: ticks.map(String) }),
      yaxis: axis("weight", { rangemode: "tozero" }), shapes: [one],
    });
    const ends = last ? [0, last] : [0];
    fillTable(byId("emphasis-table"), {
      columns: ["p̄", ...ends.map((i) => `Weight, epoch ${epochs[i]}`)],
      rows: means.map((mean, knot) => [decimal(mean, 3), ...ends.map((i) => decimal(weights[i][knot], 2))]),
    });
    return Plotly.react(byId("emphasis-plot"), traces, shape, CONFIG);
  }

  /** The band of one standard error around a mean curve: a closed line, filled. */
  function band({ mean, stderr }, colour) {
    const epochs = epochsOf(mean);
    return {
      x: [...epochs, ...[...epochs].reverse()],
      y: [...mean.map((value, i) => value + stderr[i]), ...mean.map((value, i) => value - stderr[i]).reverse()],
      fill: "toself", fillcolor: colour, opacity: 0.15, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false,
    };
  }

  /** Draw mean curves with their bands; a curve may have a colour and dashes of its own. */
  function meanCurves(element, curves, extra) {
    const colours = lines();
    const colour = (curve, i) => curve.colour ?? colours[i % colours.length];
    const bands = curves.flatMap((curve, i) => (curve.stderr ? [band(curve, colour(curve, i))] : []));
    const traces = curves.map((curve, i) => ({
      x: epochsOf(curve.mean), y: curve.mean, name: forPlotly(Report.dom.shorten(curve.name, 60)), mode: curve.mean.length < 2 ? "markers" : "lines",
      line: { color: colour(curve, i), dash: curve.dash ?? DASHES[i % DASHES.length], width: 2.5 },
      marker: { color: colour(curve, i) }, hovertemplate: "%{y:.2f} %",
    }));
    return Plotly.react(element, [...bands, ...traces], layout({ hovermode: "x unified", ...extra }), CONFIG);
  }

  function comparison(curves) {
    return meanCurves(byId("comparison-plot"), curves, { xaxis: axis("epoch"), yaxis: axis("validation error", { ticksuffix: " %" }) });
  }

  /** The runs; if some repeat each other, first the means of the methods. */
  function comparisonTables(comparison) {
    fillTable(byId("means-table"), comparison.means ?? { columns: [], rows: [] });
    byId("means").hidden = !comparison.means;
    byId("every-run").open = !comparison.means;
    fillTable(byId("comparison-table"), comparison);
    byId("comparison-note").textContent = comparison.hides_errors ? "" : comparison.note;
    byId("comparison-plot").hidden = Boolean(comparison.hides_errors);
    fill(byId("before-after"), ...(comparison.sentences ?? []).map((text) => make("p", {}, text)));
  }

  function fillTable(node, table) {
    fill(node.tHead, make("tr", {}, ...table.columns.map((name, i) => make("th", { scope: "col", class: i ? "number" : null }, name))));
    fill(node.tBodies[0], ...table.rows.map((cells) =>
      make("tr", {}, ...cells.map((cell, i) => (i ? make("td", { class: "number", "data-name": table.columns[i] }, cell) : make("th", { scope: "row" }, cell))))));
  }

  /** One instance's probability of its label, visit by visit. */
  function probabilities(element, run, instance) {
    const visits = run.visits(instance);
    const accent = Report.theme.colour("accent");
    // Judges, and the model of a validation row, predict after epochs; other values come from training visits.
    const validates = run.columns.validates?.[instance];
    const [counted, axisTitle] = run.judges > 1 ? ["value", "epoch that counts"] : validates ? ["epoch", "epoch"] : ["visit", "visit in training"];
    const title = { text: axisTitle, font: { size: 11 }, standoff: 4 };
    const trace = {
      x: visits.map(([t]) => t), y: visits.map(([, p]) => p), mode: visits.length < 40 ? "lines+markers" : "lines",
      line: { color: accent, width: 2 }, marker: { size: 4, color: accent }, hovertemplate: `${counted} %{x}: %{y:.2f}<extra></extra>`,
    };
    const muted = Report.theme.colour("muted");
    const shape = layout({
      margin: { l: 36, r: 8, t: 6, b: 34 }, showlegend: false,
      xaxis: axis("", { rangemode: "tozero", title, tickfont: { size: 11 } }),
      yaxis: axis("", { range: [-0.03, 1.03], tickvals: [0, 0.5, 1], tickfont: { size: 11 } }),
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 0.5, y1: 0.5, line: { color: muted, width: 1, dash: "dot" } }],
    });
    return Plotly.react(element, [trace], shape, CONFIG);
  }

  // What fits between the margins of A4 and of Letter.
  const PAPER_WIDTH = 640;

  /** Fit the charts to paper, and back to the window: Plotly draws them at a width in pixels. */
  function fit(toPaper) {
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      const width = plot.classList.contains("chart") ? PAPER_WIDTH / 2 : PAPER_WIDTH;
      Plotly.relayout(plot, toPaper ? { width, autosize: false } : { width: null, autosize: true });
    }
  }

  return { CONFIG, fit, axis, layout, burnInMark, meanCurves, curves, emphasis, weights, comparison, comparisonTables, probabilities };
})();
