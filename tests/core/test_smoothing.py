"""Label smoothing: the mean over all outputs, in the loss and never in what is reported."""

import pytest
import torch

from latentalign import OBJECTIVES, Latent, LatentAttention, LinearHead
from latentalign.core.kernels.smoothing import mean_output_log_prob
from latentalign.training.loss import LossModule

PADDING = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1]]).bool()
NO_QUERY = torch.tensor([[0, 0, 1], [0, 0, 0]]).bool()


def choice(head=None):
    torch.manual_seed(0)
    attention = LatentAttention(5, 4, 7, hidden=6, head=head).double()
    query = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    found = attention(query, memory, key_padding_mask=PADDING, query_padding_mask=NO_QUERY)
    return found, [query, memory, *attention.parameters()]


def biasless():
    head = LinearHead(4, 7)
    head.output = torch.nn.Linear(4, 7, bias=False)
    return head


@pytest.mark.parametrize("head", [None, biasless()], ids=["mlp", "linear without bias"])
def test_it_is_the_mean_over_all_outputs_with_its_gradient(head):
    found, leaves = choice(head)
    target = torch.randint(7, (2, 3))
    value = mean_output_log_prob(found.observe(target))
    expected = found.predict("soft").mean(-1).masked_fill(NO_QUERY, 0.0)
    torch.testing.assert_close(value, expected)
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    context = found.prior.mean @ found.memory.squeeze(1)
    plain = found.head(found.query, context).log_softmax(-1).mean(-1).masked_fill(NO_QUERY, 0.0)
    for a, b in zip(
        torch.autograd.grad(value.sum(), leaves, **options),
        torch.autograd.grad(plain.sum(), leaves, **options),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


class Given(torch.nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.given = latent
        self.queries = self.examples = 5

    def latent(self, batch):
        return self.given


def test_smoothing_changes_the_loss_and_not_what_is_reported():
    found, _ = choice()
    model = Given(found.observe(torch.randint(7, (2, 3))))
    plain = LossModule(model, OBJECTIVES["soft"]())(model)
    module = LossModule(model, OBJECTIVES["soft"](), label_smoothing=0.25)
    smooth = module(model)
    assert torch.equal(smooth.value, plain.value)
    even = mean_output_log_prob(model.given).sum()
    torch.testing.assert_close(smooth.surrogate, 0.75 * plain.surrogate + 0.25 * even)
    assert torch.equal(module.eval()(model).surrogate, plain.surrogate)


def test_a_likelihood_without_a_linear_layer_is_refused():
    found, _ = choice()
    latent = Latent(found.prior, lambda z: z.log_weight)
    with pytest.raises(ValueError, match="label smoothing needs a head"):
        mean_output_log_prob(latent)
