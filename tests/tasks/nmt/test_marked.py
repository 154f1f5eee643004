"""Translation of text with markup: by command, by request, and on the served page, where nothing in it can act."""

import json
from dataclasses import replace

import pytest

from latentalign.links.words import find_words
from latentalign.markup.project import parse_markup, project
from latentalign.tasks.marked_text import weighted_links
from latentalign.tasks.nmt.schema import AlignedTranslation, ProjectedLine, TranslateResponse
from latentalign.tasks.nmt.task import TRANSLATION
from support.commands import command
from support.probes import probed

pytestmark = pytest.mark.slow

SENTENCES = [
    "<p>Das <b class='x'>Kind</b> schläft .</p>",
    "",
    "Der <i>Hund</i><br/> und <a href='#'>die Katze</a> !",
]


def test_a_translation_has_the_markup_of_its_source_along_its_posterior(trained):
    documents = [parse_markup(line) for line in SENTENCES]
    plain = TRANSLATION.translate(trained, [document.text for document in documents], nbest=2, beam=3)
    outputs = [best[:2] for best in plain.translate()]
    job = TRANSLATION.translate_marked(trained, documents, nbest=2, beam=3)
    found = list(job.translate())
    assert [[one.text for one in best] for best in found] == [[one.text for one in best] for best in outputs]
    for line, best, alignments in zip(SENTENCES, found, plain.align(outputs), strict=True):
        for one, alignment in zip(best, alignments, strict=True):
            links = weighted_links(alignment.probability, alignment.best())
            assert one.projection == project(line, one.text, links)
            assert parse_markup(one.printed).text == one.text


def test_the_commands_translate_and_project_markup(trained_run, tmp_path):
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES))
    files = ["-o", tmp_path / "out", "--alignments", tmp_path / "links"]
    done = command("translate", trained_run, "-i", tmp_path / "in", *files, "--beam", 2, "--markup", "html")
    assert done.returncode == 0, done.stderr.decode()
    lines = (tmp_path / "out").read_text().splitlines()
    records = [
        AlignedTranslation.model_validate_json(r) for r in (tmp_path / "links").read_text().splitlines()
    ]
    assert [record.markup for record in records] == lines
    assert [len(record.spans) for record in records] == [2, 0, 3]
    (tmp_path / "plain").write_text("".join(f"{record.text}\n" for record in records))
    text = ["--source", tmp_path / "in", "--target", tmp_path / "plain", "--format", "json"]
    done = command("project", trained_run, *text)
    assert done.returncode == 0, done.stderr.decode()
    found = [ProjectedLine.model_validate_json(row) for row in done.stdout.splitlines()]
    assert [one.markup for one in found] == lines


HOSTILE = [
    "<script>window.hacked = 1</script>ein",
    "<img src=x onerror='window.hacked = 2'> Hund",
    "<svg onload='window.hacked = 3'><script>window.hacked = 4</script></svg> und",
    "<a href='javascript:window.hacked = 5' onclick='window.hacked = 6'>eine</a>",
    "<iframe srcdoc='<script>parent.hacked = 7</script>'></iframe> <b onmouseover=window.hacked=8>Katze</b>",
    "<style>body { display: none }</style><p style='position: fixed; inset: 0'>schläft</p>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.hacked=9&gt;'>",
    "</pre></code></div><script>window.hacked = 10</script> <form><input autofocus onfocus=window.hacked=11>",
    "<noscript><p title='</noscript><img src=x onerror=window.hacked=12>'></noscript> a <base href='//x'><meta>",
]
PASTED = "<b onclick=x>fett</b><script>window.hacked = 13</script><img src=x onerror=window.hacked=14>"
PROBE = """
<script>
const pause = () => new Promise(go => setTimeout(go, 20));
const wait = async ready => { for (let n = 0; n < 500 && !ready(); n++) await pause(); };
const at_ = id => document.getElementById(id), seen = { shown: [], names: [], attributes: 0, previews: [] };
const free = () => !at_("try").hasAttribute("aria-busy");
(async () => {
  await wait(free);
  at_("markup").value = "html";
  for (const text of HOSTILE) {
    at_("source").value = text; at_("ask").requestSubmit();
    await pause(); await wait(() => free() && (!at_("marked").hidden || at_("fault").textContent));
    seen.shown.push(at_("fault").textContent || at_("marked-source").textContent);
    const inner = [...at_("marked-preview").querySelectorAll("*")];
    seen.names.push(...inner.map(element => element.localName));
    for (const element of inner) { seen.attributes += element.attributes.length; element.click(); }
    seen.previews.push(at_("marked-preview").innerHTML);
    seen.text = at_("marked-source").children.length + at_("outputs").querySelectorAll("button *").length;
  }
  seen.violations = [...violations];
  const data = new DataTransfer();
  data.setData("text/html", PASTED);
  at_("source").value = "";
  at_("source").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, cancelable: true }));
  seen.pasted = at_("source").value;
  at_("markup").value = ""; at_("source").value = "ein <b>Hund"; at_("ask").requestSubmit();
  await pause(); await wait(free);
  seen.hidden = at_("marked").hidden;
  await pause();
  seen.hacked = window.hacked ?? null;
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
})();
</script>
"""


def as_script(value) -> str:
    """A value in a script, whose text may not look like tags."""
    return json.dumps(value).replace("<", "\\u003c")


def test_hostile_markup_never_acts_on_the_page(trained, serving, browse):
    pytest.importorskip("fastapi")
    from latentalign.tasks.nmt.serve import build_app

    search = trained.config.search.model_copy(update={"length_penalty": 9.0, "beam": 2})
    app = build_app(replace(trained, config=trained.config.model_copy(update={"search": search})), "title")
    sentences = [*HOSTILE, "der <b>Hund</b> schläft"]
    with serving(app) as client:
        probe = PROBE.replace("HOSTILE", as_script(sentences)).replace("PASTED", as_script(PASTED))
        page = probed(client("/")[1].decode(), probe)
        app.get("/probe")(lambda: page)
        asked = {"source": sentences, "markup": "html", "nbest": 2, "beam": 2}
        answer = client.found("/api/translate", asked)
        TranslateResponse.model_validate_json(json.dumps(answer), strict=True)
        seen = browse(client.address + "/probe", 900)
        message = client.refused("/api/translate", {"source": ["a", "<b>"], "markup": "xml"})
    best = [translations[0] for translations in answer["translations"]]
    assert seen["shown"] == [one["markup"] for one in best]
    for sentence, one in zip(sentences, best, strict=True):
        assert [span["markup"] for span in one["spans"]] == [n.opening for n in parse_markup(sentence).nodes]
        assert len(find_words(one["plain_source"])) == len(find_words(parse_markup(sentence).text))
    assert seen["hacked"] is None
    assert seen["violations"] == []  # not even attempted
    assert seen["attributes"] == 0
    assert seen["text"] == 0  # shown as text
    assert "b" in seen["names"]
    assert set(seen["names"]) <= {"a", "b", "p", "br"}
    assert seen["previews"][-1] == best[-1]["markup"]  # a formatted text as it should be
    assert seen["pasted"] == "<b>fett</b>"
    assert seen["hidden"]
    assert message.startswith("source.1: line 1, column 1 of the markup")
