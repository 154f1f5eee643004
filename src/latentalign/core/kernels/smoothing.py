"""What label smoothing asks for: an even distribution over all outputs."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from latentalign.core.checks import check_targets
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.kernels.fused_softmax import linear_log_prob
from latentalign.core.kernels.pairs import HiddenParts, Pairs
from latentalign.core.latent import Latent


def mean_output_log_prob(latent: Latent) -> Float[Tensor, "*batch"]:
    """The mean over all outputs v of log p(v | x, x~, E_p[z]); 0 for queries that do not exist.

    As log p(v) = logit_v - logit_y + log p(y), the logits of all outputs are needed for log p(y) only, where they are
    never stored.
    """
    if not isinstance(latent, EmissionLatent) or latent.factored is None or latent.query is None:
        raise ValueError("label smoothing needs a head that ends in a linear layer (FactoredHead)")
    output, mean = latent.factored.output, latent.prior.point()
    pairs = Pairs.of(latent.query, mean, target=latent.target, query_exists=latent.query_exists)
    hidden = HiddenParts.of(latent.factored, latent.query, latent.memory, mean, pairs=pairs).rows()
    target = pairs.targets(latent.target)
    check_targets(target, output.out_features)
    log_p = linear_log_prob(hidden, output.weight, output.bias, target, max_logits=latent.max_logits)
    toward = output.weight.mean(0) - output.weight.index_select(0, target)
    value = log_p + (hidden.to(toward.dtype) * toward).sum(-1)
    if output.bias is not None:
        value = value + output.bias.mean() - output.bias.index_select(0, target)
    return pairs.spread_pairs(value, latent.target.shape)
