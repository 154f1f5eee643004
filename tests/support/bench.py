"""Toy sizes that the tests of the benchmark share."""

from __future__ import annotations

import pickle
from functools import partial

from latentalign.bench.measure import Effort
from latentalign.bench.sentences import Lengths
from latentalign.bench.subjects import Gemm
from latentalign.bench.worker import ChildFailed, attempt
from latentalign.bench.workload import Preset
from latentalign.core.objectives import Soft
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig

TINY = Preset(
    ModelConfig(
        embedding=8,
        encoder_layers=1,
        encoder_size=8,
        decoder_layers=1,
        decoder_size=12,
        attention_size=6,
        head_size=10,
        dropout=0.1,
    ),
    InferenceConfig(layers=1, size=8),
    vocabulary=50,
    batch=4,
    lengths=Lengths((5.0, 5.0), (1.5, 1.5)),
)
SHORT = Effort(
    rounds=2,
    batches=2,
    turn=0.0,
    lengths=(3,),
    vocabularies=(20,),
    decode_rounds=1,
    sentences=4,
    beams=(1, 2),
    decode_batches=(2,),
)


class InProcess:
    """What a child does, without a process."""

    def __init__(self, name, make):
        self.name = name
        if name == "matrix products":
            make = partial(Gemm, 1, ((8, 8, 8),))
        self.made = attempt(pickle.loads(pickle.dumps(make)))  # as it would travel

    def ready(self):
        self.checked(self.made)

    def ask(self, method, *arguments):
        return self.checked(attempt(lambda: getattr(self.made[1], method)(*arguments)))

    def close(self):
        pass

    def checked(self, answer):
        if not answer[0]:
            raise ChildFailed(f"{self.name}: {answer[1]}")
        return answer[1]


class Broken(Soft):
    """An objective that can be built and not be used."""

    def __call__(self, latent):
        raise ArithmeticError("cannot be used")
