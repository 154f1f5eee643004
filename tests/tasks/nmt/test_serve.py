"""A served translation model: its addresses, its refusals, and its page in a browser."""

import http.client
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")
from latentalign.tasks.nmt.align import align_in_order, encode_pairs
from latentalign.tasks.nmt.schema import AlignResponse, TranslateResponse
from latentalign.tasks.nmt.serve import TranslateRequest, build_app, choose_settings, describe_translation
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig
from latentalign.tasks.nmt.translate import Translation, TranslationSettings, translate_lines
from latentalign.training.run import Run
from latentalign.web import guards
from support.nmt import tiny
from support.probes import probed

pytestmark = pytest.mark.slow


@pytest.fixture
def lines(demo_files):
    return (demo_files / "test.de").read_text().splitlines()[:3]


def test_what_is_served_is_what_the_commands_give(trained, lines, serving):
    with serving(build_app(trained, "a <title>")) as client:
        assert b"a &lt;title&gt;" in client("/")[1]
        about = client.found("/api/about")
        assert (about["objective"], about["predict"], about["beam"]) == ("variational-sample", "exact", 5)
        asked = {"source": [*lines, " \n "], "nbest": 2, "beam": 4, "predict": "kmax:3"}
        answer = client.found("/api/translate", asked)
        TranslateResponse.model_validate(answer, strict=True)
        found = answer["translations"]
        expected = list(
            translate_lines(trained, [*lines, ""], TranslationSettings("kmax:3", beam=4, nbest=2))
        )
        assert [[t["text"] for t in best] for best in found] == [[t.text for t in best] for best in expected]
        assert found[0][0]["log_prob"] == pytest.approx(expected[0][0].log_prob)
        assert found[3] == [{"text": "", "log_prob": 0.0, "score": 0.0}]
        targets = [best[0]["text"] or "the" for best in found[:3]]
        pairs = [{"source": s, "target": t} for s, t in zip(lines, targets, strict=True)]
        records = client.found("/api/align", {"pairs": pairs})["alignments"]
        for name in ("prior", "inferred", "posterior"):
            known = align_in_order(trained, encode_pairs(trained, lines, targets), name)
            for record, alignment in zip(records, known, strict=True):
                np.testing.assert_allclose(record["matrices"][name], alignment.probability, atol=1e-6)
                assert np.shape(record["matrices"][name]) == (len(record["target"]), len(record["source"]))


def test_served_alignments_are_as_documented_and_refer_to_the_text_that_was_sent(trained, serving):
    pair = {"source": " Der  HUND\n schläft .", "target": "the dog\t sleeps ."}
    with serving(build_app(trained, "title")) as client:
        answer = client("/api/align", {"pairs": [pair]})[1]
        schema = client.found("/openapi.json")["components"]["schemas"]
    (found,) = AlignResponse.model_validate_json(answer, strict=True).alignments
    for side in ("source", "target"):
        words, spans = getattr(found, side), getattr(found, f"{side}_spans")
        assert [pair[side][start:end] for start, end in spans] == words == pair[side].split()
    assert {"AlignResponse", "TranslateResponse"} <= schema.keys()


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/translate", {"source": ["a"], "bem": 3}, "bem: "),
        ("/api/translate", {"source": "a"}, "source: "),
        ("/api/translate", {"source": ["a" * 3000]}, "source.0: "),
        ("/api/translate", {"source": ["a"], "predict": "guess"}, "predict: predict must be"),
        ("/api/translate", {"source": ["a"], "predict": "sample:1001"}, "predict: at most sample:1000"),
        ("/api/translate", {"source": ["a"] * 101}, "source: "),
        ("/api/translate", {"source": ["a"], "beam": 2, "nbest": 3}, "nbest is 3"),
        ("/api/align", {"pairs": [{"source": "a", "target": " "}]}, "pairs.0.target: there is no word in it"),
        ("/api/align", {"pairs": [{"source": "a " * 300, "target": "b " * 300}]}, "pairs: "),
        ("/api/align", [], "the body must be a JSON object"),
    ],
)
def test_bad_questions_are_named(trained, serving, path, body, message):
    with serving(build_app(trained, "title")) as client:
        assert client.refused(path, body).startswith(message)


def test_what_is_not_json_or_not_there_is_said(trained, serving):
    with serving(build_app(trained, "title")) as client:
        for content, status in ((b'{"source": [', 422), (b"[" * 100_000, 400)):
            request = urllib.request.Request(client.address + "/api/translate", content)
            request.add_header("Content-Type", "application/json")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=60)
            with refused.value as answer:
                assert answer.code == status
                assert "error" in json.load(answer)
        assert client("/api/nothing") == (404, b'{"error":"Not Found"}')


