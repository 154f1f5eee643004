"""A training step reads from the device once, and so does a step of beam search: on any device except a CPU."""

import pytest
import torch

from latentalign import OBJECTIVES, parse_predict
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.decode import Translator
from support.waits import Waits

pytestmark = pytest.mark.usefixtures("unchecked")

OBJECTIVE_NAMES = list(OBJECTIVES)
CATEGORICAL = [name for name in OBJECTIVES if OBJECTIVES[name]().distribution == "categorical"]
ON_CHAINS = [name for name in OBJECTIVES if OBJECTIVES[name]().accepts_chains]
CHAINS = {
    "jump": ["prior.kind=jump"],
    "jump by query, NULL": ["prior.kind=jump", "prior.by_query=true", "prior.null=true"],
    "monotone": ["prior.kind=monotone", "prior.max_step=3"],
    "dense": ["prior.kind=dense", "inference.chain=true"],
}


def step(trainer) -> Waits:
    """One update and what is logged about it."""
    keys = trainer.data.batch_keys(0)
    trainer.update(keys[:1])  # the first update makes the state of the optimizer
    with Waits() as waits:
        figures = trainer.update(keys[1:2])
        trainer.metrics.training(trainer.position, [(figures, 1.0)], 1e-3, epochs=0.0)
    assert figures.queries > 0
    return waits


def require_one_reading(waits: Waits) -> None:
    assert dict(waits.found) == {}
    assert waits.allowed["read_numbers"] == 1


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_a_training_step_of_translation_reads_once(name, translation, on_a_gpu):
    require_one_reading(step(translation(name, "training.label_smoothing=0.1")))


@pytest.mark.parametrize("name", ["marginal", "variational-sample"])
def test_a_training_step_of_a_transformer_reads_once(name, translation, on_a_gpu):
    require_one_reading(step(translation(name, backbone="transformer")))


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("jump", name) for name in ON_CHAINS), *((kind, "variational-enum") for kind in CHAINS)],
)
def test_a_training_step_of_a_chain_reads_once(kind, name, translation, on_a_gpu):
    require_one_reading(step(translation(name, *CHAINS[kind])))


@pytest.mark.parametrize("name", CATEGORICAL)
def test_a_training_step_of_question_answering_reads_once(name, answers, on_a_gpu):
    require_one_reading(step(answers(name)))


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("marginal", "objective.tolerance=0.1"),
        ("hard-sample", "objective.baseline=running-mean"),
        ("hard-sample", "objective.baseline=learned"),
        ("variational-sample", "objective.n=3"),
        ("soft", "training.accumulate=2"),
        ("soft", "training.precision=bf16"),
    ],
)
def test_options_add_no_reading(name, option, translation, on_a_gpu):
    require_one_reading(step(translation(name, option)))


@pytest.mark.parametrize("prior", ["independent", "jump"])
@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft", "certified:0.1", "sample:2"])
def test_a_step_of_the_search_reads_whether_it_goes_on(how, prior, translation, texts, on_a_gpu):
    model = translation("marginal", f"prior.kind={prior}").module.model.eval()
    steps = []
    search = BeamSearch(beam=3, nbest=2, max_length=5)
    translator = Translator(model, search, parse_predict(how), lambda: steps.append(1))
    sources = [texts[1].train.source(i).tolist() for i in range(3)]
    with Waits() as waits:
        found = translator(sources)
    assert dict(waits.found) == {}
    assert waits.allowed["read_numbers"] == len(steps) > 3
    assert all(len(hypotheses) == 2 for hypotheses in found)


def test_a_cpu_waits_where_it_saves_work(translation):
    """Without the path of a GPU, the same step reads values: what looks for waits does find them."""
    found = step(translation("marginal")).found
    assert ("nn/packing.py", "of", "aten::nonzero") in found
    assert ("core/kernels/fused_softmax.py", "totals", "__bool__") in found


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (lambda x: x[x > 0], "aten::index"),
        (lambda x: x.clone().index_put_((x > 0,), x.new_zeros(())), "aten::index_put_"),
        (lambda x: x.masked_select(x > 0), "aten::masked_select"),
        (lambda x: x.nonzero(), "aten::nonzero"),
        (lambda x: x.long().bincount(), "aten::bincount"),
        (lambda x: x.unique(), "aten::_unique2"),
        (lambda x: torch.equal(x, x), "aten::equal"),
        (lambda x: torch.multinomial(x, 1), "aten::multinomial"),
        (lambda x: torch.arange(3).repeat_interleave(x.long()), "aten::repeat_interleave"),
        (lambda x: x.sum().item(), "item"),
        (lambda x: float(x.sum()), "__float__"),
        (lambda x: x.cpu(), "cpu"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.numpy(), "numpy"),
        (lambda x: [x][0] if x.any() else None, "__bool__"),
        (lambda x: torch.tensor([1.0]), "tensor"),
        (lambda x: x.new_tensor(1.0), "new_tensor"),
    ],
)
def test_every_way_to_wait_is_noticed_once(act, name):
    with Waits() as waits:
        act(torch.ones(3))
    assert dict(waits.found) == {("", "", name): 1}
