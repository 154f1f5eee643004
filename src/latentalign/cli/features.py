"""latentalign features SOURCE --out FILE"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.common import JsonOption, show, warn
from latentalign.cli.hints import suggest_after_features
from latentalign.errors import InputError
from latentalign.progress import track

NAME = "features"


def command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="a file or folder of features, or pictures")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the features file to write (.safetensors)")],
    layout: Annotated[
        str | None, typer.Option(help="bottom-up, lxmert, hdf5, npz or npy; default: judged by content")
    ] = None,
    extractor: Annotated[
        str | None, typer.Option(help="SOURCE is a folder of pictures: efficientnet-lite0 or timm:MODEL")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="leave out pictures that cannot be read, and list them")
    ] = False,
    ids: Annotated[
        Path | None, typer.Option(metavar="FILE", help="image ids, where SOURCE has none: JSON list or lines")
    ] = None,
    prefix_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, help="npy: tokens before the patches (class, registers); default: judged by number"
        ),
    ] = None,
    max_regions: Annotated[
        int | None, typer.Option(help="keep the first of a picture, 0 = all; default 36, grids: 0")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float16")] = "float32",
    overwrite: Annotated[bool, typer.Option(help="replace FILE if it exists")] = False,
    json_wanted: JsonOption = False,
) -> None:
    """Convert region features, or compute them from pictures, into one file."""
    check_options(extractor, described=(layout, ids, prefix_tokens), skip_bad=skip_bad)
    skipped: list[str] | None = [] if skip_bad else None
    if extractor is None:
        name, pictures = read_regions(source, layout, ids, prefix_tokens)
    else:
        name, pictures = extractor, extract_regions(source, extractor, skipped)
    from latentalign.data.region_features import MAX_REGIONS, write_features

    if max_regions is None:
        max_regions = MAX_REGIONS if extractor is None and name != "npy" else 0
    shown, kept = track(pictures, name, unit="pictures"), {"layout": name, "dtype": dtype}
    summary = write_features(out, shown, max_regions=max_regions, overwrite=overwrite, **kept)
    result = {"file": str(out), "layout": name, **asdict(summary)}
    if skipped is not None:
        result["skipped"] = skipped if json_wanted else len(skipped)
    show(result, as_json=json_wanted, title="features")
    if not json_wanted:
        from latentalign.data.known import HOME

        suggest_after_features(out, HOME)


def read_regions(
    source: Path, layout: str | None, ids: Path | None, prefix_tokens: int | None
) -> tuple[str, Iterator[Any]]:
    """The layout of a file or folder of features, and the features."""
    from latentalign.tasks.vqa import layouts

    name = layout or layouts.sniff(source)
    return name, layouts.read(source, name, ids, prefix_tokens=prefix_tokens)


def extract_regions(source: Path, extractor: str, skipped: list[str] | None) -> Iterator[Any]:
    """Features computed from pictures. With a list, pictures that cannot be read are added to it and left out."""
    from latentalign.tasks.vqa.extract import extract

    def skip(path: Path, error: InputError) -> None:
        assert skipped is not None
        skipped.append(str(path))
        warn(f"skipped: {error}")

    return extract(source, extractor, on_bad=None if skipped is None else skip)


def check_options(extractor: str | None, *, described: tuple[object, ...], skip_bad: bool) -> None:
    """Refuse options for features together with pictures, and the other way round."""
    if extractor is not None and any(option is not None for option in described):
        raise InputError(
            "--layout, --ids and --prefix-tokens describe features; leave them out with --extractor"
        )
    if extractor is None and skip_bad:
        raise InputError("--skip-bad applies to pictures; add --extractor, or remove it")
