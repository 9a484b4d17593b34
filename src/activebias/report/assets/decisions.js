"use strict";
/* What the reader decided about each suspect, kept in this browser and exported as corrections.csv. */
Report.decisions = (() => {
  const { byId, make, fill, count } = Report.dom;
  const KEYS = { a: "accept", k: "keep", o: "other", u: "undo", n: "next", p: "previous" };

  let run = null;
  let made = new Map();
  let isKept = true;

  /** The decisions of a run are kept under its digest: a report that is written again finds them. */
  const name = () => `activebias corrections ${run.digest}`;

  function use(newRun) {
    run = newRun;
    made = new Map();
    isKept = true;
    try {
      const { label } = run.columns;
      for (const [instance, code] of JSON.parse(localStorage.getItem(name()) ?? "[]")) {
        if (instance < label.length && code < run.class_names.length) made.set(instance, code);
      }
    } catch {
      isKept = false;
    }
    tell();
  }

  function keep() {
    try {
      if (made.size) localStorage.setItem(name(), JSON.stringify([...made]));
      else localStorage.removeItem(name());
    } catch {
      isKept = false;
    }
  }

  /** The class that was decided on, or null. */
  const at = (instance) => made.get(instance) ?? null;

  /** What was decided, in a word for the table. */
  function words(instance) {
    const code = at(instance);
    if (code === null) return "";
    return code === run.columns.label[instance] ? "kept" : `→ ${run.className(code)}`;
  }

  function decide(instance, code) {
    if (code === null) made.delete(instance);
    else made.set(instance, code);
    keep();
    tell();
    Report.table.refreshDecision(instance);
  }

  function tell() {
    const { label } = run.columns;
    let changed = 0;
    for (const [instance, code] of made) changed += code !== label[instance];
    byId("decided").textContent = made.size
      ? `${count(made.size)} decided: ${count(changed)} changed, ${count(made.size - changed)} kept.${isKept ? "" : " This browser does not keep them: export before you close the page."}`
      : "Nothing decided yet.";
    byId("export-corrections").disabled = made.size === 0;
    byId("forget").hidden = made.size === 0;
  }

  function goTo(instance) {
    Report.main.choose(instance);
    Report.table.reveal(instance);
  }

  /** Decide about the chosen instance and go on to the next one that is undecided. */
  function decideAndGoOn(instance, code) {
    decide(instance, code);
    goTo(Report.table.nextUndecided(instance) ?? instance);
  }

  function act(action, instance) {
    const { label, believed } = run.columns;
    if (action === "next" || action === "previous") {
      const place = instance === null ? -1 : Report.table.placeOf(instance);
      const other = Report.table.at(action === "next" ? place + 1 : Math.max(place - 1, 0));
      if (other !== undefined) goTo(other);
    } else if (instance === null) return;
    else if (action === "accept" && label[instance] !== believed[instance]) decideAndGoOn(instance, believed[instance]);
    else if (action === "keep") decideAndGoOn(instance, label[instance]);
    else if (action === "undo") { decide(instance, null); Report.main.choose(instance); }
    else if (action === "other") byId("other-class")?.focus();
  }

  /** The buttons in the panel of one instance. */
  function controls(instance) {
    const { label, believed } = run.columns;
    const decided = at(instance);
    const button = (action, text, key, isPressed) => make("button", {
      type: "button", class: isPressed ? "chosen" : "quiet", "aria-pressed": String(isPressed), "aria-keyshortcuts": key,
      onclick: () => act(action, instance) }, text, make("kbd", {}, key.toUpperCase()));
    const differs = label[instance] !== believed[instance];
    const isOther = decided !== null && decided !== label[instance] && !(differs && decided === believed[instance]);
    const choice = make("select", { id: "other-class", "aria-label": "Another class", "aria-keyshortcuts": "o" },
      make("option", { value: "" }, "other class… (O)"), ...Report.table.classesByName().map(({ name: text, code }) => make("option", { value: code }, text)));
    choice.value = isOther ? String(decided) : "";
    choice.addEventListener("change", () => { if (choice.value !== "") decideAndGoOn(instance, Number(choice.value)); });
    return make("div", { class: "decision", role: "group", "aria-label": "Your decision" },
      differs ? button("accept", `Accept ${Report.dom.shorten(run.className(believed[instance]), 24)} `, "a", decided === believed[instance]) : null,
      button("keep", `Keep ${Report.dom.shorten(run.className(label[instance]), 24)} `, "k", decided === label[instance]),
      choice,
      decided === null ? null : button("undo", "Undo ", "u", false));
  }

  function csv() {
    const { label, believed, score } = run.columns;
    const first = Report.table.sourceColumns();
    const head = [...first.map((place) => place.name), "part", "label", "new_label", "believed", "score", "decision"];
    const lines = [...made].sort(([a], [b]) => a - b).map(([i, code]) => [
      ...first.map((place) => place.at(i) ?? ""), Report.table.partOf(i), run.className(label[i]), run.className(code), run.className(believed[i]),
      String(Number(score[i].toPrecision(7))), code === label[i] ? "keep" : code === believed[i] ? "accept" : "other",
    ]);
    return Report.table.csvText([head, ...lines]);
  }

  function forget() {
    if (!confirm(`Forget ${made.size} decisions?`)) return;
    made = new Map();
    keep();
    tell();
    Report.table.refresh({ keepPage: true });
    if (Report.main.chosen() !== null) Report.main.choose(Report.main.chosen());
  }

  /** A menu gives the focus back after a choice with the mouse, so that the letter keys decide again.
      A choice with the keyboard keeps the focus: the next arrow key goes on in the menu. Escape leaves it. */
  function leaveMenus() {
    let typedIn = null;
    addEventListener("focusin", () => { typedIn = null; });
    addEventListener("keydown", (event) => {
      typedIn = event.target;
      if (event.key === "Escape" && event.target.matches?.("select")) event.target.blur();
    });
    addEventListener("change", ({ target }) => { if (target.matches?.("select") && target !== typedIn) target.blur(); });
  }

  function start() {
    leaveMenus();
    byId("export-corrections").addEventListener("click", () => Report.table.download(csv(), "corrections.csv"));
    byId("forget").addEventListener("click", forget);
    addEventListener("keydown", (event) => {
      const isTyping = event.target.closest?.("input, select, textarea");
      const action = KEYS[event.key.toLowerCase()]; // also with Caps Lock
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !action) return;
      event.preventDefault();
      act(action, Report.main.chosen());
    });
  }

  return { use, start, at, words, controls, decide, csv };
})();
