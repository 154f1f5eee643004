"""The command line starts quickly: nothing large is imported before it is needed."""

import subprocess
import sys

import pytest

from latentalign import __version__
from latentalign.cli.main import COMMANDS

LARGE = {"torch", "numpy", "pydantic", "rich", "matplotlib", "sacrebleu", "tokenizers", "fastapi"}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_commands_are_imported_without_large_libraries():
    code = "import sys, latentalign.cli.main; print(*{m.partition('.')[0] for m in sys.modules})"
    assert not LARGE & set(run(code).split())


@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_help_and_version_need_no_large_library(option):
    code = (
        f"import sys; sys.argv = ['latentalign', '{option}']\nfrom latentalign.cli.main import main\n"
        "try: main()\nfinally: print(*{m.partition('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    *shown, modules = done.stdout.strip().split("\n")
    assert not LARGE & set(modules.split())
    if option == "--version":
        assert shown == [f"latentalign {__version__}"]
    else:
        assert all(any(module.NAME in line for line in shown) for module in COMMANDS)


@pytest.mark.parametrize("module", COMMANDS, ids=lambda module: module.NAME)
def test_every_command_has_a_short_help(module):
    from typer.testing import CliRunner

    from latentalign.cli.main import app

    result = CliRunner().invoke(app, [module.NAME, "-h"])
    assert result.exit_code == 0
    assert "--help" in result.output
    assert len(module.command.__doc__.split("\n")[0]) <= 100


@pytest.mark.slow
def test_names_of_the_package_are_imported_when_they_are_used():
    code = (
        "import sys, latentalign; from latentalign import errors; assert 'torch' not in sys.modules\n"
        "latentalign.Categorical; assert 'torch' in sys.modules\n"
        "from latentalign import *; assert marginal and 'Categorical' in dir(latentalign)\n"
        "assert not hasattr(latentalign, 'nonsense')"
    )
    run(code)
