/* Ask a question about a picture. */
form.start(about => {
  const { at, ask, fetchWithToken, offer, show } = form;
  const BLANK = "data:image/svg+xml," + encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="480"><rect width="100%" height="100%" fill="#888"/></svg>');

  /* An address of a picture for an image element, which cannot send a token itself. */
  async function pictureAddress(id) {
    const response = await fetchWithToken(`/api/pictures/${id}`);
    return response.ok ? URL.createObjectURL(await response.blob()) : BLANK;
  }

  async function showPicture() {
    const id = at("image").value;
    if (!id) return;
    at("outputs").replaceChildren();
    const image = document.createElement("img");
    Object.assign(image, { src: await pictureAddress(id), alt: `picture ${id}` });
    image.onload = () => URL.revokeObjectURL(image.src);
    if (at("image").value === id) at("shown").replaceChildren(image);
  }

  async function answer(body, chosen) {
    const reply = await ask("/api/answer", body);
    if (!reply || body.image_id !== Number(at("image").value)) return;  // another picture was chosen meanwhile
    offer(reply.answers.map(a => [a.answer, a.probability.toFixed(3)]),
      k => answer({ ...body, answer: reply.answers[k].answer }, k));
    at("outputs").querySelectorAll("button")[chosen]?.focus();
    const unknown = reply.unknown_words.join(", ");
    if (unknown) at("fault").textContent = `never seen in training: ${unknown}`;
    regionData.pictures[body.image_id] ??= reply.look.pictured ? await pictureAddress(body.image_id) : BLANK;
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
