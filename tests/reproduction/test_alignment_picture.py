"""Pictures of alignments, chains and aligners are valid SVG whatever the words are, and show what the matrices say."""

import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from latentalign.aligner import train_aligner

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def load(name):
    """A script of docs/pictures as a module; scripts import each other by name."""
    spec = importlib.util.spec_from_file_location(name, PICTURES / f"{name}.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


picture = load("alignment_picture")
chains = load("chain_pictures")
aligners = load("aligner_pictures")

SVG = "{http://www.w3.org/2000/svg}"


def record(prior, posterior, source=("<b>", "&", "c")):
    matrices = {"prior": np.array(prior), "posterior": np.array(posterior)}
    return {"source": list(source), "target": ["x", "y"], "matrices": matrices}


def test_every_probability_and_gold_link_is_drawn_and_words_are_escaped():
    one = record([[0.5, 0.25, 0.25], [0, 0, 1]], [[1, 0, 0], [0, 0.002, 0.998]])
    root = ElementTree.fromstring(picture.draw(one, frozenset({(0, 0), (2, 1)})))
    opacities = {
        name: [float(r.get("opacity")) for r in root.iter(f"{SVG}rect") if r.get("class") == name]
        for name in ("prior", "inferred", "posterior")
    }
    assert opacities == {"prior": [0.5, 0.25, 0.25, 1], "inferred": [], "posterior": [1, 0.998]}
    rings = [c for c in root.iter(f"{SVG}circle") if c.get("class") == "gold"]
    assert len(rings) == 2 * 2 + 1  # both panels and the legend
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count("<b>") == texts.count("&") == 2
    assert float(root.get("width")) < 1000


def test_a_pair_with_found_links_and_reordering_is_preferred():
    blunt = np.full((2, 3), 1 / 3)
    crossed, straight = np.eye(3)[[2, 0]], np.eye(3)[[0, 2]]
    gold = frozenset({(2, 0), (0, 1)})
    assert picture.quality(record(blunt, crossed), gold) > picture.quality(record(blunt, straight), gold)
    assert picture.quality(record(blunt, crossed), frozenset()) > picture.quality(
        record(blunt, straight), frozenset()
    )
    assert picture.quality(record(blunt, crossed), gold) > picture.quality(record(crossed, crossed), gold)


def test_the_committed_pictures_of_chains_are_those_of_the_script():
    for name, drawn in (("chain-transitions", chains.transitions()), ("chain-trellis", chains.trellis())):
        assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == drawn


def test_a_path_is_a_line_through_the_centres_of_its_cells():
    one = record([[0.5, 0.25, 0.25], [0, 0, 1]], [[1, 0, 0], [0, 0, 1]])
    panel = picture.Panel("t", "e", "posterior", one["matrices"]["posterior"], [(0, 0), (2, 1)])
    root = ElementTree.fromstring(picture.draw_panels(one["source"], one["target"], [panel], frozenset()))
    cells = [r for r in root.iter(f"{SVG}rect") if r.get("class") == "posterior"]
    corners = [(float(r.get("x")) + picture.CELL / 2, float(r.get("y")) + picture.CELL / 2) for r in cells]
    (line,) = (p for p in root.iter(f"{SVG}polyline") if p.get("class") == "line")
    assert [tuple(map(float, point.split(","))) for point in line.get("points").split()] == corners


def test_rows_of_transitions_are_distributions_and_respect_their_kind():
    for _, transition in chains.KINDS.values():
        np.testing.assert_allclose(chains.transition_matrix(transition).sum(1), 1.0, rtol=1e-6)
    monotone = chains.transition_matrix(chains.KINDS["Monotone"][1])
    assert not np.tril(monotone, -1).any()


def test_the_picture_of_an_aligner_writes_its_probabilities_in_per_cent_with_null():
    pairs = [("a b", "x y"), ("a", "x"), ("b", "y"), ("a c", "x z")]
    aligner = train_aligner(pairs)
    (found,) = aligner.align_lines([("a b", "y x")])
    root = ElementTree.fromstring(aligners.draw_links(aligner, ("a b", "y x")))
    shown = [text.text for text in root.iter(f"{SVG}text") if "font-size" in (text.get("style") or "")]
    matrices = [
        aligners.with_null(found.forward, found.target_null, np.zeros(2)),
        aligners.with_null(found.backward, np.zeros(2), found.source_null),
        aligners.with_null(found.mean, found.target_null, found.source_null),
    ]
    expected = [f"{100 * p:.0f}" for matrix in matrices for p in matrix.flatten() if p >= 0.01]
    assert shown == expected


def test_the_picture_of_jumps_has_the_shares_that_were_learned_before_they_were_tempered():
    aligner = train_aligner([("a b c", "x y z"), ("b c", "y z"), ("c", "z"), ("a", "x")])
    root = ElementTree.fromstring(aligners.draw_jumps(aligner))
    heights = [float(r.get("height")) for r in root.iter(f"{SVG}rect") if r.get("class") == "prior"]
    weights = aligner.directions[0].weights ** (1 / aligner.config.jump_weight)
    middle = len(weights) // 2
    drawn = weights[middle + aligners.WIDTHS.start : middle + aligners.WIDTHS.stop].numpy()
    np.testing.assert_allclose(heights, aligners.HEIGHT * drawn / drawn.max(), atol=0.06)
