"""Errors a person can act on; the command line turns each into its exit code and one message."""


class LatentAlignError(Exception):
    """Base of every error that is the input's or the environment's fault, not a bug."""

    exit_code = 1


class InputError(LatentAlignError, ValueError):
    """Bad input or configuration: the message names file, line or key and what to do."""

    exit_code = 2


class DivergedError(LatentAlignError):
    """A loss or gradient that is not finite: training stopped before the update."""

    exit_code = 3


class CheckpointError(LatentAlignError):
    """A checkpoint or run directory that cannot be used."""

    exit_code = 4


class StorageError(LatentAlignError, OSError):
    """Reading or writing failed: no space, no permission, no such device."""

    exit_code = 5


class LostProcessError(LatentAlignError):
    """Another process of a distributed training is gone."""

    exit_code = 6


class Interrupted(BaseException):
    """SIGTERM arrived during training; the checkpoint is written."""
