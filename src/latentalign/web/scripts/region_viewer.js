/* Pictures: where a model looks, and what it would answer if it looked there. */
const regionData = readData("region-data");
const BLANK = blankPicture();  // in place of a picture that is not there
if (hasRecords(regionData.models)) regionViewer(regionData.models, regionData.pictures);

function blankPicture() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [640, 480];
  const paper = canvas.getContext("2d");
  paper.fillStyle = "#777";
  paper.fillRect(0, 0, canvas.width, canvas.height);
  return canvas.toDataURL();
}

/* Regions as a grid: { rows, columns, order }, order[cell] = region. Null if they do not tile the picture. */
function gridOf(boxes) {
  const near = (a, b) => Math.abs(a - b) < 1e-3;
  const [width, height] = [boxes[0][2] - boxes[0][0], boxes[0][3] - boxes[0][1]];
  const [columns, rows] = [Math.round(1 / width), Math.round(1 / height)];
  if (boxes.length < 4 || columns * rows !== boxes.length) return null;
  const order = new Array(boxes.length).fill(-1);
  for (const [k, [x1, y1, x2, y2]] of boxes.entries()) {
    const [column, row] = [Math.round(x1 * columns), Math.round(y1 * rows)];
    const fits = near(x1, column / columns) && near(y1, row / rows) && near(x2 - x1, width) && near(y2 - y1, height);
    if (!fits || order[row * columns + column] !== -1) return null;
    order[row * columns + column] = k;
  }
  return { rows, columns, order };
}

