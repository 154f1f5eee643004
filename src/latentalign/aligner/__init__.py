"""A word aligner: two jump chains that learn from each other, one for each direction.

`train_aligner` learns from sentence pairs alone. `Aligner` aligns any text, also words that it has never seen, and
gives every link a probability.
"""

from latentalign.aligner.config import AlignerConfig
from latentalign.aligner.model import Aligner
from latentalign.aligner.training import train_aligner

__all__ = ["Aligner", "AlignerConfig", "train_aligner"]
