/* Translate a sentence, and align it with any target. */
form.start(about => {
  const { at, alone, ask, offer, show, hideViewer } = form;

  async function align(source, target) {
    const reply = await ask("/api/align", { pairs: [{ source, target }] });
    if (!reply) return;
    const sentence = Object.values(alignmentData)[0].length + 1;
    show(alignmentData, { sentence, ...reply.alignments[0] }, () => alignmentViewer(alignmentData));
  }

  at("align").addEventListener("click", () => alone(() => align(at("source").value, at("target").value)));

  return async () => {
    at("outputs").replaceChildren();
    const source = at("source").value, beam = Number(at("beam").value);
    const body = { source: [source], nbest: Math.min(5, beam || about.beam) };
    if (beam) body.beam = beam;
    if (at("predict").value) body.predict = at("predict").value;
    const reply = await ask("/api/translate", body);
    if (!reply) return;
    const best = reply.translations[0];
    const choose = async k => {
      const target = best[k].segmented ?? best[k].text;
      at("target").value = target;
      if (target) await align(source, target); else hideViewer();
    };
    offer(best.map(t => [t.text, `log p ${t.log_prob.toFixed(2)}`]), choose);
    await choose(0);
  };
});
