"""One process per subject: what fails is named and loses nobody else."""

from functools import partial
from importlib import import_module

import pytest

from latentalign.bench.rows import SOFT
from latentalign.bench.subjects import Training
from latentalign.bench.worker import WorkerGroup
from support.bench import TINY


@pytest.mark.slow
def test_a_process_that_dies_or_cannot_be_built_is_named_and_loses_no_other():
    jobs = {
        "dies": partial(import_module, "os"),
        "absent": partial(import_module, "no_such_module"),
        "good": partial(Training, TINY, SOFT, threads=1, batches=1),
    }
    with WorkerGroup(jobs) as workers:
        assert workers.failures == {"absent": "absent: ModuleNotFoundError: No module named 'no_such_module'"}
        processes = [member.process for member in workers.members.values()]
        assert workers.ask("dies", "getpid") == processes[0].pid
        assert workers.ask("dies", "_exit", 7) is None
        assert workers.failures["dies"] == "dies: its process ended with code 7"
        assert workers.ask("dies", "getpid") is None
        assert workers.ask("absent", "getpid") is None
        workers.ask("good", "warm_up")
        assert 0 <= workers.ask("good", "peak") < 40  # what PyTorch loads late is twice that
        assert workers.ask("good", "nonsense") is None
        assert "good: AttributeError" in workers.failures["good"]
    assert not any(process.is_alive() for process in processes)
