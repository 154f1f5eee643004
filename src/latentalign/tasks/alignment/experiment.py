"""The experiment of word alignment: the aligner, and what each of its parts contributes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latentalign.data import demo
from latentalign.reproduction.experiment import Experiment, GeneratedData, PageContext, Row
from latentalign.reproduction.tables import Column, FigureTable
from latentalign.tasks.alignment.recipe import AlignmentConfig
from latentalign.web.pages import Viewer, alignment_viewer

ROWS = (
    Row("aligner", "marginal"),
    Row("whole words", "marginal", ("aligner.prefixes=[]", "aligner.suffixes=[]")),
    Row("dense tables", "marginal", ("aligner.sparsity=0.1",)),
    Row("jumps in full", "marginal", ("aligner.jump_weight=1.0",)),
)
AER, EXPECTED = Column("AER", "aer", 3), Column("expected F1", "expected_f1", 3)
COLUMNS = (AER, Column("precision", "precision", 3), Column("recall", "recall", 3), EXPECTED)


def write_demo(folder: Path) -> None:
    """Write the embedded language's corpus."""
    demo.write(folder, overwrite=True)


def demo_settings(folder: Path) -> Sequence[str]:
    """The demo's files as overrides of its recipe."""
    return [
        f"data.{split}.{key}={folder / f'{split}.{end}'}"
        for split, files in (("train", ("de", "en")), ("test", ("de", "en", "gold")))
        for key, end in zip(("source", "target", "gold"), files, strict=False)
    ]


def viewers(context: PageContext) -> list[Viewer]:
    return [alignment_viewer(context.examples)]


EXPERIMENT = Experiment(
    task="alignment",
    recipe_model=AlignmentConfig,
    rows=ROWS,
    figures=(
        "aer",
        "precision",
        "recall",
        "f1",
        "expected_f1",
        "unlinked_source",
        "unlinked_target",
        "sentences",
    ),
    examples="sentences",
    tables=(FigureTable("Word alignment", "Lower AER is better. One change at a time.", COLUMNS),),
    terminal_columns=(AER, EXPECTED),
    run_columns=COLUMNS,
    details=("--sentences=20",),
    viewers=viewers,
    data=GeneratedData("demo-align", "align/demo", write_demo, "test.gold", demo_settings),
)
