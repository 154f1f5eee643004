"""What tests/mutation.py mutates, and which tests run."""

TARGETS: list[tuple[list[str], list[str]]] = [
    (["tests/training/test_schedule.py"], ["training/schedule.py"]),
    (
        ["tests/links/test_links.py", "tests/links/test_link_formats.py"],
        ["links/sets.py", "links/scores.py", "links/words.py", "links/formats.py"],
    ),
    (["tests/tasks/nmt/test_text_scores.py"], ["tasks/nmt/text_scores.py"]),
    (["tests/tasks/vqa/test_accuracy.py"], ["tasks/vqa/accuracy.py"]),
    (["tests/test_search.py"], ["search.py"]),
    (
        ["tests/test_textfiles.py", "tests/test_storage.py", "tests/training/test_checkpoint.py"],
        ["textfiles.py", "storage.py"],
    ),
    (["tests/data/test_pairs.py", "tests/data/test_demo.py"], ["data/pairs.py"]),
    (["tests/tasks/nmt/test_data.py"], ["tasks/nmt/data.py"]),
    (["tests/tasks/vqa/test_questions.py"], ["tasks/vqa/questions.py"]),
    (
        [
            "tests/tasks/vqa/test_layouts.py",
            "tests/tasks/vqa/test_layouts_numpy.py",
            "tests/tasks/vqa/test_layouts_hdf5.py",
        ],
        ["tasks/vqa/layouts/*.py"],
    ),
    (["tests/data/test_region_features.py"], ["data/region_features/*.py"]),
    (["tests/nn", "tests/core/test_scores.py"], ["core/score*.py"]),
    (["tests/core", "--ignore=tests/core/test_compiled.py"], ["core/**/*.py"]),
]
"""Test files, and the modules that they test. A module belongs to the first entry that names it."""

SPEED = {
    "BLOCK",
    "CACHE_LINE",
    "CHUNK",
    "FIRST_TAIL",
    "LOG_SPACE_BUFFERS",
    "MAX_HIDDEN",
    "MAX_LOGITS",
    "PAGE",
    "RESIDENT_BYTES",
    "SHORTLIST",
    "SINGLE_ROWS",
}
MESSAGES = {"RECOVERY", "_PHARAOH", "_WA", "__all__"}
CONSTANTS = frozenset(SPEED | MESSAGES)
"""Not mutated: constants of speed and memory alone, of the text of a message, or of what `import *` takes."""
