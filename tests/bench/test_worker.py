"""One process per subject: what fails is named and loses nobody else."""

from functools import partial
from importlib import import_module

import pytest

from latentalign.bench.subjects import Training
from latentalign.bench.worker import Crew
from latentalign.bench.workload import SOFT
from support.bench import TINY


@pytest.mark.slow
def test_a_process_that_dies_or_cannot_be_built_is_named_and_loses_no_other():
    jobs = {
        "dies": partial(import_module, "os"),
        "absent": partial(import_module, "no_such_module"),
        "good": partial(Training, TINY, SOFT, threads=1, batches=1),
    }
    with Crew(jobs) as crew:
        assert crew.failures == {"absent": "absent: ModuleNotFoundError: No module named 'no_such_module'"}
        processes = [member.process for member in crew.members.values()]
        assert crew.ask("dies", "getpid") == processes[0].pid
        assert crew.ask("dies", "_exit", 7) is None
        assert crew.failures["dies"] == "dies: its process ended with code 7"
        assert crew.ask("dies", "getpid") is None
        assert crew.ask("absent", "getpid") is None
        crew.ask("good", "warm_up")
        assert 0 <= crew.ask("good", "peak") < 40  # what PyTorch loads late is twice that
        assert crew.ask("good", "nonsense") is None
        assert "good: AttributeError" in crew.failures["good"]
    assert not any(process.is_alive() for process in processes)
