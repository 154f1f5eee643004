"""The public names of the library, each importable from `latentalign` itself."""

from latentalign.core.alignments import Alignments, Mixed, OneHot
from latentalign.core.baselines import BASELINES, Baseline, LearnedBaseline, RunningMean
from latentalign.core.diagnostics import (
    dense_probability,
    elbo_gap,
    empirical_curvature,
    iwae_bound,
    jensen_gap,
    posterior_divergence,
    soft_gap,
    softmax_curvature,
)
from latentalign.core.distributions import Categorical, Dirichlet, LogisticNormal
from latentalign.core.expectations import (
    Enumerate,
    Expectation,
    GumbelSoftmax,
    Pathwise,
    ScoreFunction,
    SumAndSample,
)
from latentalign.core.factored import FactoredHead
from latentalign.core.kernels.certified import Certified, certified_marginal
from latentalign.core.kernels.emission import EmissionLatent, predictive_log_prob, target_log_prob
from latentalign.core.latent import Estimate, Latent
from latentalign.core.multisample import RWS, VIMCO
from latentalign.core.objectives import (
    OBJECTIVES,
    Hard,
    Marginal,
    Objective,
    Soft,
    Variational,
    marginal,
    soft,
)
from latentalign.core.predictives import Predict, exact_posterior, log_predictive, parse_predict
from latentalign.core.scores import BilinearScore, DotScore, MLPScore, ProjectedScore, Score
from latentalign.core.svi import SVI
from latentalign.nn.attention import LatentAttention, PosteriorNetwork
from latentalign.nn.heads import LinearHead, MLPHead
from latentalign.search import BeamSearch, Hypothesis, Step

__all__ = [
    "BASELINES",
    "OBJECTIVES",
    "RWS",
    "SVI",
    "VIMCO",
    "Alignments",
    "Baseline",
    "BeamSearch",
    "BilinearScore",
    "Categorical",
    "Certified",
    "Dirichlet",
    "DotScore",
    "EmissionLatent",
    "Enumerate",
    "Estimate",
    "Expectation",
    "FactoredHead",
    "GumbelSoftmax",
    "Hard",
    "Hypothesis",
    "Latent",
    "LatentAttention",
    "LearnedBaseline",
    "LinearHead",
    "LogisticNormal",
    "MLPHead",
    "MLPScore",
    "Marginal",
    "Mixed",
    "Objective",
    "OneHot",
    "Pathwise",
    "PosteriorNetwork",
    "Predict",
    "ProjectedScore",
    "RunningMean",
    "Score",
    "ScoreFunction",
    "Soft",
    "Step",
    "SumAndSample",
    "Variational",
    "certified_marginal",
    "dense_probability",
    "elbo_gap",
    "empirical_curvature",
    "exact_posterior",
    "iwae_bound",
    "jensen_gap",
    "log_predictive",
    "marginal",
    "parse_predict",
    "posterior_divergence",
    "predictive_log_prob",
    "soft",
    "soft_gap",
    "softmax_curvature",
    "target_log_prob",
]
