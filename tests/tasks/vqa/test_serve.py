"""A served question answering model: its addresses, its refusals, and its page in a browser."""

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi")
from latentalign.errors import InputError
from latentalign.tasks.vqa.answer import answer_questions
from latentalign.tasks.vqa.ask import ask_pictures
from latentalign.tasks.vqa.extractors import EXTRACTORS
from latentalign.tasks.vqa.questions import read_questions
from latentalign.tasks.vqa.serve import build_app
from support.extractors import tiny_extractor
from support.probes import probed

pytestmark = pytest.mark.slow


@pytest.fixture
def app(trained):
    return build_app(trained, "title", features=None, images=None)


def test_what_is_served_is_what_the_command_gives(app, trained, pictures, serving):
    split = trained.config.data.test
    expected = answer_questions(trained, split.questions, split.features)
    questions = read_questions(split.questions)
    with serving(app) as client:
        about = client.found("/api/about")
        assert {q.image_id for q in questions} == set(about["image_ids"])
        assert client(f"/api/pictures/{questions[0].image_id}")[1][:4] in (b"\x89PNG", b"\xff\xd8\xff\xe0")
        assert client("/api/pictures/123456")[0] == 404
        for question in questions[:5]:
            asked = {"image_id": question.image_id, "question": question.question, "top": 100}
            found = client.found("/api/answer", asked)
            assert found["answers"][0]["answer"] == expected[question.question_id] == found["look"]["given"]
            assert about["answers"] < 100  # all of them came
            assert sum(a["probability"] for a in found["answers"]) == pytest.approx(1, abs=1e-6)
            for name in ("prior", "inferred", "posterior"):
                assert sum(found["look"]["looks"][name]) == pytest.approx(1, abs=1e-6)


def test_regions_are_looked_at_given_the_answer_named(app, trained, serving):
    """Bayes' rule: the posterior given any answer, weighted by that answer's probability, is the prior."""
    image = read_questions(trained.config.data.test.questions)[0].image_id
    with serving(app) as client:
        asked = {"image_id": image, "question": "what color is the wombat?", "top": 100, "predict": "exact"}
        found = client.found("/api/answer", asked)
        assert found["unknown_words"] == ["wombat"]
        assert len(found["answers"]) == len(trained.vocabulary.answers)
        mixed = [0.0] * len(found["look"]["boxes"])
        for answer in found["answers"]:
            look = client.found("/api/answer", {**asked, "answer": answer["answer"]})["look"]
            assert look["given"] == answer["answer"]
            mixed = [
                m + answer["probability"] * p for m, p in zip(mixed, look["looks"]["posterior"], strict=True)
            ]
        assert mixed == pytest.approx(found["look"]["looks"]["prior"], abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": "?!"}, "question: there is no word in it"),
        ({"image_id": 123456}, "image_id: there are no features of image 123456"),
        ({"answer": "no such answer"}, "answer: 'no such answer' is not among"),
        ({"predict": "guess"}, "predict: predict must be"),
        ({"image_id": 10**30}, "image_id: there are no features of image 1000"),
        ({"queston": "what?"}, "queston: "),
    ],
)
def test_bad_questions_are_named(app, trained, serving, change, message):
    image = read_questions(trained.config.data.test.questions)[0].image_id
    with serving(app) as client:
        assert client.refused("/api/answer", {"image_id": image, "question": "what?", **change}).startswith(
            message
        )


def test_features_and_pictures_asked_for_must_be_there(trained, tmp_path):
    with pytest.raises(InputError, match="expected a folder of pictures"):
        build_app(trained, "title", features=None, images=tmp_path / "none")
    with pytest.raises(InputError, match="no such features file"):
        build_app(trained, "title", features=tmp_path / "none.safetensors", images=None)


