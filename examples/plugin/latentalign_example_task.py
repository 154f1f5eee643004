"""A task for latentalign: translation of lower-case words, without subwords."""

from typing import Literal

from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TranslationTask
from latentalign.tasks.nmt.tokenizer import TokenizerConfig


class WordConfig(NMTConfig):
    """A recipe with other defaults than translation's."""

    task: Literal["words"] = "words"
    tokenizer: TokenizerConfig = TokenizerConfig(kind="words", lowercase=True, min_count=2)


class WordTranslation(TranslationTask):
    """Inherits every command of translation; only the recipe differs."""

    name = "words"
    title = "translation of words"
    recipe = WordConfig


WORDS = WordTranslation()
