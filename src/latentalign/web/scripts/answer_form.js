/* Ask a question about a picture. */
form.start(about => {
  const { at, ask, offer, show } = form;
  const BLANK = "data:image/svg+xml," + encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="480"><rect width="100%" height="100%" fill="#888"/></svg>');

  function showPicture() {
    if (!at("image").value) return;
    const image = document.createElement("img");
    image.onerror = () => { image.onerror = null; image.src = BLANK; };
    Object.assign(image, { src: `/api/pictures/${at("image").value}`, alt: `picture ${at("image").value}` });
    at("shown").replaceChildren(image);
    at("outputs").replaceChildren();
  }

  async function answer(body, chosen) {
    const reply = await ask("/api/answer", body);
    if (!reply || body.image_id !== Number(at("image").value)) return;  // another picture was chosen meanwhile
    offer(reply.answers.map(a => [a.answer, a.probability.toFixed(3)]),
      k => answer({ ...body, answer: reply.answers[k].answer }, k));
    at("outputs").querySelectorAll("button")[chosen]?.focus();
    const unknown = reply.unknown_words.join(", ");
    if (unknown) at("fault").textContent = `never seen in training: ${unknown}`;
    regionData.pictures[body.image_id] = reply.look.pictured ? `/api/pictures/${body.image_id}` : BLANK;
    show(regionData.models, reply.look, () => regionViewer(regionData.models, regionData.pictures));
  }

  at("images").replaceChildren(...about.image_ids.map(id => new Option(id, id)));
  at("image").addEventListener("change", showPicture);
  at("another").addEventListener("click", () => {
    const place = about.image_ids.indexOf(Number(at("image").value));
    at("image").value = about.image_ids[(place + 1) % about.image_ids.length];
    showPicture();
  });
  at("another").click();

  return async () => {
    const body = { image_id: Number(at("image").value), question: at("question").value };
    if (at("predict").value) body.predict = at("predict").value;
    await answer(body);
  };
});
