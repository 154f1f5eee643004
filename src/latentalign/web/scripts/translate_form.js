/* Formatted text is built from elements that only format, without attributes. Markup is never parsed into the page, so
 * nothing in it can act: no script, no address, no style. */
const FORMATTING = new Set(("A B BLOCKQUOTE BR CODE DD DEL DIV DL DT EM H1 H2 H3 H4 H5 H6 I INS KBD LI MARK OL P PRE " +
  "Q S SAMP SMALL SPAN STRONG SUB SUP U UL VAR").split(" "));
const OPAQUE = new Set("IFRAME NOEMBED NOFRAMES NOSCRIPT OBJECT SCRIPT STYLE TEMPLATE TEXTAREA TITLE XMP".split(" "));

/* A translation with its formatting, from the places of its elements, which are nested or apart. */
function formatText({ text, spans }) {
  const letters = [...text], root = document.createDocumentFragment();
  const stack = [{ element: root, end: letters.length }];
  let done = 0;
  const write = end => {
    stack.at(-1).element.append(letters.slice(done, end).join(""));
    done = end;
  };
  const nameOf = markup => /^<([a-z0-9]+)/i.exec(markup)?.[1].toUpperCase();
  const places = spans
    .map(span => ({ name: nameOf(span.markup), start: span.target[0], end: span.target[1] }))
    .filter(({ name, start, end }) => FORMATTING.has(name) && (start < end || name === "BR"))
    .sort((a, b) => a.start - b.start || b.end - a.end);
  for (const { name, start, end } of places) {
    while (stack.length > 1 && stack.at(-1).end <= start) { write(stack.at(-1).end); stack.pop(); }
    write(start);
    const element = document.createElement(name);
    stack.at(-1).element.append(element);
    if (start < end) stack.push({ element, end });
  }
  while (stack.length) { write(stack.at(-1).end); stack.pop(); }
  return root;
}

/* The formatting of a document that is not shown. */
function copyFormatting(node) {
  const copy = document.createDocumentFragment();
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    if (!(child instanceof HTMLElement) || OPAQUE.has(child.tagName)) continue;  // neither SVG nor MathML
    const inner = copyFormatting(child);
    const element = FORMATTING.has(child.tagName) ? document.createElement(child.tagName) : null;
    element?.append(inner);
    copy.append(element ?? inner);
  }
  return copy;
}

/* Translate a sentence, and align it with any target. */
form.start(about => {
  const { at, alone, ask, offer, show, hideViewer } = form;

  async function align(source, target) {
    const reply = await ask("/api/align", { pairs: [{ source, target }] });
    if (!reply) return;
    const sentence = Object.values(alignmentData)[0].length + 1;
    show(alignmentData, { sentence, ...reply.alignments[0] }, () => alignmentViewer(alignmentData));
  }

  /* The translation with markup: as text, and as a preview that only formats. */
  function showMarked(translation) {
    at("marked").hidden = translation.markup === undefined;
    if (at("marked").hidden) return;
    at("marked-source").textContent = translation.markup;
    at("marked-preview").replaceChildren(at("markup").value === "html" ? formatText(translation) : "");
    const least = [...translation.spans].sort((a, b) => a.confidence - b.confidence)[0];
    at("marked-note").textContent = least ? `Least certain: ${least.markup} (${least.confidence.toFixed(2)})` : "";
  }

  /* Formatted text that is pasted becomes HTML, without anything but formatting. */
  at("source").addEventListener("paste", event => {
    const rich = event.clipboardData?.getData("text/html");
    if (!rich || at("markup").value !== "html") return;
    event.preventDefault();
    const holder = document.createElement("div"), area = at("source");
    holder.append(copyFormatting(new DOMParser().parseFromString(rich, "text/html").body));
    area.setRangeText(holder.innerHTML.trim(), area.selectionStart, area.selectionEnd, "end");
  });

  at("align").addEventListener("click", () => alone(() => align(at("source").value, at("target").value)));

  return async () => {
    at("outputs").replaceChildren();
    at("marked").hidden = true;
    const source = at("source").value, beam = Number(at("beam").value);
    const body = { source: [source], nbest: Math.min(5, beam || about.beam) };
    if (beam) body.beam = beam;
    if (at("predict").value) body.predict = at("predict").value;
    if (at("markup").value) body.markup = at("markup").value;
    const reply = await ask("/api/translate", body);
    if (!reply) return;
    const best = reply.translations[0];
    const choose = async k => {
      const target = best[k].segmented ?? best[k].text;
      at("target").value = target;
      showMarked(best[k]);
      if (target) await align(best[k].plain_source ?? source, target); else hideViewer();
    };
    offer(best.map(t => [t.markup ?? t.text, `log p ${t.log_prob.toFixed(2)}`]), choose);
    await choose(0);
  };
});
