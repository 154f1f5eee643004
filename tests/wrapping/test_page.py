"""The lines that show how to wrap a model run, with a tiny model in place of a download."""

import re
from pathlib import Path

import pytest

from support.wrapping import make_model, make_tokenizer

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    p for p in (ROOT / "README.md", ROOT / "docs" / "wrap.md") if "latentalign.wrap(" in p.read_text("utf-8")
]
PAIRS = [("das Haus ist alt .", "the house is old ."), ("das Buch ist neu .", "the book is new .")] * 4


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_lines_of_the_page_run(page, tmp_path, capsys):
    pytest.importorskip("transformers", reason="transformers is missing: pip install 'latentalign[hf]'")
    tokenizer = make_tokenizer([line for pair in PAIRS for line in pair])
    model = make_model("marian", len(tokenizer))
    model.generation_config.max_new_tokens = 12  # as checkpoints on the hub have a limit
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert any("latentalign.wrap(" in block for block in blocks)
    namespace = {"pairs": PAIRS}
    for block in blocks:
        exec(block.replace('"MODEL"', repr(str(tmp_path))), namespace)
    found = namespace["wrapped"].generate(["das Haus ist alt ."], num_beams=4, return_alignments=True)
    assert found.texts[0] in capsys.readouterr().out
    assert len(found.alignments.links) == 1
