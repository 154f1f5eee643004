
/* A served page: what is asked goes to the server, what comes back joins the viewers. */
serve();

async function serve() {
  const at = id => document.getElementById(id);
  const BLANK = "data:image/svg+xml," + encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="480"><rect width="100%" height="100%" fill="#888"/></svg>');
  const views = at("alignments") ?? at("where-it-looks");
  views.hidden = true;
  let turn = null;

  /* The answer of an address; what is wrong is told on the page. Buttons sleep meanwhile. */
  async function ask(address, body) {
    const buttons = [...at("try").querySelectorAll("button")];
    buttons.forEach(button => { button.disabled = true; });
    at("fault").textContent = "";
    try {
      const answer = await fetch(address, body && {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      const found = await answer.json();
      if (answer.ok) return found;
      at("fault").textContent = found.error ?? answer.statusText;
    } catch (error) {
      at("fault").textContent = `no answer: ${error.message}`;
    } finally {
      buttons.forEach(button => { button.disabled = false; });
    }
    return null;
  }

  /* Lines to choose from, each a button. */
  function offer(lines, chosen) {
    at("outputs").replaceChildren(...lines.map(([text, note], k) => {
      const item = document.createElement("li"), button = document.createElement("button"), small = document.createElement("small");
      Object.assign(button, { type: "button", textContent: text || "(nothing)" });
      button.addEventListener("click", () => chosen(k));
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

  for (const area of at("ask").querySelectorAll("textarea")) {
    area.addEventListener("keydown", event => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (area.id === "target") at("align").click(); else at("ask").requestSubmit();
    });
  }

  const about = await ask("/api/about");
  if (!about) return;
  if (at("source")) translation(); else pictures();

  function translation() {
    async function align() {
      const pair = { source: at("source").value, target: at("target").value };
      const found = await ask("/api/align", { pairs: [pair] });
      if (!found) return;
      const sentence = Object.values(aligned)[0].length + 1;
      show(aligned, { sentence, ...found.alignments[0] }, () => viewer(aligned));
    }
    at("align").addEventListener("click", align);
    at("ask").addEventListener("submit", async event => {
      event.preventDefault();
      const beam = Number(at("beam").value) || about.beam;
      const body = { source: [at("source").value], beam, nbest: Math.min(5, beam) };
      if (at("predict").value) body.predict = at("predict").value;
      const found = await ask("/api/translate", body);
      if (!found) return;
      const best = found.translations[0];
      const take = k => { at("target").value = best[k].text; if (best[k].text) align(); };
      offer(best.map(t => [t.text, `log p ${t.log_prob.toFixed(2)}`]), take);
      take(0);
    });
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
    const submit = async answer => {
      const body = { image_id: Number(at("image").value), question: at("question").value };
      if (at("predict").value) body.predict = at("predict").value;
      if (answer !== undefined) body.answer = answer;
      const found = await ask("/api/answer", body);
      if (!found) return;
      offer(found.answers.map(a => [a.answer, a.probability.toFixed(3)]), k => submit(found.answers[k].answer));
      if (found.unknown_words.length) at("fault").textContent = `never seen in training: ${found.unknown_words.join(", ")}`;
      seenData.pictures[body.image_id] = found.look.pictured ? `/api/pictures/${body.image_id}` : BLANK;
      show(seenData.models, found.look, () => lookViewer(seenData.models, seenData.pictures));
    };
    at("ask").addEventListener("submit", event => { event.preventDefault(); submit(); });
  }
}
