"""latentalign: attention as a latent variable.

Exact, hard and variational alignment models for PyTorch, after *Latent Alignment and Variational Attention*.
`latentalign.api` lists the public names. They are imported on first use, so that the command line starts without
PyTorch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from latentalign.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used."""
        is_special = name.startswith("__") and name != "__all__"
        if (
            is_special or find_spec(f"{__name__}.{name}") is not None
        ):  # the import system imports submodules itself
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module("latentalign.api"), name)
        return value

    def __dir__() -> list[str]:
        return sorted([*globals(), *import_module("latentalign.api").__all__])
