/* Align a sentence with a translation of it. */
form.start(() => {
  const { at, ask, show } = form;
  return async () => {
    const reply = await ask("/api/align", { pairs: [{ source: at("source").value, target: at("target").value }] });
    if (!reply) return;
    const sentence = Object.values(alignmentData)[0].length + 1;
    show(alignmentData, { sentence, ...reply.alignments[0] }, () => alignmentViewer(alignmentData));
  };
});
