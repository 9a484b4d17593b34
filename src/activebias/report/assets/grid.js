"use strict";
/* The page of the table as a grid of pictures: many suspects at one look. */
Report.grid = (() => {
  const { make, fill, byId, decimal, shorten } = Report.dom;

  function card(run, i, isChosen) {
    const { label, believed, score } = run.columns;
    const differs = label[i] !== believed[i];
    return make("button", { type: "button", class: "card", "data-instance": i, "aria-current": isChosen ? "true" : null, onclick: () => Report.main.choose(i) },
      Report.detail.picture(run, i, {}),
      make("span", { class: "card-label" }, shorten(run.className(label[i]), 24)),
      differs ? make("span", { class: "card-believed differs" }, shorten(run.className(believed[i]), 24)) : null,
      make("small", {}, decimal(score[i], 2)),
      make("span", { class: "decided" }, make("span", { class: "clamped" }, Report.decisions.words(i))));
  }

  function draw(run, shown, chosen) {
    fill(byId("grid"), ...(shown.length ? shown.map((i) => card(run, i, i === chosen)) : [make("p", { class: "empty" }, "No instance fits these filters.")]));
  }

  return { draw };
})();
