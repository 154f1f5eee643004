"""The library needs four packages. Any other package that is missing is named with the command that installs it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from latentalign.errors import InputError
from latentalign.extras import EXTRA_OF, MissingPackageError, require_package

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
DISTRIBUTION = {"PIL": "pillow", "starlette": "fastapi"}
"""Distributions whose name differs from the package that is imported, or that bring the package along."""

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run_with_extras(code: str, *extras: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process in which only the packages of some extras can be imported."""
    blocked = {package for package, extra in EXTRA_OF.items() if extra not in extras}
    code = f"BLOCKED = {blocked!r}\n{BLOCKER}\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_library_depends_on_four_packages():
    names = {re.split(r"[<>=]", requirement)[0] for requirement in PROJECT["dependencies"]}
    assert names == {"torch", "jaxtyping", "numpy", "safetensors"}


@pytest.mark.parametrize("package", EXTRA_OF)
def test_every_optional_package_is_in_the_extra_that_the_message_names(package):
    requirements = PROJECT["optional-dependencies"][EXTRA_OF[package]]
    names = {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}
    assert DISTRIBUTION.get(package, package.replace("_", "-")) in names


@pytest.mark.slow
def test_latent_attention_works_without_any_extra():
    result = run_with_extras(
        "import torch, latentalign\n"
        "attention = latentalign.LatentAttention(4, 5, 6)\n"
        "print(sorted(latentalign.__all__)[0])\n"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("task", ["nmt", "vqa"])
def test_the_extra_of_a_task_is_enough_to_train_and_evaluate(task):
    modules = ["latentalign.cli.main", "latentalign.data.known"]
    modules += [f"latentalign.tasks.{task}.{name}" for name in ("task", "evaluate")]
    result = run_with_extras("".join(f"import {module}\n" for module in modules), "cli", task)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["train", "nmt/demo", "--out", "run"]])
def test_the_command_without_its_packages_says_what_to_install(arguments):
    code = f"sys.argv = ['latentalign', *{arguments!r}]\nfrom latentalign.__main__ import main\nmain()\n"
    result = run_with_extras(code)
    assert result.returncode == 2
    assert result.stderr.startswith("latentalign: the package ")
    assert 'run pip install "latentalign[nmt]"' in result.stderr
    assert "Traceback" not in result.stderr


FIXTURE = Path(__file__).resolve().parent / "fixtures" / "run-v1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extras", "command", "needed"),
    [
        ([], "evaluate RUN --split valid", "nmt"),
        ([], "train vqa/scenes --out run", "vqa"),
        (["nmt"], "report RUN --out page.html", "report"),
        (["nmt", "report"], "serve RUN", "serve"),
        (["nmt"], "train nmt/demo --out run --set training.tensorboard=true", "tensorboard"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(extras, command, needed, tmp_path):
    arguments = command.replace("RUN", str(FIXTURE)).split()
    code = f"sys.argv = ['latentalign', *{arguments!r}]\nfrom latentalign.__main__ import main\nmain()\n"
    result = run_with_extras(f"import os\nos.chdir({str(tmp_path)!r})\n{code}", "cli", *extras)
    assert result.returncode == 2, result.stderr
    assert f'run pip install "latentalign[{needed}]"' in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_recipes_are_listed_without_the_packages_of_any_task():
    code = "sys.argv = ['latentalign', 'recipe', 'list']\nfrom latentalign.__main__ import main\nmain()\n"
    result = run_with_extras(code, "cli")
    assert result.returncode == 0, result.stderr
    assert "nmt/demo" in result.stdout


def test_a_missing_package_is_bad_input(monkeypatch):
    require_package("pydantic", "a recipe")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingPackageError, match=r'an HDF5 file: .*h5py.* pip install "latentalign\[vqa\]"'):
        require_package("h5py", "an HDF5 file")
    assert issubclass(MissingPackageError, InputError)
    assert MissingPackageError.exit_code == 2