/* Draw the regions of every question; returns a function that shows the last question after one was added. */
function regionViewer(models, pictures) {
  const at = id => document.getElementById(id);
  const VIEWS = [["prior", "prior p"], ["inferred", "inferred q"], ["posterior", "exact posterior"]];
  const DRAWINGS = [["heat", "heat map"], ["boxes", "boxes"]];
  const LISTED = 8;  // regions in the list before all are asked for
  const names = Object.keys(models);
  const state = { model: names.includes("marginal") ? "marginal" : names.at(-1), question: 0, using: "posterior",
    drawing: "heat", all: false, region: 0 };
  let record, shares, ranking, grid, cells, lines;

  for (const name of names) at("look-model").add(new Option(name, name));
  at("look-model").parentElement.hidden = names.length < 2;
  radios("using", VIEWS);
  radios("drawing", DRAWINGS);
  at("look-model").addEventListener("change", () => { state.model = at("look-model").value; draw(); });
  at("look-question").addEventListener("change", () => { state.question = Number(at("look-question").value); draw(); });
  at("look-previous").addEventListener("click", () => step(-1));
  at("look-next").addEventListener("click", () => step(1));
  at("look-all").addEventListener("click", () => { state.all = !state.all; drawList(); });
  at("look").addEventListener("keydown", move);
  draw();
  return () => { state.question = models[state.model].length - 1; draw(); };

  function radios(key, choices) {
    for (const [value, text] of choices) {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { type: "radio", name: `look-${key}`, value, id: `look-${value}` });
      input.addEventListener("change", () => { state[key] = value; draw(); });
      label.append(input, " ", text);
      at(`look-${key}`).append(label);
    }
  }

  function step(by) {
    const count = models[state.model].length;
    state.question = (state.question + by + count) % count;
    draw();
  }

  function percent(p) {
    return p >= 0.0005 || p === 0 ? `${(100 * p).toFixed(1)}\u00a0%` : "<\u00a00.1\u00a0%";
  }

  function place(element, [x1, y1, x2, y2]) {
    const length = x => `${(100 * x).toFixed(2)}%`;
    Object.assign(element.style, { left: length(x1), top: length(y1), width: length(x2 - x1), height: length(y2 - y1) });
  }

  function draw() {
    const records = models[state.model];
    record = records[state.question];
    at("look-model").value = state.model;
    at("look-question").replaceChildren(...records.map((r, k) => new Option(r.question, k)));
    at("look-question").value = state.question;
    if (!(state.using in record.looks)) state.using = "posterior";
    shares = record.looks[state.using];
    ranking = shares.map((p, k) => k).sort((a, b) => shares[b] - shares[a]);
    grid = gridOf(record.boxes);
    state.region = ranking[0];
    for (const [value] of VIEWS) {
      at(`look-${value}`).checked = value === state.using;
      at(`look-${value}`).disabled = !(value in record.looks);
    }
    for (const [value] of DRAWINGS) at(`look-${value}`).checked = value === drawing();
    at("look-drawing").hidden = grid === null;
    at("look-answer").textContent = record.answer !== undefined
      ? `It says ${record.predicted}; most people say ${record.answer}.`
      : `It says ${record.predicted}; q and posterior are given the answer ${record.given}.`;
    drawPicture();
    drawList();
    select(state.region);
  }

  function drawing() { return grid ? state.drawing : "boxes"; }

  function drawPicture() {
    const box = at("look"), image = document.createElement("img"), top = shares[ranking[0]];
    box.style.setProperty("--hue", `var(--${state.using})`);
    at("look-viewer").style.setProperty("--hue", `var(--${state.using})`);
    box.className = `look ${drawing()}`;
    image.addEventListener("load", () => {
      if (image.naturalHeight) box.style.setProperty("--aspect", image.naturalWidth / image.naturalHeight);
    });
    const address = pictures[record.image_id] ?? BLANK;
    Object.assign(image, { src: address, alt: `picture ${record.image_id}` });
    at("look-missing").textContent = address === BLANK ? `There is no file of picture ${record.image_id}. ${regionData.missing}`.trim() : "";
    box.replaceChildren(image);
    if (drawing() === "heat") box.append(heatMap());
    cells = [];
    const area = ([x1, y1, x2, y2]) => Math.round(1e6 * (x2 - x1) * (y2 - y1));
    const largest = shares.map((p, k) => k).sort((a, b) => area(record.boxes[b]) - area(record.boxes[a]));
    for (const k of largest) box.append(cells[k] = region(k, shares[k] / top));  // small regions lie above large ones
    for (const gold of record.gold) {
      const mark = document.createElement("span");
      mark.className = "gold";
      place(mark, gold);
      box.append(mark);
    }
  }

  /* A region on the picture. Its strength is relative to the most probable region. */
  function region(k, share) {
    const button = document.createElement("button");
    button.type = "button";
    button.tabIndex = -1;
    button.style.setProperty("--share", share.toFixed(3));
    button.setAttribute("aria-label", describe(k));
    button.addEventListener("pointerenter", () => select(k));
    button.addEventListener("focus", () => select(k));
    place(button, record.boxes[k]);
    return button;
  }

  /* One pixel for each cell of the grid; the browser smooths it over the picture. */
  function heatMap() {
    const canvas = document.createElement("canvas"), top = shares[ranking[0]];
    Object.assign(canvas, { width: grid.columns, height: grid.rows, className: "heat-map" });
    canvas.setAttribute("aria-hidden", "true");
    const context = canvas.getContext("2d"), pixels = context.createImageData(grid.columns, grid.rows);
    const hue = getComputedStyle(at("look")).getPropertyValue(`--${state.using}`).trim().split(/\s+/).map(Number);
    grid.order.forEach((k, cell) => {
      const share = shares[k] / top, tint = 0.6 * share, shade = 0.45 * (1 - share);  // the picture is dark elsewhere
      const opacity = tint + shade * (1 - tint);
      pixels.data.set([...hue.map(x => Math.round(x * tint / opacity)), Math.round(255 * opacity)], 4 * cell);
    });
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  function describe(k) {
    const says = record.says[k].map(([answer, share]) => `${answer} ${share.toFixed(2)}`).join(", ");
    return `looks here with ${percent(shares[k])} (rank ${ranking.indexOf(k) + 1} of ${shares.length}); `
      + `if it looked here, it would say ${says}`;
  }

  /* The most probable regions with their weights, or all of them. */
  function drawList() {
    const count = state.all ? ranking.length : Math.min(LISTED, ranking.length), top = shares[ranking[0]];
    const held = ranking.slice(0, count).reduce((sum, k) => sum + shares[k], 0);
    at("look-held").textContent = count < ranking.length
      ? `The ${count} most probable of ${ranking.length} regions hold ${percent(held)}.`
      : `All ${ranking.length} regions, the most probable first.`;
    at("look-all").hidden = ranking.length <= LISTED;
    at("look-all").textContent = state.all ? `Show the first ${LISTED}` : `Show all ${ranking.length}`;
    at("look-all").setAttribute("aria-expanded", String(state.all));
    lines = [];
    at("look-list").replaceChildren(...ranking.slice(0, count).map(k => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.append(part("weight", percent(shares[k])), part("bar", ""), part("says", record.says[k][0][0]));
      button.style.setProperty("--share", (shares[k] / top).toFixed(3));
      button.setAttribute("aria-label", describe(k));
      for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => select(k));
      lines[k] = button;
      item.append(button);
      return item;
    }));
    if (lines[state.region]) lines[state.region].setAttribute("aria-current", "true");
  }

  function part(name, text) {
    const span = document.createElement("span");
    span.className = name;
    span.textContent = text;
    return span;
  }

  /* Mark a region on the picture and in the list, and tell about it. */
  function select(k) {
    for (const marked of [cells[state.region], lines[state.region]]) marked?.removeAttribute("aria-current");
    cells[state.region].tabIndex = -1;
    state.region = k;
    for (const marked of [cells[k], lines[k]]) marked?.setAttribute("aria-current", "true");
    cells[k].tabIndex = 0;  // the one region that the Tab key reaches; arrow keys go on from there
    at("look-reading").textContent = describe(k);
  }

  /* Arrow keys go to the next cell of a grid; among other regions, to the next rank. Home and End go to the ends. */
  function move(event) {
    const rank = ranking.indexOf(state.region), last = ranking.length - 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
    let next = null;
    if (event.key === "Home") next = ranking[0];
    else if (event.key === "End") next = ranking[last];
    else if (event.key in steps && grid) {
      const cell = grid.order.indexOf(state.region), row = Math.floor(cell / grid.columns), column = cell % grid.columns;
      const across = event.key === "ArrowLeft" || event.key === "ArrowRight";
      const to = [row + (across ? 0 : steps[event.key]), column + (across ? steps[event.key] : 0)];
      if (to[0] < 0 || to[0] >= grid.rows || to[1] < 0 || to[1] >= grid.columns) return;
      next = grid.order[to[0] * grid.columns + to[1]];
    } else if (event.key in steps) next = ranking[Math.min(last, Math.max(0, rank + steps[event.key]))];
    if (next === null) return;
    event.preventDefault();
    cells[next].focus();
  }
}
