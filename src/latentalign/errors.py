"""Errors that a user can act on. The command line turns each into an exit code and one message."""

import signal


class LatentAlignError(Exception):
    """Base class of errors caused by the input or the environment, not by a bug."""

    exit_code = 1


class InputError(LatentAlignError, ValueError):
    """Bad input or configuration. The message names the file, line or key, and says what to do."""

    exit_code = 2


class DivergedError(LatentAlignError):
    """A loss or gradient is not finite. Training stopped before the update."""

    exit_code = 3


class CheckpointError(LatentAlignError):
    """A checkpoint or run directory cannot be used."""

    exit_code = 4


class StorageError(LatentAlignError, OSError):
    """Reading or writing failed: no space, no permission, no such device."""

    exit_code = 5


class LostProcessError(LatentAlignError):
    """Another process that this one needs has ended, for example one of a distributed training run."""

    exit_code = 6


class OutOfMemoryError(LatentAlignError, MemoryError):
    """The model or a batch does not fit into memory."""

    exit_code = 7


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the work. During training, the checkpoint of the current step is saved first."""

    def __init__(self, number: int = signal.SIGTERM, saved: str | None = None) -> None:
        super().__init__(number)
        self.number = int(number)
        """The signal."""
        self.saved = saved
        """What is finished or saved, and how to continue; None if nothing has to be said."""

    @property
    def exit_code(self) -> int:
        """The code that shells report for a process that a signal ended."""
        return 128 + self.number
