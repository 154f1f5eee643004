"""The public names of the library, each importable from `latentalign` itself."""

from latentalign.core.alignments import Alignments, Mixed, OneHot
from latentalign.core.baselines import BASELINES, Baseline, LearnedBaseline, RunningMean
from latentalign.core.checks import set_value_checks
from latentalign.core.choice import LatentChoice
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
from latentalign.core.distributions import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    Categorical,
    Chain,
    Dense,
    Dirichlet,
    Entmax,
    Jump,
    LogisticNormal,
    LookMixture,
    LookPairs,
    Monotone,
    Sparsemax,
)
from latentalign.core.errors import (
    LikelihoodShapeError,
    MissingAbilityError,
    NonFiniteScoresError,
    NotNormalisedError,
    TargetError,
)
from latentalign.core.expectations import (
    Enumerate,
    Expectation,
    GumbelSoftmax,
    Pathwise,
    ScoreFunction,
    SumAndSample,
)
from latentalign.core.heads import FactoredHead
from latentalign.core.kernels.certified import Certified, certified_marginal
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.kernels.likelihood import target_log_prob
from latentalign.core.kernels.predictive import predictive_log_prob
from latentalign.core.latent import Estimate, Latent
from latentalign.core.objectives import (
    OBJECTIVES,
    RWS,
    SVI,
    VIMCO,
    Hard,
    Marginal,
    Objective,
    ObjectiveEntry,
    Soft,
    Variational,
    marginal,
    objective,
    objectives_table,
    soft,
)
from latentalign.core.predictives import PREDICTIVES, Predictive, exact_posterior, parse_predict
from latentalign.core.registry import SCORES, PluginError, Registry, UnknownNameError
from latentalign.core.scores import (
    BilinearScore,
    DotScore,
    MLPScore,
    ProductScore,
    ProjectedScore,
    ScaledDotScore,
    Score,
)
from latentalign.markup.project import ProjectedSpan, Projection, parse_markup, project
from latentalign.nn.attention import LatentAttention, PosteriorNetwork
from latentalign.nn.chain_prior import ChainPrior
from latentalign.nn.copying import CopyHead
from latentalign.nn.heads import LinearHead, MLPHead, ProductHead, ResidualHead
from latentalign.search import BeamSearch, Hypothesis, Step
from latentalign.wrapping.encoder_decoder import EncoderDecoder
from latentalign.wrapping.wrapped import Wrapped, wrap

__all__ = [
    "BASELINES",
    "DISTRIBUTIONS",
    "OBJECTIVES",
    "PREDICTIVES",
    "RWS",
    "SCORES",
    "SVI",
    "VIMCO",
    "AlignmentDistribution",
    "Alignments",
    "Baseline",
    "BeamSearch",
    "BilinearScore",
    "Categorical",
    "Certified",
    "Chain",
    "ChainPrior",
    "CopyHead",
    "Dense",
    "Dirichlet",
    "DotScore",
    "EmissionLatent",
    "EncoderDecoder",
    "Entmax",
    "Enumerate",
    "Estimate",
    "Expectation",
    "FactoredHead",
    "GumbelSoftmax",
    "Hard",
    "Hypothesis",
    "Jump",
    "Latent",
    "LatentAttention",
    "LatentChoice",
    "LearnedBaseline",
    "LikelihoodShapeError",
    "LinearHead",
    "LogisticNormal",
    "LookMixture",
    "LookPairs",
    "MLPHead",
    "MLPScore",
    "Marginal",
    "MissingAbilityError",
    "Mixed",
    "Monotone",
    "NonFiniteScoresError",
    "NotNormalisedError",
    "Objective",
    "ObjectiveEntry",
    "OneHot",
    "Pathwise",
    "PluginError",
    "PosteriorNetwork",
    "Predictive",
    "ProductHead",
    "ProductScore",
    "ProjectedScore",
    "ProjectedSpan",
    "Projection",
    "Registry",
    "ResidualHead",
    "RunningMean",
    "ScaledDotScore",
    "Score",
    "ScoreFunction",
    "Soft",
    "Sparsemax",
    "Step",
    "SumAndSample",
    "TargetError",
    "UnknownNameError",
    "Variational",
    "Wrapped",
    "certified_marginal",
    "dense_probability",
    "elbo_gap",
    "empirical_curvature",
    "exact_posterior",
    "iwae_bound",
    "jensen_gap",
    "marginal",
    "objective",
    "objectives_table",
    "parse_markup",
    "parse_predict",
    "posterior_divergence",
    "predictive_log_prob",
    "project",
    "set_value_checks",
    "soft",
    "soft_gap",
    "softmax_curvature",
    "target_log_prob",
    "wrap",
]
