"""Length of the path through the project's code: a training batch, and a translated sentence.

    python benchmarks/path_length.py [--list]

Prints, for the second (warm) call of each piece of work:

- functions: distinct functions of the project; generator expressions, comprehensions and lambdas count as part of
  the function that contains them;
- files: the files that hold them;
- switches: how often a called function is in another file than the one called before it;
- depth: the largest number of project functions on the stack.

"translate" is `latentalign translate` of one sentence, reading the run included. The output is two tokens long, so
that switches do not depend on the model. `--list` also prints the functions of each file.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import torch

import latentalign

PROJECT = str(Path(latentalign.__file__).parent) + "/"
FIXTURE = Path(__file__).parents[1] / "tests" / "fixtures" / "run-v1"
SENTENCE = "ein Mann sieht einen Hund ."


@dataclass
class CallPath:
    """The project functions that a piece of work calls, and how it moves between them."""

    functions: set[CodeType] = field(default_factory=set)
    file: str = ""
    """Of the function called last."""
    switches: int = 0
    height: int = 0
    """Project functions on the stack now."""
    depth: int = 0

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Follow one event of `sys.setprofile`."""
        code = frame.f_code
        if event not in ("call", "return") or not is_function_of_project(code):
            return
        if event == "return":
            self.height -= 1
            return
        self.height += 1
        self.depth = max(self.depth, self.height)
        self.functions.add(code)
        self.switches += self.file not in ("", code.co_filename)
        self.file = code.co_filename

    def by_file(self) -> dict[str, list[str]]:
        """Names of the functions of each file."""
        files: dict[str, list[str]] = {}
        for code in sorted(self.functions, key=lambda c: (c.co_filename, c.co_firstlineno)):
            files.setdefault(code.co_filename.removeprefix(PROJECT), []).append(code.co_qualname)
        return files


def is_function_of_project(code: CodeType) -> bool:
    """Whether code is a named function in one of the project's files; `<lambda>` and the like have no name."""
    return code.co_filename.startswith(PROJECT) and not code.co_name.startswith("<")


def follow(work: Callable[[], Any]) -> CallPath:
    """The path of the second call of some work."""
    work()
    path = CallPath()
    sys.setprofile(path.profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return path


def training_forward(run: Path) -> Callable[[], Any]:
    """The forward pass of model and objective for one batch."""
    from latentalign.tasks.nmt.data import Batch
    from latentalign.tasks.nmt.task import TRANSLATION
    from latentalign.training.loss import LossModule
    from latentalign.training.objective import ObjectiveConfig

    model = TRANSLATION.load(run).model.train()
    loss = LossModule(model, ObjectiveConfig(name="variational-sample").build())
    source, target = torch.randint(4, 40, (3, 6)), torch.randint(4, 40, (3, 5))
    source_mask = torch.tensor([[6], [4], [3]]) > torch.arange(6)
    target_mask = torch.tensor([[5], [5], [2]]) > torch.arange(5)
    batch = Batch(source, source_mask, target, target_mask, torch.arange(3))
    return lambda: loss(batch)


def translate_command(run: Path) -> None:
    """`latentalign translate RUN` of one sentence, reading the run included."""
    from latentalign.cli.main import main as command

    stdin = io.TextIOWrapper(io.BytesIO(SENTENCE.encode()))
    arguments = ["latentalign", "translate", str(run)]
    with mock.patch.multiple(sys, stdin=stdin, stdout=io.StringIO(), argv=arguments), suppress(SystemExit):
        command()


def run_with_short_outputs(folder: Path) -> Path:
    """A copy of the tests' run whose translations end after two tokens."""
    run = Path(shutil.copytree(FIXTURE, folder / "run"))
    config = (run / "config.toml").read_text(encoding="utf-8")
    for key, value in (("max_length_ratio", "0.0"), ("max_length_extra", "2")):
        config = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", config)
    (run / "config.toml").write_text(config, encoding="utf-8")
    return run


def print_functions(name: str, path: CallPath) -> None:
    """The functions of each file, in the order of the files."""
    print(f"\n{name}")
    for file, functions in path.by_file().items():
        print(f"  {file}: {', '.join(functions)}")


def main() -> None:
    with TemporaryDirectory() as folder:
        run = run_with_short_outputs(Path(folder))
        paths = {
            "training forward": follow(training_forward(run)),
            "translate": follow(lambda: translate_command(run)),
        }
    print(f"{'':20}{'functions':>10}{'files':>7}{'switches':>10}{'depth':>7}")
    for name, path in paths.items():
        print(f"{name:20}{len(path.functions):10}{len(path.by_file()):7}{path.switches:10}{path.depth:7}")
    if "--list" in sys.argv:
        for name, path in paths.items():
            print_functions(name, path)


if __name__ == "__main__":
    main()
