/* A served page: the form sends requests to the server, and the replies are added to the viewers. */
serve();

async function serve() {
  const at = id => document.getElementById(id);
  const BLANK = "data:image/svg+xml," + encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="480"><rect width="100%" height="100%" fill="#888"/></svg>');
  const views = at("alignments") ?? at("where-it-looks");
  views.hidden = true;
  let turn = null, busy = false, submit = () => {};

  /* One request at a time: buttons pressed meanwhile do nothing. */
  async function alone(work) {
    if (busy) return;
    busy = true;
    at("try").setAttribute("aria-busy", "true");
    at("fault").textContent = "";
    try { await work(); } finally {
      busy = false;
      at("try").removeAttribute("aria-busy");
    }
  }

  /* The reply of an address, or null after showing the error on the page. */
  async function ask(address, body) {
    try {
      const answer = await fetch(address, body && {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      const found = await answer.json();
      if (answer.ok) return found;
      at("fault").textContent = found.error ?? answer.statusText;
    } catch (error) {
      at("fault").textContent = `no answer: ${error.message}`;
    }
    return null;
  }

  /* Show lines to choose from, each a button. */
  function offer(lines, chosen) {
    at("outputs").replaceChildren(...lines.map(([text, note], k) => {
      const item = document.createElement("li"), button = document.createElement("button"), small = document.createElement("small");
      Object.assign(button, { type: "button", textContent: text || "(nothing)" });
      button.addEventListener("click", () => alone(() => chosen(k)));
      small.textContent = ` ${note}`;
      item.append(button, small);
      return item;
    }));
  }

  function show(models, record, start) {
    Object.values(models)[0].push(record);
    views.hidden = false;
    if (turn) turn(); else turn = start();
  }

  at("ask").addEventListener("submit", event => { event.preventDefault(); alone(submit); });
  for (const area of at("ask").querySelectorAll("textarea")) {
    area.addEventListener("keydown", event => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (event.repeat) return;
      if (area.id === "target") at("align").click(); else at("ask").requestSubmit();
    });
  }

  let about = null;
  await alone(async () => { about = await ask("/api/about"); });
  if (!about) return;
  if (at("source")) translation(); else pictures();

  function translation() {
    async function align(source, target) {
      const found = await ask("/api/align", { pairs: [{ source, target }] });
      if (!found) return;
      const sentence = Object.values(alignmentData)[0].length + 1;
      show(alignmentData, { sentence, ...found.alignments[0] }, () => alignmentViewer(alignmentData));
    }

    at("align").addEventListener("click", () => alone(() => align(at("source").value, at("target").value)));

    submit = async () => {
      at("outputs").replaceChildren();
      const source = at("source").value, beam = Number(at("beam").value);
      const body = { source: [source], nbest: Math.min(5, beam || about.beam) };
      if (beam) body.beam = beam;
      if (at("predict").value) body.predict = at("predict").value;
      const found = await ask("/api/translate", body);
      if (!found) return;
      const best = found.translations[0];
      const take = async k => {
        const target = best[k].segmented ?? best[k].text;
        at("target").value = target;
        if (target) await align(source, target); else views.hidden = true;
      };
      offer(best.map(t => [t.text, `log p ${t.log_prob.toFixed(2)}`]), take);
      await take(0);
    };
  }

  function pictures() {
    at("images").replaceChildren(...about.image_ids.map(id => new Option(id, id)));
    const picture = () => {
      if (!at("image").value) return;
      const image = document.createElement("img");
      image.onerror = () => { image.onerror = null; image.src = BLANK; };
      Object.assign(image, { src: `/api/pictures/${at("image").value}`, alt: `picture ${at("image").value}` });
      at("shown").replaceChildren(image);
      at("outputs").replaceChildren();
    };
    at("image").addEventListener("change", picture);
    at("another").addEventListener("click", () => {
      const place = about.image_ids.indexOf(Number(at("image").value));
      at("image").value = about.image_ids[(place + 1) % about.image_ids.length];
      picture();
    });
    at("another").click();

    async function answer(body, chosen) {
      const found = await ask("/api/answer", body);
      if (!found || body.image_id !== Number(at("image").value)) return;  // another picture was chosen meanwhile
      const given = { ...body };
      offer(found.answers.map(a => [a.answer, a.probability.toFixed(3)]),
        k => answer({ ...given, answer: found.answers[k].answer }, k));
      at("outputs").querySelectorAll("button")[chosen]?.focus();
      if (found.unknown_words.length) at("fault").textContent = `never seen in training: ${found.unknown_words.join(", ")}`;
      regionData.pictures[body.image_id] = found.look.pictured ? `/api/pictures/${body.image_id}` : BLANK;
      show(regionData.models, found.look, () => regionViewer(regionData.models, regionData.pictures));
    }

    submit = async () => {
      const body = { image_id: Number(at("image").value), question: at("question").value };
      if (at("predict").value) body.predict = at("predict").value;
      await answer(body);
    };
  }
}
