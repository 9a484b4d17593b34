"use strict";
/* The page of a reproduction: its tables are in the HTML, this draws the curves of every row. */
Report.reproduction = (() => {
  const { byId, make, fill } = Report.dom;
  const { axis, burnInMark, meanCurves } = Report.plots;
  const { rows } = JSON.parse(byId("report-data").textContent);
  const BORDERS = { solid: "solid", dot: "dotted", dash: "dashed" };

  /** The curves in the colours of the theme: baselines have none of their own. */
  const coloured = (curves) => curves.map((curve) => ({ ...curve, colour: curve.colour ?? Report.theme.colour("muted") }));

  function legend(curves) {
    return curves.map(({ name, colour, dash }) => {
      const line = make("span", { "aria-hidden": "true" });
      line.style.borderTop = `3px ${BORDERS[dash]} ${colour}`;
      return make("li", {}, line, name);
    });
  }

  /** The end of the burn-in, with its words at the bottom: the curves enter from above. */
  function mark(row) {
    const { shapes = [], annotations = [] } = burnInMark(row);
    return { shapes, annotations: annotations.map((words) => ({ ...words, y: 0, yanchor: "bottom" })) };
  }

  function draw(row) {
    const curves = coloured(row.curves);
    fill(byId(`legend-${row.name}`), ...legend(curves));
    return meanCurves(byId(`plot-${row.name}`), curves, {
      showlegend: false, ...mark(row),
      xaxis: axis("epoch", { range: [row.first_epoch - 0.5, row.epochs + 0.5] }),
      yaxis: axis("test error", { ticksuffix: " %", range: row.limits }),
    });
  }

  async function drawAll() {
    for (const row of rows) await draw(row);
  }

  async function start() {
    Report.theme.start();
    await drawAll();
    Report.theme.onChange(drawAll);
    document.documentElement.dataset.ready = "true";
  }

  return { start, rows };
})();

Report.reproduction.start().catch((error) => {
  const problem = Report.dom.byId("problem");
  problem.textContent = `The curves could not be drawn: ${error.message}`;
  problem.hidden = false;
  throw error;
});
