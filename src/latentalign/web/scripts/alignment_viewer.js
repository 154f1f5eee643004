/* Alignment matrices: which source words generated each target word. */
const alignmentData = readData("alignment-data");
if (hasRecords(alignmentData)) alignmentViewer(alignmentData);

/* Draw the alignments of every model; returns a function that shows the last sentence after one was added. */
function alignmentViewer(models) {
  const at = id => document.getElementById(id);
  const VIEWS = [
    ["soft", "soft attention"], ["prior", "prior p"], ["inferred", "inferred q"], ["posterior", "exact posterior"],
    ["forward", "source to target"], ["backward", "target to source"], ["gold", "gold"],
  ];
  const UNITS = [["words", "words"], ["pieces", "subwords"]];
  const names = Object.keys(models);
  const state = { model: names.find(n => n.startsWith("variational")) ?? names.at(-1), sentence: 0, using: "posterior",
    unit: "words" };

  let lit = () => {}, line = [];
  new ResizeObserver(() => drawPath(line)).observe(at("matrix"));
  at("matrix").addEventListener("focusin", event => touched(event, (i, j) => lit(i, j)));

  for (const name of names) at("model").add(new Option(name, name));
  radios("using", VIEWS);
  radios("unit", UNITS);
  at("model").addEventListener("change", () => { state.model = at("model").value; draw(); });
  at("sentence").addEventListener("change", () => { state.sentence = Number(at("sentence").value); draw(); });
  at("previous").addEventListener("click", () => step(-1));
  at("next").addEventListener("click", () => step(1));
  draw();
  return () => { state.sentence = models[state.model].length - 1; draw(); };

  function radios(group, choices) {
    for (const [value, text] of choices) {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { type: "radio", name: group, value, id: `${group}-${value}` });
      input.addEventListener("change", () => { state[group] = value; draw(); });
      label.append(input, " ", text);
      at(group).append(label);
    }
  }

  function step(by) {
    const count = models[state.model].length;
    state.sentence = (state.sentence + by + count) % count;
    draw();
  }

  function bytes(text) {
    return Uint8Array.from(atob(text), c => c.charCodeAt(0));
  }

  /* The record a view takes its matrix from, and the matrix's name there. */
  function origin(using) {
    const record = models[state.model][state.sentence];
    if (using !== "soft") return [record, using];
    return [models.soft?.find(r => r.sentence === record.sentence), "prior"];
  }

  function available(using, unit) {
    const [record, name] = origin(using);
    if (!record) return false;
    if (using === "gold") return unit === "words" && "sure" in record;
    return name in ((unit === "words" ? record.matrices : record.piece_matrices) ?? {});
  }

  /* The probabilities of NULL that belong to a view, one for each row; undefined without NULL. */
  function nulls(using, unit) {
    const [record, name] = origin(using);
    return (unit === "words" ? record.null : record.piece_null)?.[name];
  }

  /* A row for each target word, a column for each source word, and one more for NULL where the model has it. */
  function withNull(matrix, rows, columns, extra) {
    if (!extra) return matrix;
    return Float64Array.from({ length: rows * (columns + 1) }, (_, n) => {
      const i = n % (columns + 1), j = Math.floor(n / (columns + 1));
      return i < columns ? matrix[j * columns + i] : extra[j];
    });
  }

  function probabilities(using, unit, rows, columns) {
    const [record, name] = origin(using);
    if (using === "gold") {
      const matrix = new Float64Array(rows * columns);
      for (const [i, j] of record.sure) matrix[j * columns + i] = 1;
      for (const [i, j] of record.possible) matrix[j * columns + i] = 0.5;
      return matrix;
    }
    const kept = (unit === "words" ? record.matrices : record.piece_matrices)[name];  // bytes, or rows of numbers
    return Array.isArray(kept) ? Float64Array.from(kept.flat()) : Float64Array.from(bytes(kept), x => x / 255);
  }

  function controls() {
    const records = models[state.model];
    at("model").value = state.model;
    at("sentence").replaceChildren(...records.map((r, k) => new Option(`${r.sentence}. ${r.target.join(" ")}`, k)));
    state.sentence = Math.min(state.sentence, records.length - 1);
    at("sentence").value = state.sentence;
    const pieces = "piece_matrices" in records[state.sentence];
    at("unit").hidden = !pieces;
    if (!pieces) state.unit = "words";
    if (!available(state.using, state.unit)) state.using = "prior";
    for (const [value] of VIEWS) {
      const input = at(`using-${value}`);
      input.disabled = !available(value, state.unit);
      input.checked = value === state.using;
    }
    for (const [value] of UNITS) at(`unit-${value}`).checked = value === state.unit;
  }

  function draw() {
    controls();
    const record = models[state.model][state.sentence], words = state.unit === "words";
    const target = words ? record.target : record.target_pieces, extra = nulls(state.using, state.unit);
    let source = words ? record.source : record.source_pieces;
    const found = probabilities(state.using, state.unit, target.length, source.length);
    const matrix = withNull(found, target.length, source.length, extra);
    if (extra) source = [...source, "NULL"];
    const path = state.using === "posterior" ? (words ? record.path : record.piece_path) ?? [] : [];
    const steps = path.map(([i, j]) => [i ?? source.length - 1, j, i === null]);
    const table = at("matrix");
    table.replaceChildren();
    table.style.setProperty("--hue", `var(--${state.using})`);
    const head = table.createTHead().insertRow();
    head.append(document.createElement("td"));
    source.forEach((word, i) => head.append(header(word, i, null, true)));
    const last = document.createElement("th");
    last.append(document.createElement("span"));
    last.firstChild.textContent = "entropy";
    head.append(last);
    fillRows(table.createTBody(), record, source, target, matrix, new Set(steps.map(([i, j]) => `${i}-${j}`)));
    if (extra) for (const row of table.rows) row.cells[source.length].classList.add("null");
    const light = (i, j) => point(source, target, matrix, i, j);
    table.onpointerover = event => touched(event, light);
    lit = light;
    table.onpointerleave = () => light(null, null);
    table.onkeydown = event => move(event, target.length, source.length);
    light(null, null);
    drawPath(steps);
    at("path-note").textContent = describePath(steps, record.path_log_prob);
  }

  function fillRows(body, record, source, target, matrix, onPath) {
    const links = kind => new Set((state.unit === "words" && record[kind] || []).map(([i, j]) => `${i}-${j}`));
    const sure = links("sure"), possible = links("possible");
    target.forEach((word, j) => {
      const row = body.insertRow();
      row.append(header(word, null, j, false));
      let entropy = 0;
      source.forEach((_, i) => {
        const p = matrix[j * source.length + i], cell = row.insertCell(), key = `${i}-${j}`;
        if (p > 0) entropy -= p * Math.log(p);
        cell.className = "p" + (sure.has(key) ? " sure" : possible.has(key) ? " possible" : "");
        cell.tabIndex = i || j ? -1 : 0;
        Object.assign(cell.dataset, { i, j });
        const label = `${word}, ${source[i]}: ${p.toFixed(2)}`;
        cell.setAttribute("aria-label", onPath.has(key) ? `${label}, on the best path` : label);
        const ink = document.createElement("i");
        ink.style.setProperty("--share", p.toFixed(3));
        cell.append(ink);
      });
      const note = row.insertCell();
      note.className = "entropy";
      if (state.using !== "gold") {
        const bar = document.createElement("b");
        bar.style.width = `${(entropy * 1.2).toFixed(2)}rem`;
        note.append(bar, entropy.toFixed(2));
      }
    });
  }

  /* A line through the cells of a path. It passes by NULL, where the chain keeps its position; a diamond marks it. */
  function drawPath(steps) {
    line = steps;
    const svg = at("path"), box = svg.parentElement.getBoundingClientRect();
    svg.replaceChildren();
    const centre = ([i, j]) => {
      const cell = at("matrix").querySelector(`td.p[data-i="${i}"][data-j="${j}"]`).getBoundingClientRect();
      return [cell.left + cell.width / 2 - box.left, cell.top + cell.height / 2 - box.top];
    };
    const add = (name, className, attributes) => {
      const shape = document.createElementNS(svg.namespaceURI, name);
      shape.setAttribute("class", className);
      for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
      svg.append(shape);
    };
    const points = steps.filter(([, , isNull]) => !isNull).map(centre);
    for (const kind of ["halo", "line"]) add("polyline", kind, { points: points.map(p => p.join()).join(" ") });
    for (const [x, y] of points) add("circle", "stop", { cx: x, cy: y, r: 4 });
    for (const [x, y] of steps.filter(([, , isNull]) => isNull).map(centre)) {
      add("path", "stop", { d: `M${x} ${y - 7}l7 7l-7 7l-7-7z` });
    }
  }

  function describePath(steps, logProb) {
    if (!steps.length) return "";
    const p = Math.exp(logProb), text = p >= 0.001 ? p.toFixed(3) : p.toExponential(1);
    const nothing = steps.some(([, , isNull]) => isNull) ? " Diamonds mark outputs from NULL: the path keeps its position." : "";
    return `The line is the most probable path of the chain. Its posterior probability, including the end of the sentence, is ${text}.${nothing}`;
  }

  function touched(event, light) {
    const cell = event.target.closest("[data-i],[data-j]");
    if (cell) light(number(cell.dataset.i), number(cell.dataset.j));
  }

  function number(text) {
    return text === undefined ? null : Number(text);
  }

  function header(word, i, j, upright) {
    const cell = document.createElement("th");
    cell.scope = upright ? "col" : "row";
    if (i !== null) cell.dataset.i = i;
    if (j !== null) cell.dataset.j = j;
    cell.tabIndex = 0;
    const span = document.createElement("span");
    span.textContent = word;
    cell.append(span);
    return cell;
  }

  function move(event, rows, columns) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const from = event.target.closest("td.p");
    if (!steps || !from) return;
    event.preventDefault();
    const i = Math.min(columns - 1, Math.max(0, Number(from.dataset.i) + steps[0]));
    const j = Math.min(rows - 1, Math.max(0, Number(from.dataset.j) + steps[1]));
    const to = at("matrix").querySelector(`td.p[data-i="${i}"][data-j="${j}"]`);
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  /* Light up a word and its partners on the other side: those with at least a tenth of the probability. */
  function point(source, target, matrix, i, j) {
    const share = (a, b) => matrix[b * source.length + a];
    const lit = new Set();
    if (i !== null) lit.add(`i${i}`);
    if (j !== null) lit.add(`j${j}`);
    const partners = [];
    if (j !== null && i === null) source.forEach((w, a) => share(a, j) >= 0.1 && partners.push([`i${a}`, w, share(a, j)]));
    if (i !== null && j === null) target.forEach((w, b) => share(i, b) >= 0.1 && partners.push([`j${b}`, w, share(i, b)]));
    for (const [key] of partners) lit.add(key);
    for (const cell of at("matrix").querySelectorAll("th[data-i],th[data-j]")) {
      cell.classList.toggle("lit", lit.has(cell.dataset.i !== undefined ? `i${cell.dataset.i}` : `j${cell.dataset.j}`));
    }
    for (const cell of at("matrix").querySelectorAll("td.p")) {
      cell.classList.toggle("lit", i !== null && j !== null && Number(cell.dataset.i) === i && Number(cell.dataset.j) === j);
    }
    const list = partners.sort((a, b) => b[2] - a[2]).map(([, w, p]) => `${w} ${p.toFixed(2)}`).join(", ");
    let text = "";
    if (i !== null && j !== null) text = `${target[j]} from ${source[i]}: ${share(i, j).toFixed(2)}`;
    else if (j !== null) text = `${target[j]} from ${list || "nothing above 0.1"}`;
    else if (i !== null) text = `${source[i]} to ${list || "nothing above 0.1"}`;
    at("reading").textContent = text;
  }
}
