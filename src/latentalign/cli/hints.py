"""Hints on stderr that name the next command, for people; `--json` and `--quiet` print none."""

from __future__ import annotations

import shlex
from pathlib import Path

from latentalign.progress import inform

RECIPES = {
    "demo": "nmt/demo",
    "spelling": "nmt/spelling",
    "g2p": "nmt/g2p",
    "multi30k": "nmt/multi30k-small",
    "iwslt14": "nmt/iwslt14",
    "iwslt14-part": "nmt/iwslt14-part",
    "wmt17": "nmt/wmt17",
    "scenes": "vqa/scenes",
}
"""The recipe that trains on a corpus as soon as its files are there."""
PICTURES = {"daquar": "features.safetensors", "vqa2": "features.valid.safetensors"}
"""The features file that the recipe of a corpus needs last."""


def suggest(*commands: str) -> None:
    """Name the command that usually comes next, or several to choose from."""
    inform("next: " + " or ".join(f"`latentalign {command}`" for command in commands))


def suggest_after_data(name: str, folder: Path, home: Path) -> None:
    """What to do with a corpus. The recipes look for it only in its usual place."""
    if folder.absolute() != (home / name).absolute():
        return
    if name in RECIPES:
        suggest(f"train {RECIPES[name]} --out run")
    elif name == "daquar":
        photographs, out = shlex.quote(str(folder / "images")), folder / PICTURES[name]
        suggest(f"features {photographs} --extractor efficientnet-lite0 --out {shlex.quote(str(out))}")
    elif name == "vqa2":
        suggest(
            *(f"features SOURCE --out {folder}/features.{part}.safetensors" for part in ("train", "valid"))
        )


def suggest_after_features(file: Path, home: Path) -> None:
    """Train the recipe that needs the file; or a recipe that names it."""
    known = (name for name, last in PICTURES.items() if file.absolute() == (home / name / last).absolute())
    recipe = next((f"vqa/{name}" for name in known), None)
    if recipe is not None:
        suggest(f"train {recipe} --out run --objective marginal")
    else:
        inform(f"next: write {file} into a recipe as `features`, and train it with `latentalign train`")


def suggest_after_training(run: Path) -> None:
    """Measure the run."""
    suggest(f"evaluate {shlex.quote(str(run))}")


def suggest_after_converting(run: Path) -> None:
    """Train the new run, or measure it as it is."""
    name, recipe = shlex.quote(str(run)), shlex.quote(str(run / "config.toml"))
    suggest(f"train {recipe} --out {name} --resume", f"evaluate {name}")


def suggest_after_evaluation(run: Path) -> None:
    """Look at the run."""
    name = shlex.quote(str(run))
    suggest(f"report {name} --out report.html", f"serve {name}")
