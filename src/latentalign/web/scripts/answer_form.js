/* Ask a question about a picture: one that the server has, or one from this computer. */
form.start(about => {
  const { at, ask, fetchWithToken, offer, show } = form;
  const LONGEST_SIDE = 800, LARGEST_FILE = 600_000;  // larger pictures are made smaller here: the server accepts 1 MB
  const KNOWN = ["image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp"];
  let uploaded = null, uploads = 0;

  /* An address of a picture for an image element, which cannot send a token itself. */
  async function pictureAddress(id) {
    const response = await fetchWithToken(`/api/pictures/${id}`);
    return response.ok ? URL.createObjectURL(await response.blob()) : BLANK;
  }

  function place(address, alt) {
    const image = document.createElement("img");
    Object.assign(image, { src: address, alt });
    image.addEventListener("load", () =>
      at("shown").style.setProperty("--aspect", image.naturalWidth / image.naturalHeight));
    at("shown").replaceChildren(image);
    at("outputs").replaceChildren();
    return image;
  }

  async function showPicture() {
    const id = at("image").value;
    if (!id) return;
    uploaded = null;
    at("upload").value = "";
    const address = await pictureAddress(id);
    if (at("image").value === id) place(address, `picture ${id}`).onload = () => URL.revokeObjectURL(address);
  }

  /* The file itself if it is small, else a smaller picture of it; as a `data:` address. */
  async function readPicture(file) {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
    let blob = file;
    if (scale < 1 || file.size > LARGEST_FILE || !KNOWN.includes(file.type)) {
      const canvas = document.createElement("canvas");
      canvas.width = Math.max(1, Math.round(scale * bitmap.width));
      canvas.height = Math.max(1, Math.round(scale * bitmap.height));
      canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      blob = await new Promise(go => canvas.toBlob(go, "image/jpeg", 0.92));
    }
    return new Promise((go, fail) => {
      const reader = new FileReader();
      reader.onload = () => go(reader.result);
      reader.onerror = () => fail(reader.error);
      reader.readAsDataURL(blob);
    });
  }

  async function upload(file) {
    at("fault").textContent = "";
    try {
      uploaded = { key: `upload-${++uploads}`, name: file.name, address: await readPicture(file) };
    } catch {
      at("fault").textContent = `${file.name}: not a picture that this browser can read`;
      return;
    }
    at("image").value = "";
    place(uploaded.address, file.name);
  }

  /* Where a body's picture is, if it is still the one that is chosen; else undefined. */
  async function chosenPicture(body, look) {
    if (body.picture) return uploaded?.address.endsWith(body.picture) ? [uploaded.key, uploaded.address] : undefined;
    if (body.image_id !== Number(at("image").value)) return undefined;
    const known = regionData.pictures[body.image_id];
    return [body.image_id, known ?? (look.pictured ? await pictureAddress(body.image_id) : BLANK)];
  }

  async function answer(body, chosen) {
    const reply = await ask("/api/answer", body);
    const picture = reply && await chosenPicture(body, reply.look);
    if (!picture) return;  // no answer, or another picture was chosen meanwhile
    offer(reply.answers.map(a => [a.answer, a.probability.toFixed(3)]),
      k => answer({ ...body, answer: reply.answers[k].answer }, k));
    at("outputs").querySelectorAll("button")[chosen]?.focus();
    const unknown = reply.unknown_words.join(", ");
    if (unknown) at("fault").textContent = `never seen in training: ${unknown}`;
    regionData.pictures[picture[0]] = picture[1];
    show(regionData.models, { ...reply.look, image_id: picture[0] },
      () => regionViewer(regionData.models, regionData.pictures));
  }

  at("images").replaceChildren(...about.image_ids.map(id => new Option(id, id)));
  at("image").addEventListener("change", showPicture);
  at("another").addEventListener("click", () => {
    const place = about.image_ids.indexOf(Number(at("image").value));
    at("image").value = about.image_ids[(place + 1) % about.image_ids.length];
    showPicture();
  });
  at("another").click();
  at("upload").disabled = Boolean(about.no_upload);
  at("no-upload").textContent = about.no_upload ? `Pictures cannot be uploaded: ${about.no_upload}` : "";
  at("upload").addEventListener("change", () => { if (at("upload").files.length) upload(at("upload").files[0]); });

  return async () => {
    const body = { question: at("question").value };
    if (uploaded) body.picture = uploaded.address.slice(uploaded.address.indexOf(",") + 1);
    else if (at("image").value) body.image_id = Number(at("image").value);
    if (at("predict").value) body.predict = at("predict").value;
    await answer(body);
  };
});
