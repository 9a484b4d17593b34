"use strict";
/* One instance: in the panel when it is chosen, in the tip while the pointer is over it. */
Report.detail = (() => {
  const { byId, make, fill, terms, count, decimal, percent, shorten } = Report.dom;
  const MOST_NAMED = 5;

  /** Say in words what a picture shows, for those who do not see it. */
  function altText(run, i) {
    const caption = run.caption(i);
    const { label } = run.columns;
    return `${run.nameOf(i)}${caption ? `, ${caption}` : ""}, labelled ${run.className(label[i])}`;
  }

  function picture(run, i, attributes) {
    const address = run.picture(i);
    if (!address) return null;
    const [width, height] = run.images.cell;
    const small = Math.max(width, height) <= 64;
    const image = make("img", { ...attributes, class: `${attributes.class ?? ""}${small ? " pixelated" : ""}`.trim(), width, height, alt: altText(run, i) });
    address.then((found) => { image.src = found; });
    return image;
  }

  function verdict(run, i) {
    const { label, believed, believed_prob: sure } = run.columns;
    if (label[i] === believed[i]) return make("p", { class: "verdict" }, "The model agrees with the label ", make("strong", {}, run.className(label[i])), ` (${percent(sure[i])} on average).`);
    return make("p", { class: "verdict" },
      "The label says ", make("strong", {}, run.className(label[i])), "; the model believes ",
      make("strong", { class: "differs" }, run.className(believed[i])), ` (${percent(sure[i])} on average).`);
  }

  /** Where the same input has another label, name those instances, each as a button that shows it. */
  function conflict(run, i) {
    if (!run.columns.conflict?.[i]) return null;
    const others = run.contradicting(i);
    if (!others.length) return make("p", { class: "verdict" }, "The same input has another label elsewhere: see conflicts.csv in the run folder.");
    const buttons = others.slice(0, MOST_NAMED).map((other) =>
      make("button", { type: "button", class: "quiet", onclick: () => Report.main.choose(other) }, `${run.nameOf(other)}: ${shorten(run.className(run.columns.label[other]), 60)}`));
    const more = others.length - buttons.length;
    return make("div", { class: "verdict conflict" }, make("p", {}, "The same input has another label:"), ...buttons, more ? make("span", { class: "note" }, `and ${count(more)} more`) : null);
  }

  const fieldName = (field) => (field.identifies ? `${field.name} (not trained on)` : field.name);

  /** A word of a sentence is shown in its sentence. */
  function fieldValue(run, field, i) {
    const text = field.at(i);
    if (text === null) return make("span", { class: "note" }, "not in this file, see below");
    const place = run.columns.word?.[i];
    if (field.name !== "sentence" || place === undefined) return text || "–";
    const words = text.split(" ");
    return make("span", {}, words.slice(0, place).join(" "), " ", make("mark", {}, words[place] ?? ""), " ", words.slice(place + 1).join(" "));
  }

  // Words to the left and right of a word in the table.
  const AROUND = 5;

  /** What tells an instance in the table: a word of a sentence stands in the words around it. */
  function inContext(run, i) {
    const place = run.columns.word?.[i];
    const sentence = place === undefined ? null : run.fields.find((field) => field.name === "sentence")?.at(i);
    if (!sentence) return [run.caption(i) || run.nameOf(i)];
    const words = sentence.split(" ");
    const before = words.slice(Math.max(0, place - AROUND), place), after = words.slice(place + 1, place + 1 + AROUND);
    return [`${place > AROUND ? "… " : ""}${before.join(" ")} `, make("mark", {}, words[place] ?? ""), ` ${after.join(" ")}${place + 1 + AROUND < words.length ? " …" : ""}`];
  }

  function show(run, i) {
    const columns = run.columns;
    const chart = make("div", { class: "chart", role: "img", "aria-label": chartText(run, i) });
    const place = Report.table.placeOf(i);
    const step = (to, text) =>
      make("button", { type: "button", class: "quiet", disabled: place < 0 || Report.table.at(to) === undefined ? "" : null, onclick: () => Report.main.choose(Report.table.at(to)) }, text);
    fill(byId("detail-body"),
      make("div", { class: "detail-head" },
        make("h2", { id: "detail-heading" }, run.nameOf(i)),
        make("button", { type: "button", class: "quiet", onclick: () => Report.main.choose(null) }, "Close")),
      picture(run, i, { class: "picture" }),
      verdict(run, i),
      Report.decisions.controls(i),
      conflict(run, i),
      columns.validates?.[i] && run.judges === 1 ? make("p", { class: "note" }, "It is in the validation part: the model never trained on it.") : null,
      make("p", { class: "chart-title" }, `Probability of the label ${when(run, i)}`),
      chart,
      terms([
        ["Score", decimal(columns.score[i])],
        ["Probability of the label", percent(columns.label_prob[i])],
        ["Confidence", decimal(columns.confidence[i])],
        ["Variability", decimal(columns.variability[i])],
        ["Correctness", percent(columns.correctness[i])],
        ["Weight", decimal(columns.weight[i], 2)],
      ]),
      run.fields.length ? terms(run.fields.map((field) => [fieldName(field), fieldValue(run, field, i)]), { class: "fields" }) : null,
      make("p", { class: "steps" }, step(place - 1, "Previous"), step(place + 1, "Next")));
    byId("detail-body").hidden = false;
    byId("detail-empty").hidden = true;
    return Report.plots.probabilities(chart, run, i);
  }

  /** When the probabilities in the chart were predicted. */
  function when(run, i) {
    if (run.judges > 1) return `after the epochs that count, mean of ${run.judges} judges`;
    return run.columns.validates?.[i] ? "after every epoch" : "in training";
  }

  function chartText(run, i) {
    const visits = run.visits(i);
    if (!visits.length) return "No visit is kept.";
    const first = visits[0], last = visits.at(-1);
    return `Probability of the label over ${visits.length} visits: ${percent(first[1])} at first, ${percent(last[1])} at last, ${percent(run.columns.confidence[i])} on average.`;
  }

  function hide() {
    byId("detail-body").hidden = true;
    byId("detail-empty").hidden = false;
  }

  function showTip(i, event) {
    const run = Report.main.current();
    const columns = run.columns;
    const tip = byId("tip");
    const differs = columns.label[i] !== columns.believed[i];
    fill(tip, picture(run, i, {}),
      make("div", {},
        run.caption(i) ? make("p", {}, shorten(run.caption(i), 160)) : null,
        terms([
          ["label", shorten(run.className(columns.label[i]), 60)],
          [differs ? "believes" : "agrees", `${shorten(run.className(columns.believed[i]), 60)} (${percent(columns.believed_prob[i])})`],
          ["score", decimal(columns.score[i])],
        ])));
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const x = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    const y = event.clientY + 16 + height > innerHeight ? event.clientY - 16 - height : event.clientY + 16;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, y)}px`;
  }

  const hideTip = () => { byId("tip").hidden = true; };

  return { show, hide, showTip, hideTip, picture, inContext };
})();
