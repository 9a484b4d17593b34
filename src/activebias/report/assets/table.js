"use strict";
/* The table of instances: filter, sort, pages, CSV. */
Report.table = (() => {
  const { byId, make, fill, count, decimal, percent } = Report.dom;
  // `first` is the direction of the first click: what one wants to see of a number is mostly its large end.
  const COLUMNS = [
    { key: "position", title: "Instance", first: "ascending" },
    { key: "label", title: "Label", first: "ascending" },
    { key: "believed", title: "Believed", first: "ascending" },
    { key: "score", title: "Score", first: "descending", show: (v) => decimal(v) },
    { key: "believed_prob", title: "P(believed)", first: "descending", show: percent },
    { key: "label_prob", title: "P(label)", first: "ascending", show: percent },
    { key: "variability", title: "Variability", first: "descending", show: (v) => decimal(v) },
  ];
  // As in the file that `activebias audit` writes; after them the weight and what is shown of the input.
  const CSV_NUMBERS = ["confidence", "variability", "correctness", "label_prob", "believed_prob", "visits", "position", "weight"];

  let run = null;
  let rows = new Uint32Array();
  let places = new Map();
  let order = { key: "score", direction: "descending" };
  let restriction = null;
  let page = 0;
  let asGrid = false;

  const pageSize = () => Number(byId("page-size").value);

  function filtered() {
    const { label, believed, score, position } = run.columns;
    const wantedLabel = byId("label").value, wantedBelieved = byId("believed").value;
    const least = byId("least").value === "" ? -Infinity : Number(byId("least").value);
    const words = byId("search").value.trim().toLowerCase();
    const shown = restriction ? "all" : byId("show").value;
    const matches = (i) => !words || String(position[i]) === words || run.fields.some((field) => field.at(i)?.toLowerCase().includes(words));
    const kept = [];
    for (let i = 0; i < label.length; i += 1) {
      if (shown === "suspects" && !run.columns.suspect[i]) continue;
      if (shown === "conflicts" && !run.columns.conflict[i]) continue;
      if (shown === "undecided" && (!run.columns.suspect[i] || Report.decisions.at(i) !== null)) continue;
      if (shown === "decided" && Report.decisions.at(i) === null) continue;
      if (restriction && !restriction.has(i)) continue;
      if (wantedLabel !== "" && label[i] !== Number(wantedLabel)) continue;
      if (wantedBelieved !== "" && believed[i] !== Number(wantedBelieved)) continue;
      if (score[i] < least || !matches(i)) continue;
      kept.push(i);
    }
    return Uint32Array.from(kept);
  }

  /** What has no value, such as an instance that was never visited, comes last in either direction. */
  const last = (key) => (Number.isNaN(key) ? Infinity : key);

  /** Sort by the chosen column; equal ones by score, worst first, then as they stand in the data. */
  function sorted(kept) {
    const sign = order.direction === "ascending" ? 1 : -1;
    const names = order.key === "label" || order.key === "believed" ? run.name_order : null;
    const keys = Float64Array.from(run.columns[order.key], (value) => last(sign * (names ? names[value] : value)));
    const scores = Float64Array.from(run.columns.score, (value) => last(-value));
    return kept.sort((a, b) => keys[a] - keys[b] || scores[a] - scores[b] || a - b);
  }

  function refresh({ keepPage = false } = {}) {
    rows = sorted(filtered());
    places = new Map(Array.from(rows, (instance, place) => [instance, place]));
    if (!keepPage) page = 0;
    drawHead();
    drawBody();
    const filteredBy = byId("show").value === "suspects" && !restriction ? "suspects" : "instances";
    byId("count").textContent = `${count(rows.length)} ${filteredBy} shown, of ${count(run.columns.label.length)} instances.`;
  }

  function drawHead() {
    const focused = document.activeElement?.dataset?.key;
    fill(byId("instances").tHead, make("tr", {}, ...COLUMNS.map(({ key, title, show }) => {
      const direction = order.key === key ? order.direction : "none";
      const kind = !show ? null : key === "score" ? "number" : "number extra";
      return make("th", { scope: "col", "aria-sort": direction, class: kind },
        make("button", { type: "button", "data-key": key, onclick: () => sortBy(key) }, title));
    }), make("th", { scope: "col" }, "Decision")));
    if (focused) byId("instances").tHead.querySelector(`[data-key="${focused}"]`)?.focus();
  }

  function sortBy(key) {
    const other = { ascending: "descending", descending: "ascending" };
    const direction = order.key === key ? other[order.direction] : COLUMNS.find((column) => column.key === key).first;
    order = { key, direction };
    refresh();
  }

  /** What else the same input is labelled, below the label. */
  function otherLabels(i) {
    const names = run.otherLabels(i).map(run.className);
    return names.length ? make("span", { class: "clamped also" }, `also ${names.join(", ")}`) : null;
  }

  function drawRow(i, chosen) {
    const { columns } = run;
    const caption = run.caption(i);
    const open = make("button", { type: "button", class: "open", "aria-label": `Show ${run.nameOf(i)}${caption ? `: ${caption.slice(0, 80)}` : ""}` },
      Report.detail.picture(run, i, { class: "thumb" }),
      make("span", { class: "clamped" }, ...(run.kind === "table" && caption ? [`${run.nameOf(i)}: `] : []), ...Report.detail.inContext(run, i)));
    const differs = columns.label[i] !== columns.believed[i] ? " differs" : "";
    const numbers = COLUMNS.slice(3).map(({ key, show }) => make("td", { class: key === "score" ? "number" : "number extra" }, show(columns[key][i])));
    return make("tr", { "data-instance": i, "aria-current": i === chosen ? "true" : null, onclick: () => Report.main.choose(i) },
      make("th", { scope: "row", class: "what" }, open),
      make("td", { class: "class-name" }, make("span", { class: "clamped" }, run.className(columns.label[i])), otherLabels(i)),
      make("td", { class: `class-name${differs}` }, make("span", { class: "clamped" }, run.className(columns.believed[i]))),
      ...numbers,
      make("td", { class: "class-name decided" }, make("span", { class: "clamped" }, Report.decisions.words(i))));
  }

  /** Write a decision into the table; the rows themselves stay, and with them the focus. */
  function refreshDecision(instance) {
    for (const cell of document.querySelectorAll(`#suspects [data-instance="${instance}"] .decided > span`)) cell.textContent = Report.decisions.words(instance);
  }

  /** The next instance of the table, after this one, that nothing was decided about. */
  function nextUndecided(instance) {
    const after = rows.subarray((places.get(instance) ?? -1) + 1);
    return after.find((other) => Report.decisions.at(other) === null) ?? null;
  }

  /** Turn to the page of an instance and scroll to it: nobody decides about a row that is out of sight. */
  function reveal(instance) {
    if (!places.has(instance)) return; // chosen on the map, and not in the table
    const its = Math.floor(places.get(instance) / pageSize());
    if (its !== page) { page = its; drawBody(); }
    const shown = document.querySelector(`#suspects [data-instance="${instance}"]`);
    const detail = byId("detail"), { top, bottom } = shown.getBoundingClientRect();
    const isSheet = getComputedStyle(detail).position === "fixed";
    const end = isSheet ? detail.getBoundingClientRect().top : innerHeight;
    if (top < document.querySelector(".page-head").getBoundingClientRect().bottom || bottom > end) shown.scrollIntoView({ block: "start", behavior: "instant" });
  }

  function drawBody() {
    const size = pageSize(), pages = Math.max(1, Math.ceil(rows.length / size));
    page = Math.min(Math.max(page, 0), pages - 1);
    const shown = Array.from(rows.subarray(page * size, (page + 1) * size));
    byId("grid").hidden = !asGrid;
    byId("instances").parentElement.hidden = asGrid;
    if (asGrid) Report.grid.draw(run, shown, Report.main.chosen());
    const nothing = make("tr", {}, make("td", { colspan: COLUMNS.length + 1, class: "empty" }, "No instance fits these filters."));
    if (!asGrid) fill(byId("instances").tBodies[0], ...(shown.length ? shown.map((i) => drawRow(i, Report.main.chosen())) : [nothing]));
    byId("page").textContent = `Page ${count(page + 1)} of ${count(pages)}`;
    byId("page-back").disabled = page === 0;
    byId("page-on").disabled = page === pages - 1;
  }

  /** Mark the chosen row where it is on this page; the rows themselves stay, and with them the focus. */
  function mark(instance) {
    for (const row of document.querySelectorAll("#instances tr[data-instance], #grid [data-instance]")) {
      if (Number(row.dataset.instance) === instance) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  /** Quote as RFC 4180 asks: only where a comma, a quote or a line break is inside. */
  const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

  /** A spreadsheet takes such a text for a formula; an apostrophe before it says that it is none. */
  const safe = (cell) => (/^[=+\-@\t\r\n]/.test(cell) && !/^[+-][\d.]+(e[+-]?\d+)?$/i.test(cell) ? `'${cell}` : cell);

  const known = (number) => (Number.isNaN(number) ? "" : String(Number(number.toPrecision(7))));

  /** Where the instances are in the source: the first columns of the file, as `activebias audit` names them. */
  function sourceColumns() {
    const { columns } = run;
    const number = (name, values) => ({ name, at: (i) => String(values[i]) });
    if (columns.word) return [number("sentence", columns.position), number("word", columns.word)];
    if (run.kind !== "images") return [number("row", columns.position)];
    return run.fields.filter((field) => field.name === "file");
  }

  function csv() {
    const { columns } = run;
    const first = sourceColumns(), fields = run.fields.filter((field) => !first.includes(field));
    const head = [...first.map((place) => place.name), "label", "believed", "score", "suspected", "conflict", "part", ...CSV_NUMBERS, "index", ...fields.map((field) => field.name)];
    const lines = Array.from(rows, (i) => [
      ...first.map((place) => place.at(i) ?? ""), run.className(columns.label[i]), run.className(columns.believed[i]), known(columns.score[i]),
      columns.suspect[i] ? "True" : "False", String(columns.conflict?.[i] || ""), partOf(i), ...CSV_NUMBERS.map((key) => known(columns[key][i])), String(i), ...fields.map((field) => field.at(i) ?? ""),
    ]);
    return csvText([head, ...lines]);
  }

  const csvText = (lines) => lines.map((cells) => cells.map((cell) => quoted(safe(cell))).join(",")).join("\r\n") + "\r\n";

  const partOf = (i) => (run.columns.validates?.[i] ? "validation" : "training");

  function download(text, name) {
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    const link = make("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  function classesByName() {
    const options = Array.from(run.class_names, (name, code) => ({ name, code }));
    return options.sort((a, b) => run.name_order[a.code] - run.name_order[b.code]);
  }

  function classChoices(select) {
    fill(select, make("option", { value: "" }, "any"), ...classesByName().map(({ name, code }) => make("option", { value: code }, name)));
  }

  function use(newRun) {
    run = newRun;
    restriction = null;
    order = { key: "score", direction: "descending" };
    byId("filters").reset();
    asGrid = asGrid && Boolean(run.images);
    byId("layout").hidden = !run.images;
    pressLayout();
    for (const choice of byId("show").querySelectorAll("[value=conflicts]")) choice.remove();
    if (run.columns.conflict) byId("show").append(make("option", { value: "conflicts" }, "Conflicts"));
    classChoices(byId("label"));
    classChoices(byId("believed"));
    const longestWord = run.class_names.reduce((most, name) => Math.max(most, ...name.split(/\s/).map((word) => word.length)), 0);
    byId("instances").style.setProperty("--word", longestWord);
    refresh();
  }

  function pressLayout() {
    byId("as-table").setAttribute("aria-pressed", String(!asGrid));
    byId("as-grid").setAttribute("aria-pressed", String(asGrid));
  }

  function lay(grid) {
    asGrid = grid;
    pressLayout();
    drawBody();
  }

  function start() {
    let waiting = null;
    byId("as-table").addEventListener("click", () => lay(false));
    byId("as-grid").addEventListener("click", () => lay(true));
    const changed = () => { refresh(); Report.main.filtersChanged(); };
    const changedSoon = () => { clearTimeout(waiting); waiting = setTimeout(changed, 150); };
    for (const id of ["show", "label", "believed"]) byId(id).addEventListener("change", changed);
    for (const id of ["least", "search"]) byId(id).addEventListener("input", changedSoon);
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("filters").addEventListener("reset", () => setTimeout(() => Report.main.restrict(null), 0));
    byId("export").addEventListener("click", () => download(csv(), "suspects.csv"));
    byId("page-size").addEventListener("change", () => { page = 0; drawBody(); });
    byId("page-back").addEventListener("click", () => { page -= 1; drawBody(); });
    byId("page-on").addEventListener("click", () => { page += 1; drawBody(); });
  }

  return {
    start, use, refresh, mark, csv, csvText, download, sourceColumns, partOf, classesByName, refreshDecision, nextUndecided, reveal,
    rows: () => rows,
    at: (place) => rows[place],
    placeOf: (instance) => places.get(instance) ?? -1,
    restrict: (instances) => { restriction = instances; refresh(); },
  };
})();
