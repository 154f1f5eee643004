"""Every reader that is fuzzed."""

from fuzz.picture_readers import PICTURE_READERS
from fuzz.run_readers import RUN_READERS
from fuzz.text_readers import TEXT_READERS

READERS = (*TEXT_READERS, *RUN_READERS, *PICTURE_READERS)
