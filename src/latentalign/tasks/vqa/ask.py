"""A question about picture files: regions are computed with the extractor that the model was trained with."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from latentalign.data.region_features import Features
from latentalign.data.region_features.format import Array
from latentalign.errors import InputError
from latentalign.tasks.vqa.answer import answer_regions, check_question
from latentalign.tasks.vqa.embed import embed_picture
from latentalign.tasks.vqa.extractors import CHOICES, Extractor, is_extractor, make_extractor, open_picture
from latentalign.tasks.vqa.recipe import TrainedAnswerer

if TYPE_CHECKING:
    from latentalign.web.pages import Page


def ask_pictures(
    trained: TrainedAnswerer,
    pictures: Sequence[Path],
    question: str,
    *,
    extractor: str | None = None,
    predict: str | None = None,
    top: int = 5,
) -> dict[str, Any]:
    """Answers to a question about each picture, and where the model looked."""
    check_question(trained, question)
    opened = [open_picture(path, str(path)) for path in pictures]  # all, before any is computed
    used = make_extractor(extractor or find_extractor(trained))
    replies = []
    for path, picture in zip(pictures, opened, strict=True):
        regions = extract_regions(used, picture)
        reply = answer_regions(trained, question, regions, predict=predict, top=top)
        replies.append({"picture": str(path), **reply})
    how = predict or trained.objective.predict
    return {"question": question, "extractor": used.name, "predict": how, "pictures": replies}


def extract_regions(extractor: Extractor, picture: Image.Image) -> tuple[Array, Array]:
    """Features and boxes of one picture."""
    (regions,) = extractor.regions([picture])
    return regions


def find_extractor(trained: TrainedAnswerer) -> str:
    """The extractor of the training pictures: from the card of the run, or else from its features file."""
    layout = read_layout(trained)
    if layout is not None and is_extractor(layout):
        return layout
    known = "" if layout is None else f": its features were read from files in the layout {layout}"
    raise InputError(
        f"{trained.run.folder}: the extractor that this model was trained with is not known{known}. If you know it, "
        f"add --extractor ({CHOICES}); or use `latentalign answer` with a features file"
    )


def read_layout(trained: TrainedAnswerer) -> str | None:
    """What the training features were made from; None if neither the card nor the features file is there."""
    try:
        card = json.loads(trained.run.card.read_bytes())
        if isinstance(card.get("features"), str):
            return str(card["features"])
    except (OSError, ValueError, AttributeError):
        pass  # an old run, or one whose card was removed
    try:
        with Features(trained.config.data.train.features) as features:
            return features.layout
    except InputError:
        return None


def name_place(box: Sequence[float]) -> str:
    """Where a box lies in its picture, in words."""
    if box[2] - box[0] > 0.9 and box[3] - box[1] > 0.9:
        return "everywhere"
    column = ("left", "", "right")[min(2, int(1.5 * (box[0] + box[2])))]  # thirds of the picture
    row = ("top", "", "bottom")[min(2, int(1.5 * (box[1] + box[3])))]
    return f"{row} {column}".strip() or "centre"


def likeliest_places(look: Mapping[str, Any], count: int) -> list[tuple[str, float]]:
    """The most probable parts of a picture, and the probability of all their regions together, given the answer."""
    shares: dict[str, float] = defaultdict(float)
    for box, share in zip(look["boxes"], look["looks"]["posterior"], strict=True):
        shares[name_place(box)] += share
    return sorted(shares.items(), key=lambda part: -part[1])[:count]


def ask_page(trained: TrainedAnswerer, asked: Mapping[str, Any], pictures: Sequence[Path]) -> Page:
    """A page that shows where the model looked in each picture."""
    from latentalign.web.pages import Page, region_viewer

    records = [
        {**reply["look"], "image_id": number, "question": f"{path.name}: {asked['question']}"}
        for number, (path, reply) in enumerate(zip(pictures, asked["pictures"], strict=True))
    ]
    embedded = {str(number): embed_picture(path) for number, path in enumerate(pictures)}
    objective = trained.config.objective.name
    viewer = region_viewer({objective: records}, embedded)
    summary = (
        f"{trained.run.folder.absolute().name}, trained with {objective}, predicting with {asked['predict']}"
    )
    return Page(asked["question"], summary, viewers=[viewer])
