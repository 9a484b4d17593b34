"use strict";
/* From the page's data blocks (gzip in base64) to typed arrays, texts and pictures. */
Report.data = (() => {
  const { byId } = Report.dom;
  const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, int32: Int32Array, float32: Float32Array };
  const NAMES = { images: "Image", table: "Row", text: "Row", tagging: "Sentence" };
  const header = JSON.parse(byId("report-data").textContent);

  function fromBase64(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const characters = atob(text);
    const bytes = new Uint8Array(characters.length);
    for (let i = 0; i < bytes.length; i += 1) bytes[i] = characters.charCodeAt(i);
    return bytes;
  }

  const encoded = (id) => byId(`blob-${id}`).textContent;

  async function unpacked(id) {
    const stream = new Blob([fromBase64(encoded(id))]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  const numbers = async (column) => new ARRAYS[column.type](await unpacked(column.blob));
  const json = async (id) => JSON.parse(new TextDecoder().decode(await unpacked(id)));

  async function columnsOf(described) {
    const names = Object.keys(described);
    const arrays = await Promise.all(names.map((name) => numbers(described[name])));
    return Object.fromEntries(names.map((name, i) => [name, arrays[i]]));
  }

  /** What is shown of the inputs: one list of texts a field, told as the different texts and a code an instance. */
  async function fieldsOf(described) {
    return Promise.all(
      described.map(async ({ name, texts, codes, identifies }) => {
        const [values, positions] = await Promise.all([json(texts), codes ? numbers(codes) : null]);
        return { name, identifies, at: (i) => (positions ? values[positions[i]] : values[i]) ?? null };
      }),
    );
  }

  /** A function from an instance to the address of its picture, or to null where that was left out. */
  async function picturesOf(images) {
    if (!images) return () => null;
    const places = await numbers(images.places);
    const [width, height] = images.cell;
    const perSheet = images.across * images.across;
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = images.cell;
    const context = canvas.getContext("2d");

    // A sheet is decoded when it is first looked at: all of them would take long, and much memory.
    const sheets = new Map();
    function sheet(number) {
      if (!sheets.has(number)) {
        const picture = new Image();
        picture.src = `data:${images.mime};base64,${encoded(images.sheets[number])}`;
        sheets.set(number, picture.decode().then(() => picture));
      }
      return sheets.get(number);
    }

    async function address(place) {
      const source = await sheet(Math.floor(place / perSheet));
      const cell = place % perSheet;
      const x = (cell % images.across) * width, y = Math.floor(cell / images.across) * height;
      context.clearRect(0, 0, width, height);
      context.drawImage(source, x, y, width, height, 0, 0, width, height);
      return canvas.toDataURL();
    }

    return (instance) => (places[instance] < 0 ? null : address(places[instance]));
  }

  /** Functions from an instance to the other labels that its input has, and to the instances that have them. */
  function conflictsOf({ conflict, label }) {
    const labels = new Map();
    conflict?.forEach((group, i) => {
      if (!labels.has(group)) labels.set(group, new Set());
      labels.get(group).add(label[i]);
    });
    return {
      otherLabels: (i) => (conflict?.[i] ? [...labels.get(conflict[i])].filter((code) => code !== label[i]) : []),
      contradicting: (i) => Array.from(label.keys()).filter((other) => conflict[other] === conflict[i] && label[other] !== label[i]),
    };
  }

  async function load(run) {
    const [columns, fields, picture, history] = await Promise.all([
      columnsOf(run.columns),
      fieldsOf(run.fields),
      picturesOf(run.images),
      numbers(run.history),
    ]);
    const visits = run.history.visits;
    return {
      ...run,
      columns,
      fields,
      picture,
      ...conflictsOf(columns),
      className: (code) => run.class_names[code] ?? `class ${code}`,
      /** What to call an instance: by its place in the source, counted from 0. */
      nameOf: (i) => `${NAMES[run.kind]} ${columns.position[i]}${columns.word ? `, word ${columns.word[i]}` : ""}`,
      /** A few words that tell the instance: its file, its text or word; of a row all its columns. */
      caption: (i) => {
        if (run.kind !== "table") return fields.find((field) => !field.identifies)?.at(i) ?? "";
        return fields.filter((field) => field.at(i) !== null).map((field) => `${field.name}=${field.at(i) || "–"}`).join(", ");
      },
      /** [number of the visit, probability] of every visit that is kept. */
      visits: (i) => {
        const found = [];
        for (let t = 0; t < visits.length; t += 1) {
          const value = history[i * visits.length + t];
          if (value < 255) found.push([visits[t], value / 254]);
        }
        return found;
      },
    };
  }

  const cache = new Map();
  function run(number) {
    if (!cache.has(number)) cache.set(number, load(header.runs[number]));
    return cache.get(number);
  }

  return { header, run };
})();
