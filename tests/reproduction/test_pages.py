"""The page stands alone, and in a browser its switches switch."""

import base64
import json
import re

import pytest

from latentalign.errors import InputError
from latentalign.storage import require_free
from latentalign.web.pages import (
    Cell,
    Page,
    Section,
    Table,
    alignment_viewer,
    region_viewer,
    render,
)


def matrix(*rows):
    return base64.b64encode(bytes(round(255 * p) for row in rows for p in row)).decode()


def records(prior, posterior):
    shared = {
        "source": ["ein", "Hund"],
        "target": ["a", "dog"],
        "sure": [[0, 0], [1, 1]],
        "possible": [],
        "source_pieces": ["\u2581ein", "\u2581Hu", "nd"],
        "target_pieces": ["\u2581a", "\u2581dog"],
    }
    pieces = {"prior": matrix((1, 0, 0), (0, 0.6, 0.4)), "posterior": matrix((1, 0, 0), (0, 0.2, 0.8))}
    first = {"sentence": 3, **shared, "matrices": {"prior": prior, "posterior": posterior}}
    return [{**first, "piece_matrices": pieces}, {**first, "sentence": 7, "piece_matrices": pieces}]


@pytest.fixture
def page():
    table = Table(
        "Figures <1>",
        "run `a <b>`",
        ["row", "ppl"],
        [[Cell("b"), Cell("2.0", 2.0)], [Cell("a"), Cell("10.0", 10.0)], [Cell("c"), Cell("-")]],
    )
    alignments = {
        "soft": records(matrix((0.5, 0.5), (0.5, 0.5)), matrix((1, 0), (0, 1))),
        "variational-sample": records(matrix((0.8, 0.2), (0.1, 0.9)), matrix((1, 0), (0, 1))),
    }
    look = {
        "question_id": 1, "image_id": 5, "question": "what color?", "answer": "red", "predicted": "red",
        "boxes": [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], "gold": [[0, 0, 0.5, 0.5]],
        "looks": {"prior": [0.4, 0.6], "posterior": [1.0, 0.0]},
        "says": [[["red", 0.9], ["blue", 0.1]], [["blue", 0.8], ["red", 0.2]]],
    }  # fmt: skip
    return Page(
        "A & B",
        "two rows",
        [Section("Figures <1>", table=table)],
        viewers=[
            alignment_viewer(alignments),
            region_viewer({"marginal": [look]}, {"5": "data:image/gif;base64,R0lGODlhAQABAAAAACw="}),
        ],
    )


def test_the_page_is_one_file_without_addresses_and_hostile_words_stay_words(page):
    page.viewers[0].data["soft"][0]["source"][0] = "</script><script>alert(1)</script>"
    page.viewers[0].data["soft"][0]["target"][0] = "<!-- <script>\u2028"
    page.viewers[1].data["models"]["marginal"][0]["question"] = "' onload='alert(2)"
    text = render(page)
    assert "alert(1)</script>" not in text
    assert "<!--" not in text
    assert "' onload" not in text
    assert not re.search(r"""(src|href)=["'](?!#)""", text)
    assert "http://" not in text
    assert "https://" not in text
    assert "A &amp; B" in text
    assert "{{" not in text
    assert "{%" not in text


def test_a_page_links_to_every_part_and_holds_every_table(page):
    text = render(page)
    for anchor in ("alignments", "where-it-looks", "figures-1"):
        assert f'<a href="#{anchor}">' in text
        assert f'<section id="{anchor}"' in text
    assert '<td data-value="10.0">10.0</td>' in text
    assert "Figures &lt;1&gt;" in text
    assert "run <code>a &lt;b&gt;</code>" in text
    data = re.search(r'<script type="application/json" id="alignment-data">(.*?)</script>', text, re.S)[1]
    assert list(json.loads(data)) == ["soft", "variational-sample"]  # in the order of the rows