PROBE = """
<script>
const pause = () => new Promise(go => setTimeout(go, 20));
const wait = async ready => { for (let n = 0; n < 500 && !ready(); n++) await pause(); };
const at_ = id => document.getElementById(id), seen = {};
(async () => {
  await wait(() => at_("image").value);
  seen.image = at_("image").value;
  at_("another").click();
  seen.another = at_("image").value;
  at_("question").value = "what color is the wombat?";
  at_("ask").requestSubmit();
  await wait(() => !at_("where-it-looks").hidden && !at_("try").hasAttribute("aria-busy"));
  seen.answers = [...document.querySelectorAll("#outputs button")].map(x => x.textContent);
  seen.fault = at_("fault").textContent;
  seen.told = at_("look-answer").textContent;
  seen.regions = document.querySelectorAll("#look button").length;
  at_("question").value = "meanwhile another?";
  document.querySelectorAll("#outputs button")[1].click();
  await wait(() => at_("look-question").options.length === 2);
  seen.asked = at_("look-question").selectedOptions[0].textContent;
  seen.focused = document.activeElement.textContent;
  seen.other = at_("look-answer").textContent;
  await wait(() => document.querySelector("#look img").complete);
  seen.picture = document.querySelector("#look img").naturalWidth;
  seen.violations = violations;
  seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
})();
</script>
"""


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_asks_and_shows_where_the_model_looks(app, serving, browse, width):
    with serving(app) as client:
        page = probed(client("/")[1].decode(), PROBE)
        app.get("/probe")(lambda: page)
        ids = client.found("/api/about")["image_ids"]
        asked = {"image_id": ids[1], "question": "what color is the wombat?"}
        best = [a["answer"] for a in client.found("/api/answer", asked)["answers"]]
        seen = browse(client.address + "/probe", width)
    assert (seen["image"], seen["another"]) == (str(ids[0]), str(ids[1]))
    assert seen["answers"] == best
    assert seen["fault"] == "never seen in training: wombat"
    assert seen["told"] == f"It says {best[0]}; q and posterior are given the answer {best[0]}."
    assert seen["other"] == f"It says {best[0]}; q and posterior are given the answer {best[1]}."
    assert seen["asked"] == "what color is the wombat?"
    assert seen["focused"] == best[1]
    assert seen["regions"] > 0
    assert seen["picture"] > 0
    assert seen["violations"] == []
    assert seen["wide"]


def test_without_pictures_regions_are_still_shown(trained, serving):
    data = trained.config.data
    bare = data.model_copy(update={"test": data.test.model_copy(update={"images": None})})
    bare_run = replace(trained, config=trained.config.model_copy(update={"data": bare}))
    app = build_app(bare_run, "title", features=None, images=None)
    with serving(app) as client:
        image = client.found("/api/about")["image_ids"][0]
        look = client.found("/api/answer", {"image_id": image, "question": "what is it?"})["look"]
    assert not look["pictured"]
    assert look["boxes"]


@pytest.fixture
def uploading(trained, monkeypatch):
    """An application that accepts pictures."""
    monkeypatch.setitem(EXTRACTORS, "tiny", lambda: tiny_extractor(trained.vocabulary.region_dim))
    return build_app(trained, "title", extractor="tiny")


def encode(picture: Image.Image, kind: str = "PNG") -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return base64.b64encode(buffer.getvalue()).decode()


