"use strict";
/* The data map: variability across, confidence up, one trace for every fifth of correctness. */
Report.map = (() => {
  const { byId, count } = Report.dom;
  // Colour and shape both tell correctness, so that neither is needed alone. Drawn in this order: wrong ones on top.
  const BANDS = [
    { name: "right 80–100 %", from: 0.8, colour: "#0072b2", symbol: "circle" },
    { name: "60–80 %", from: 0.6, colour: "#56b4e9", symbol: "circle" },
    { name: "40–60 %", from: 0.4, colour: "#8f8f8f", symbol: "diamond" },
    { name: "20–40 %", from: 0.2, colour: "#e69f00", symbol: "triangle-up" },
    { name: "right 0–20 %", from: -Infinity, colour: "#d55e00", symbol: "x" },
  ];
  const TOOLS = [["pan2d", "zoom2d", "select2d", "lasso2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"], ["toImage"]];
  // Without WebGL every point is a node of the page: more than this is not fluid.
  const MOST_WITHOUT_WEBGL = 5000;

  const hasWebgl = (() => {
    try {
      return Boolean(document.createElement("canvas").getContext("webgl"));
    } catch {
      return false;
    }
  })();

  let wired = false;
  let drawn = null;

  /** Round up a little: a float32 of 0.8 must not fall into the band below. */
  const bandOf = (correctness) => BANDS.findIndex((band) => correctness + 1e-6 >= band.from);

  function traces(run, rows) {
    const { variability, confidence, correctness } = run.columns;
    const members = BANDS.map(() => []);
    // An instance that was never visited has no place on the map.
    for (const i of rows) if (!Number.isNaN(correctness[i])) members[bandOf(correctness[i])].push(i);
    const size = rows.length < 3000 ? 7 : rows.length < 20000 ? 5 : 3.5;
    return BANDS.map((band, b) => ({
      type: hasWebgl ? "scattergl" : "scatter", mode: "markers", name: `${band.name} (${count(members[b].length)})`,
      x: Float32Array.from(members[b], (i) => variability[i]), y: Float32Array.from(members[b], (i) => confidence[i]),
      customdata: members[b], hoverinfo: "none",
      marker: { color: band.colour, symbol: band.symbol, size, opacity: rows.length < 3000 ? 0.8 : 0.55 },
    }));
  }

  function chosenTrace(run, instance) {
    const shown = instance === null ? [] : [instance];
    return {
      type: hasWebgl ? "scattergl" : "scatter", mode: "markers", showlegend: false, hoverinfo: "skip",
      x: shown.map((i) => run.columns.variability[i]), y: shown.map((i) => run.columns.confidence[i]), customdata: shown,
      marker: { symbol: "circle-open", size: 18, color: Report.theme.colour("ink"), line: { width: 3 } },
    };
  }

  function region(text, x, y, xanchor, yanchor) {
    return { text, x, y, xref: "paper", yref: "paper", xanchor, yanchor, showarrow: false, font: { size: 12, color: Report.theme.colour("muted") } };
  }

  function shape(run) {
    const { axis, layout } = Report.plots;
    const narrow = innerWidth < 640;
    let widest = 0;
    for (const value of run.columns.variability) if (value > widest) widest = value;
    return layout({
      hovermode: "closest", dragmode: "pan", uirevision: run.number, margin: { l: 64, r: 28, t: narrow ? 104 : 84, b: 56 },
      xaxis: axis("variability of the label's probability", { range: [-0.02 * widest, 1.04 * widest || 1] }),
      yaxis: axis("confidence in the label", { range: [-0.1, 1.1], tickvals: [0, 0.2, 0.4, 0.6, 0.8, 1] }),
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, xanchor: "left", font: { size: narrow ? 11 : 13 }, traceorder: "reversed", itemsizing: "constant",
        ...(narrow ? { entrywidth: 0.5, entrywidthmode: "fraction" } : {}) },
      annotations: [
        region("easy to learn", 0.01, 0.99, "left", "top"),
        region("undecided", 0.99, 0.99, "right", "top"),
        region("label not believed", 0.01, 0.01, "left", "bottom"),
      ],
    });
  }

  /** Draw the instances `rows`, the most suspicious of them where not all can be drawn. */
  async function draw(run, rows, chosen) {
    const limited = !hasWebgl && rows.length > MOST_WITHOUT_WEBGL;
    const note = byId("map-limit");
    note.hidden = !limited;
    if (limited) {
      const { score } = run.columns;
      rows = Array.from(rows).sort((a, b) => score[b] - score[a]).slice(0, MOST_WITHOUT_WEBGL);
      note.textContent = `This browser offers no WebGL, so the map shows the ${count(MOST_WITHOUT_WEBGL)} most suspicious instances only.`;
    }
    drawn = run;
    const config = { ...Report.plots.CONFIG, displayModeBar: true, modeBarButtons: TOOLS };
    await Plotly.react(byId("map-plot"), [...traces(run, rows), chosenTrace(run, chosen)], shape(run), config);
    if (!wired) wire();
  }

  function wire() {
    wired = true;
    const plot = byId("map-plot");
    // Plotly looks up the point under the pointer up to 50 ms late. While the button is pressed it would forget the
    // point, and lose the click.
    plot.on("plotly_beforehover", () => !plot._dragging);
    plot.on("plotly_hover", ({ points, event }) => Report.detail.showTip(points[0].customdata, event));
    plot.on("plotly_unhover", () => Report.detail.hideTip());
    plot.on("plotly_click", ({ points }) => Report.main.choose(points[0].customdata));
    plot.on("plotly_selected", (event) => {
      if (event) Report.main.restrict(new Set(event.points.map((point) => point.customdata)));
    });
    plot.on("plotly_deselect", () => Report.main.restrict(null));
  }

  function mark(instance) {
    const trace = chosenTrace(drawn, instance);
    return Plotly.restyle(byId("map-plot"), { x: [trace.x], y: [trace.y], customdata: [trace.customdata] }, [BANDS.length]);
  }

  const clearSelection = () => Plotly.restyle(byId("map-plot"), { selectedpoints: [null] });

  return { draw, mark, clearSelection };
})();