def test_segmented_text_is_aligned_by_its_pieces(trained, tmp_path):
    (tmp_path / "text").write_text("low@@ er\n")
    kind = TokenizerConfig(kind="segmented")
    tokenizer = Tokenizer.learn(kind, tmp_path / "text", tmp_path / "text")
    segmented = replace(
        trained, vocabulary=tokenizer, config=trained.config.model_copy(update={"tokenizer": kind})
    )
    one = Translation("lower", 0.0, 0.0, tuple(tokenizer.encode_target("low@@ er").ids))
    assert describe_translation(segmented, one) == {
        "text": "lower",
        "log_prob": 0.0,
        "score": 0.0,
        "segmented": "low@@ er",
    }


@pytest.mark.parametrize(
    ("objective", "kind", "using"),
    [("soft", "words", {"prior", "posterior"}), ("relaxed", "bpe", {"prior", "inferred"})],
)
def test_every_kind_of_model_is_served_with_the_alignments_it_has(
    demo_files, tmp_path, lines, serving, objective, kind, using
):
    config = tiny(demo_files, objective, "training.max_steps=2", f"tokenizer.kind={kind}")
    TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    with serving(build_app(TRANSLATION.load(tmp_path / "run"), "title")) as client:
        assert len(client.found("/api/translate", {"source": lines})["translations"]) == len(lines)
        pair = {"source": lines[0], "target": "the dog"}
        record = client.found("/api/align", {"pairs": [pair]})["alignments"][0]
        assert record["matrices"].keys() == using
        assert ("piece_matrices" in record) == (kind == "bpe")
        if kind == "bpe":
            many = "\U0001f600" * 600
            assert client.refused("/api/translate", {"source": ["a", many]}).startswith("source.1: ")


def test_requests_translated_together_get_what_they_would_get_alone(trained, lines, serving):
    app = build_app(trained, "title")
    calls = []
    run_together = app.state.worker.run_together

    async def count(request, item, *, key, work):
        def counted(items, check):
            calls.append(len(items))
            return work(items, check)

        return await run_together(request, item, key=key, work=counted)

    app.state.worker.run_together = count
    bodies = [{"source": [line]} for line in [*lines, "", lines[0], *lines]]
    with serving(app) as client:
        alone = [client.found("/api/translate", body)["translations"][0][0] for body in bodies]
        assert calls == [1] * len(bodies)
        with ThreadPoolExecutor(len(bodies)) as pool:
            asked = [{"source": lines * 3, "beam": 20}, *bodies]  # the others wait for this one
            replies = list(pool.map(lambda body: client.found("/api/translate", body), asked))
        together = [reply["translations"][0][0] for reply in replies[1:]]
    assert sum(calls) == 2 * len(bodies) + 1
    assert max(calls) > 1
    for one, other in zip(alone, together, strict=True):
        assert other["text"] == one["text"]
        assert other["log_prob"] == pytest.approx(one["log_prob"], abs=1e-9)


def test_a_translation_ends_when_its_client_is_gone(trained, lines, serving):
    steps, started, ended = [], threading.Event(), threading.Event()
    app = build_app(trained, "title")
    run = app.state.worker.run

    async def watched(request, work):
        def compute(check):
            def step():
                steps.append(None)
                started.set()
                check()

            try:
                return work(step)
            finally:
                ended.set()

        return await run(request, compute)

    app.state.worker.run = watched
    with serving(app) as client:
        body = json.dumps({"source": [" ".join(lines * 9)] * 100, "beam": 50}).encode()
        connection = http.client.HTTPConnection(client.address.removeprefix("http://"), timeout=60)
        connection.request("POST", "/api/translate", body, {"Content-Type": "application/json"})
        assert started.wait(30)
        connection.close()
        assert ended.wait(30)
        assert client("/api/translate", {"source": lines})[0] == 200
    assert len(steps) < 1000  # of tens of thousands


def test_steps_of_the_search_are_kept_short(trained):
    def tokens(**asked):
        request = TranslateRequest(source=["a"], **asked)
        return choose_settings(trained, request, draws=1000 if "predict" in asked else 0).batch_tokens

    assert tokens() == TranslationSettings.batch_tokens  # a tiny model
    weight = torch.empty(1000, 1000, device="meta")
    trained.model.head.output.weight = torch.nn.Parameter(weight)
    assert (tokens(beam=10), tokens(beam=50), tokens(beam=10, predict="sample:1000")) == (1000, 200, 20)


