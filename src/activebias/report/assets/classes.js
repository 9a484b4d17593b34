"use strict";
/* Label by believed class: a matrix that filters the table, and the numbers of every class. */
Report.classes = (() => {
  const { byId, make, fill, count, percent, shorten } = Report.dom;
  // A larger matrix is unreadable: it shows the classes with the most suspects.
  const MOST = innerWidth < 640 ? 8 : 14;
  const LONGEST = innerWidth < 640 ? 12 : 24;

  /** Show the instances with this label and this believed class in the table. */
  function filter(label, believed) {
    byId("filters").reset();
    byId("show").value = label !== null && label === believed ? "all" : "suspects";
    byId("label").value = label ?? "";
    byId("believed").value = believed ?? "";
    Report.main.restrict(null);
    Report.main.filtersChanged();
    byId("suspects").scrollIntoView({ block: "start" });
  }

  /** A function to the number of instances with a label and a believed class; most pairs of many classes have none. */
  function counts(run) {
    const size = run.class_names.length;
    const found = new Map();
    run.columns.label.forEach((label, i) => {
      const pair = label * size + run.columns.believed[i];
      found.set(pair, (found.get(pair) ?? 0) + 1);
    });
    return (label, believed) => found.get(label * size + believed) ?? 0;
  }

  /** The classes of the matrix by name: all, or those with the most suspects. */
  function shownClasses(run) {
    const codes = Report.table.classesByName().map(({ code }) => code);
    if (codes.length <= MOST) return codes;
    const { label, believed } = run.columns;
    const suspects = new Uint32Array(codes.length);
    label.forEach((code, i) => { if (code !== believed[i]) { suspects[code] += 1; suspects[believed[i]] += 1; } });
    const most = new Set(codes.slice().sort((a, b) => suspects[b] - suspects[a]).slice(0, MOST));
    return codes.filter((code) => most.has(code));
  }

  function cell(run, label, believed, number, largest) {
    if (!number) return make("td", { class: "number none" }, "·");
    const names = [run.className(label), run.className(believed)];
    const text = label === believed ? `${count(number)} labelled ${names[0]}, and the model agrees` : `${count(number)} labelled ${names[0]}, believed ${names[1]}`;
    const button = make("button", { type: "button", title: text, "aria-label": text, onclick: () => filter(label, believed) }, count(number));
    if (label !== believed) button.style.setProperty("--share", `${Math.round(15 + 70 * Math.sqrt(number / largest))}%`);
    return make("td", { class: label === believed ? "number agrees" : "number doubts" }, button);
  }

  function matrix(run) {
    const at = counts(run);
    const codes = shownClasses(run);
    let largest = 1;
    for (const a of codes) for (const b of codes) if (a !== b) largest = Math.max(largest, at(a, b));
    const table = byId("matrix");
    const head = (code, scope) => make("th", { scope, title: run.className(code) }, make("span", {}, shorten(run.className(code), LONGEST)));
    fill(table.tHead, make("tr", {}, make("th", { scope: "col", class: "corner" }, "label ↓, believed →"), ...codes.map((code) => head(code, "col"))));
    fill(table.tBodies[0], ...codes.map((label) => make("tr", {}, head(label, "row"), ...codes.map((believed) => cell(run, label, believed, at(label, believed), largest)))));
    byId("matrix-note").textContent = codes.length < run.class_names.length
      ? `The matrix shows the ${codes.length} of ${count(run.class_names.length)} classes with the most suspects. A number filters the table.`
      : "A number filters the table: the instances with this label, and this believed class.";
  }

  function perClass(run) {
    const table = byId("per-class");
    const head = ["Class", "Instances", "Suspects", "Validated", "Recall", "Error"];
    const kinds = [null, "number", "number", "number extra", "number", "number"];
    fill(table.tHead, make("tr", {}, ...head.map((title, i) => make("th", { scope: "col", class: kinds[i] }, title))));
    const order = Report.table.classesByName().map(({ code }) => run.classes[code]);
    fill(table.tBodies[0], ...order.map(({ code, instances, suspects, validated, recall, error }) => make("tr", {},
      make("th", { scope: "row" }, make("button", { type: "button", class: "link", onclick: () => filter(code, null) }, shorten(run.className(code), 40))),
      ...[count(instances), count(suspects), count(validated), percent(recall ?? NaN), percent(error ?? NaN)].map((text, i) => make("td", { class: kinds[i + 1] }, text)))));
  }

  function use(run) {
    matrix(run);
    perClass(run);
  }

  return { use, filter };
})();