def test_an_uploaded_picture_is_answered_as_by_ask_and_leaves_nothing(uploading, trained, serving, tmp_path):
    colours = np.random.default_rng(0).integers(256, size=(30, 40, 3), dtype=np.uint8)
    Image.fromarray(colours).save(tmp_path / "any name.png")
    expected = ask_pictures(trained, [tmp_path / "any name.png"], "what color is it?", extractor="tiny")
    (before,) = tmp_path.iterdir()
    with serving(uploading) as client:
        assert client.found("/api/about")["extractor"] == "tiny"
        asked = {"picture": encode(Image.fromarray(colours)), "question": "what color is it?"}
        found = client.found("/api/answer", asked)
    (reply,) = expected["pictures"]
    assert found["answers"] == reply["answers"]
    expected_look = json.loads(json.dumps(reply["look"]))
    assert found["look"] == {"image_id": None, "pictured": False, **expected_look}
    assert [before] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"picture": "no base64!"}, "picture: not base64"),
        ({"picture": base64.b64encode(b"text").decode()}, "picture: not a readable picture"),
        ({"picture": ""}, "picture: not a readable picture"),
        (
            {"picture": encode(Image.new("1", (6000, 4000)))},
            "picture: 6000 x 4000 pixels, at most 20,000,000",
        ),
        ({"picture": encode(Image.new("1", (20_000, 20_000)))}, "picture: not a readable picture"),
        ({"picture": encode(Image.new("RGB", (2, 2)), "TIFF")}, "picture: not a readable picture"),
        (
            {"picture": encode(Image.new("RGB", (2, 2))), "image_id": 1},
            "image_id: name a picture by its id, or send",
        ),
        ({}, "image_id: name a picture by its id, or send one"),
    ],
)
def test_what_is_no_picture_is_refused(uploading, serving, change, message):
    with serving(uploading) as client:
        assert client.refused("/api/answer", {"question": "what?", **change}).startswith(message)


def test_without_an_extractor_the_page_says_why_pictures_cannot_be_uploaded(app, serving):
    with serving(app) as client:
        about = client.found("/api/about")
        asked = {"question": "what?", "picture": encode(Image.new("RGB", (2, 2)))}
        message = client.refused("/api/answer", asked)
    assert about["extractor"] is None
    assert "the extractor that this model was trained with is not known" in about["no_upload"]
    assert message == f"picture: {about['no_upload']}"


UPLOAD_PROBE = """
<script>
const asked = fetch;
const pause = () => asked("/api/health");  // the browser's clock runs ahead while a picture is decoded, but not now
const wait = async ready => { for (let n = 0; n < 2000 && !ready(); n++) await pause(); };
const at_ = id => document.getElementById(id), seen = {};
let sent = 0;
window.fetch = (address, options) => { sent = options?.body?.length ?? sent; return asked(address, options); };
function choose(file) {
  const files = new DataTransfer();
  files.items.add(file);
  at_("upload").files = files.files;
  at_("upload").dispatchEvent(new Event("change"));
}
(async () => {
  await wait(() => at_("image").value);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [1600, 1200];
  const context = canvas.getContext("2d"), pixels = context.createImageData(1600, 1200);
  for (let k = 0; k < pixels.data.length; k++) pixels.data[k] = k % 4 === 3 ? 255 : 255 * Math.random();
  context.putImageData(pixels, 0, 0);
  const blob = await new Promise(go => canvas.toBlob(go, "image/png"));
  seen.file = blob.size;
  choose(new File([blob], "noise.png", { type: "image/png" }));
  await wait(() => at_("shown").querySelector("img")?.alt === "noise.png");
  at_("question").value = "what color is the circle?";
  at_("ask").requestSubmit();
  await wait(() => !at_("where-it-looks").hidden && !at_("try").hasAttribute("aria-busy"));
  seen.fault = at_("fault").textContent; seen.sent = sent;
  seen.answers = document.querySelectorAll("#outputs button").length;
  seen.regions = document.querySelectorAll("#look button").length;
  await wait(() => document.querySelector("#look img").complete);
  seen.picture = document.querySelector("#look img").naturalWidth;
  choose(new File(["text"], "notes.txt"));
  await wait(() => at_("fault").textContent);
  seen.refused = at_("fault").textContent;
  seen.violations = violations;
  seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
})();
</script>
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_makes_a_large_picture_smaller_and_asks_about_it(uploading, serving, browse, width):
    with serving(uploading) as client:
        page = probed(client("/")[1].decode(), UPLOAD_PROBE)
        uploading.get("/probe")(lambda: page)
        seen = browse(client.address + "/probe", width)
    assert seen["file"] > 4_000_000
    assert seen["fault"] == ""
    assert 1000 < seen["sent"] < 1_000_000
    assert seen["answers"] == 5
    assert seen["regions"] == 6
    assert seen["picture"] == 800
    assert seen["refused"] == "notes.txt: not a picture that this browser can read"
    assert seen["violations"] == []
    assert seen["wide"]