TOKEN_PROBE = """
<script>
const pause = () => new Promise(go => setTimeout(go, 20));
const wait = async ready => { for (let n = 0; n < 500 && !ready(); n++) await pause(); };
const at_ = id => document.getElementById(id), seen = {};
const free = () => !at_("try").hasAttribute("aria-busy");
const give = async token => {
  at_("token").value = token; at_("unlock").requestSubmit();
  await pause(); await wait(free);
};
(async () => {
  await wait(() => !at_("unlock").hidden && free());
  seen.fault = at_("fault").textContent;
  await give("wrong");
  seen.again = !at_("unlock").hidden;
  await give("geheim");
  seen.hidden = at_("unlock").hidden;
  at_("source").value = "ein Hund"; at_("ask").requestSubmit();
  await wait(() => document.querySelectorAll("#outputs button").length && free());
  seen.outputs = document.querySelectorAll("#outputs button").length;
  seen.violations = violations;
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
})();
</script>
"""


def test_the_page_asks_for_the_token(trained, serving, browse, monkeypatch):
    monkeypatch.setattr(guards, "OPEN", {"/", "/probe"})
    app = build_app(trained, "title")
    with serving(app, token="geheim") as client:
        page = probed(client("/")[1].decode(), TOKEN_PROBE)
        app.get("/probe")(lambda: page)
        seen = browse(client.address + "/probe", 390)
    assert seen["fault"].startswith("this server needs a token")
    assert seen["again"]
    assert seen["hidden"]
    assert seen["outputs"] == 5
    assert seen["violations"] == []


PROBE = """
<script>
const pause = () => new Promise(go => setTimeout(go, 20));
const wait = async ready => { for (let n = 0; n < 500 && !ready(); n++) await pause(); };
const at_ = id => document.getElementById(id), seen = {};
const share = cell => Number(cell.style.getPropertyValue("--share"));
const shares = () => [...document.querySelectorAll("#matrix td.p i")].map(share);
(async () => {
  seen.hidden = at_("alignments").hidden;
  await wait(() => !at_("try").hasAttribute("aria-busy"));
  at_("source").value = SENTENCE;
  at_("ask").requestSubmit(); at_("ask").requestSubmit(); at_("source").value = "meanwhile another";
  await wait(() => !at_("alignments").hidden);
  at_("source").value = SENTENCE;
  seen.outputs = [...document.querySelectorAll("#outputs button")].map(x => x.textContent);
  seen.target = at_("target").value;
  seen.words = [...document.querySelectorAll("#matrix thead th span")].map(x => x.textContent);
  seen.count = at_("sentence").options.length;
  seen.posterior = shares();
  at_("using-prior").click();
  seen.prior = shares();
  at_("target").value = "the the";
  at_("align").click();
  await wait(() => at_("sentence").options.length === 2 && !at_("try").hasAttribute("aria-busy"));
  seen.rows = [...document.querySelectorAll("#matrix tbody th")].map(x => x.textContent);
  at_("beam").value = 2; at_("predict").value = "soft"; at_("ask").requestSubmit();
  await wait(() => at_("sentence").options.length === 3 && !at_("try").hasAttribute("aria-busy"));
  seen.fewer = document.querySelectorAll("#outputs button").length;
  at_("target").value = " "; at_("align").click();
  await wait(() => at_("fault").textContent);
  seen.fault = at_("fault").textContent;
  seen.violations = violations;
  seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
})();
</script>
"""


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_translates_aligns_and_says_what_is_wrong(trained, lines, serving, browse, width):
    search = trained.config.search.model_copy(
        update={"length_penalty": 9.0}
    )  # it has learnt little: to say something
    app = build_app(replace(trained, config=trained.config.model_copy(update={"search": search})), "title")
    with serving(app) as client:
        page = probed(client("/")[1].decode(), PROBE.replace("SENTENCE", json.dumps(lines[0])))
        app.get("/probe")(lambda: page)
        best = [
            t["text"]
            for t in client.found("/api/translate", {"source": lines[:1], "nbest": 5})["translations"][0]
        ]
        pair = {"source": lines[0], "target": best[0]}
        record = client.found("/api/align", {"pairs": [pair]})["alignments"][0]
        seen = browse(client.address + "/probe", width)
    assert seen["hidden"]
    assert seen["count"] == 1  # asked twice at once
    assert seen["outputs"] == [text or "(nothing)" for text in best]
    assert seen["target"] == best[0]
    assert seen["words"] == [*record["source"], "entropy"]
    for name in ("prior", "posterior"):
        assert seen[name] == pytest.approx(np.ravel(record["matrices"][name]), abs=6e-4)
    assert seen["rows"] == ["the", "the"]
    assert seen["fewer"] == 2
    assert seen["fault"] == "pairs.0.target: there is no word in it"
    assert seen["violations"] == []
    assert seen["wide"]
