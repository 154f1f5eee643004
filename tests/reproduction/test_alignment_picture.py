"""The picture of alignments is valid SVG whatever the words are, and shows what the matrices say."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

PATH = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "alignment_picture.py"
SPEC = importlib.util.spec_from_file_location("alignment_picture", PATH)
picture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(picture)

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
