/* Pictures: where a model looks, and what it would answer if it looked there. */
const regionData = readData("region-data");
if (hasRecords(regionData.models)) regionViewer(regionData.models, regionData.pictures);

/* Draw the regions of every question; returns a function that shows the last question after one was added. */
function regionViewer(models, pictures) {
  const at = id => document.getElementById(id);
  const VIEWS = [["prior", "prior p"], ["inferred", "inferred q"], ["posterior", "exact posterior"]];
  const names = Object.keys(models);
  const state = { model: names.includes("marginal") ? "marginal" : names.at(-1), question: 0, using: "posterior" };

  for (const name of names) at("look-model").add(new Option(name, name));
  for (const [value, text] of VIEWS) {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, { type: "radio", name: "look-using", value, id: `look-${value}` });
    input.addEventListener("change", () => { state.using = value; draw(); });
    label.append(input, " ", text);
    at("look-using").append(label);
  }
  at("look-model").addEventListener("change", () => { state.model = at("look-model").value; draw(); });
  at("look-question").addEventListener("change", () => { state.question = Number(at("look-question").value); draw(); });
  at("look-previous").addEventListener("click", () => step(-1));
  at("look-next").addEventListener("click", () => step(1));
  draw();
  return () => { state.question = models[state.model].length - 1; draw(); };

  function step(by) {
    const count = models[state.model].length;
    state.question = (state.question + by + count) % count;
    draw();
  }

  function place(element, [x1, y1, x2, y2]) {
    const percent = x => `${(100 * x).toFixed(2)}%`;
    Object.assign(element.style, { left: percent(x1), top: percent(y1), width: percent(x2 - x1), height: percent(y2 - y1) });
  }

  function draw() {
    const records = models[state.model], record = records[state.question];
    at("look-model").value = state.model;
    at("look-question").replaceChildren(...records.map((r, k) => new Option(r.question, k)));
    at("look-question").value = state.question;
    if (!(state.using in record.looks)) state.using = "posterior";
    for (const [value] of VIEWS) {
      at(`look-${value}`).checked = value === state.using;
      at(`look-${value}`).disabled = !(value in record.looks);
    }
    at("look-answer").textContent = record.answer !== undefined
      ? `It says ${record.predicted}; most people say ${record.answer}.`
      : `It says ${record.predicted}; q and posterior are given the answer ${record.given}.`;
    const box = at("look"), image = document.createElement("img");
    box.style.setProperty("--hue", `var(--${state.using})`);
    Object.assign(image, { src: pictures[record.image_id], alt: `picture ${record.image_id}` });
    box.replaceChildren(image);
    const order = record.looks[state.using].map((p, k) => [p, k]).sort((a, b) => b[0] - a[0]);
    for (const [p, k] of order) {
      if (p < 0.01) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.style.setProperty("--share", Math.max(p, 0.04).toFixed(3));
      const says = record.says[k].map(([answer, share]) => `${answer} ${share.toFixed(2)}`).join(", ");
      const text = `looks here with ${p.toFixed(2)}; if it looked here, it would say ${says}`;
      button.setAttribute("aria-label", text);
      const tell = () => { at("look-reading").textContent = text; };
      button.addEventListener("pointerenter", tell);
      button.addEventListener("focus", tell);
      place(button, record.boxes[k]);
      box.append(button);
    }
    for (const gold of record.gold) {
      const mark = document.createElement("span");
      mark.className = "gold";
      place(mark, gold);
      box.append(mark);
    }
    at("look-reading").textContent = "";
  }
}