def test_verdicts_on_claims_are_marked():
    rows = [[Cell("a"), Cell("seen")], [Cell("b"), Cell("not seen")], [Cell("c"), Cell("undecided")]]
    text = render(Page("t", "s", [Section("Claims", table=Table("Claims", "n", ["claim", "here"], rows))]))
    for mark, word in (("good", "seen"), ("bad", "not seen"), ("open", "undecided")):
        assert f'<span class="{mark}">{word}</span>' in text


def test_a_page_is_not_replaced_unasked(tmp_path):
    require_free(tmp_path / "new.html", overwrite=False)
    (tmp_path / "old.html").write_text("mine")
    require_free(tmp_path / "old.html", overwrite=True)
    with pytest.raises(InputError, match="--overwrite"):
        require_free(tmp_path / "old.html", overwrite=False)


PROBE = """
<script>
const share = cell => Number(cell.style.getPropertyValue("--share"));
const shares = () => [...document.querySelectorAll("#matrix td.p i")].map(share);
const seen = {};
const click = id => document.getElementById(id).click();
seen.posterior = shares();
click("using-prior"); seen.prior = shares(); seen.entropy = document.querySelector("#matrix td.entropy").textContent;
click("using-soft"); seen.soft = shares();
click("using-gold"); seen.gold = shares(); seen.rings = document.querySelectorAll("#matrix td.sure").length;
seen.inferred_disabled = document.getElementById("using-inferred").disabled;
click("using-prior"); click("unit-pieces"); seen.pieces = shares();
seen.words = [...document.querySelectorAll("#matrix thead th span")].map(x => x.textContent);
click("unit-words"); click("next"); seen.second = document.getElementById("sentence").selectedOptions[0].textContent;
const word = document.querySelector('#matrix tbody th[data-j="1"]');
word.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
seen.reading = document.getElementById("reading").textContent;
seen.lit = [...document.querySelectorAll("#matrix th.lit")].map(x => x.textContent);
const cell = document.querySelector("#matrix td.p"); cell.focus();
cell.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
seen.moved = [document.activeElement.dataset.i, document.activeElement.dataset.j];
seen.told = document.getElementById("reading").textContent;
const order = () => [...document.querySelectorAll("table.sortable tbody th")].map(x => x.textContent);
const head = document.querySelectorAll("table.sortable thead button")[1];
seen.unsorted = order(); head.click(); seen.up = order(); head.click(); seen.down = order();
seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
const out = document.createElement("pre");
out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
</script>
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 390])
def test_switches_change_what_is_shown(page, browse, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(render(page) + PROBE, encoding="utf-8")
    seen = browse(path.as_uri(), width)
    assert seen["posterior"] == [1, 0, 0, 1]
    assert seen["prior"] == pytest.approx([0.8, 0.2, 0.1, 0.9], abs=0.003)
    assert float(seen["entropy"]) == pytest.approx(0.50, abs=0.01)
    assert seen["soft"] == pytest.approx([0.5] * 4, abs=0.003)
    assert seen["gold"] == [1, 0, 0, 1]
    assert seen["rings"] == 2
    assert seen["inferred_disabled"]
    assert seen["pieces"] == pytest.approx([1, 0, 0, 0, 0.6, 0.4], abs=0.003)
    assert seen["words"][:3] == ["\u2581ein", "\u2581Hu", "nd"]
    assert seen["second"].startswith("7.")
    assert seen["reading"] == "dog from Hund 0.90, ein 0.10"
    assert seen["lit"] == ["ein", "Hund", "dog"]
    assert seen["moved"] == ["1", "0"]
    assert seen["told"] == "a from Hund: 0.20"  # the keyboard tells as much as the pointer
    assert (seen["unsorted"], seen["up"], seen["down"]) == (list("bac"), list("bac"), list("abc"))
    assert seen["wide"]  # nothing but the tables' own boxes is wider than the window


PATH_PROBE = """
<script>
const seen = {}, matrix = document.getElementById("matrix");
const cell = (x, y) => {
  matrix.scrollIntoView();
  const now = document.getElementById("path").getBoundingClientRect();
  const {i, j} = document.elementFromPoint(now.left + x, now.top + y).closest("td").dataset;
  return [Number(i), Number(j)];
};
const number = (shape, key) => Number(shape.getAttribute(key));
const look = () => ({
  stops: [...document.querySelectorAll("#path circle")].map(c => cell(number(c, "cx"), number(c, "cy"))),
  diamonds: document.querySelectorAll("#path path").length,
  line: document.querySelector("#path .line").getAttribute("points").split(" ").filter(p => p)
    .map(p => cell(...p.split(",").map(Number))),
  note: document.getElementById("path-note").textContent,
});
seen.words = [...document.querySelectorAll("#matrix thead th span")].map(x => x.textContent);
seen.posterior = look();
seen.null = [...document.querySelectorAll("#matrix td.null i")].map(i => Number(i.style.getPropertyValue("--share")));
seen.label = document.querySelector('#matrix td.p[data-i="2"][data-j="1"]').getAttribute("aria-label");
seen.entropy = document.querySelectorAll("#matrix td.entropy")[1].textContent;
document.getElementById("using-prior").click(); seen.prior = look();
document.getElementById("using-posterior").click(); document.getElementById("next").click(); seen.second = look();
const out = document.createElement("pre");
out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
</script>
"""


@pytest.mark.slow
def test_the_best_path_of_a_chain_is_a_line_over_its_posterior(browse, tmp_path):
    words = {"source": ["ein", "Hund"], "target": ["a", "big", "dog"]}
    posterior = [[1.0, 0.0], [0.0, 0.25], [0.0, 1.0]]
    chain = {"null": {"prior": [0.5] * 3, "posterior": [0.0, 0.75, 0.0]}, "path_log_prob": -0.5}
    first = {
        "sentence": 1,
        **words,
        "matrices": {"prior": [[0.25, 0.25]] * 3, "posterior": posterior},
        **chain,
    }
    second = {**first, "sentence": 2, "path": [[1, 0], [0, 1], [0, 2]], "path_log_prob": -30.0}
    first["path"] = [[0, 0], [None, 1], [1, 2]]
    path = tmp_path / "page.html"
    page = Page("t", "s", viewers=[alignment_viewer({"marginal": [first, second]})])
    path.write_text(render(page) + PATH_PROBE, encoding="utf-8")
    seen = browse(path.as_uri(), 600)
    assert seen["words"] == ["ein", "Hund", "NULL", "entropy"]
    assert seen["posterior"]["stops"] == seen["posterior"]["line"] == [[0, 0], [1, 2]]
    assert seen["posterior"]["diamonds"] == 1
    assert "including the end of the sentence, is 0.607" in seen["posterior"]["note"]
    assert "NULL" in seen["posterior"]["note"]
    assert seen["null"] == [0.0, 0.75, 0.0]
    assert seen["label"] == "big, NULL: 0.75, on the best path"
    assert seen["entropy"] == "0.56"  # over the source words and NULL
    assert seen["prior"] == {"stops": [], "diamonds": 0, "line": [], "note": ""}
    assert seen["second"]["line"] == [[1, 0], [0, 1], [0, 2]]
    assert seen["second"]["note"].endswith("is 9.4e-14.")


def test_training_curves_show_both_phases():
    from latentalign.reproduction.plots import training_curves

    warm = [{"phase": "warm start", "seconds": 60.0 * i, "bound": 9.0, "ppl": 9.0} for i in (1, 2)]
    main = [{"phase": "training", "seconds": 60.0 * i, "bound": 5.0, "ppl": 4.0} for i in (3, 4)]
    figure = training_curves({"soft": main, "marginal": [*warm, *main], "empty": []})
    lines = figure.axes[1].get_lines()
    drawn = [(line.get_linestyle(), list(line.get_xdata())) for line in lines]
    assert (":", [1.0, 2.0, 3.0]) in drawn, "the warm start leads to the first point after it"
    assert drawn.count(("-", [3.0, 4.0])) == 2
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["soft", "marginal", "empty", "warm start"]
    assert [t.get_text() for t in training_curves({"soft": main}).legends[0].get_texts()] == ["soft"]
