"""Readers of the layouts in which others publish region features. Each returns a stream of pictures, boxes in [0, 1].

`bottom-up`  TSV with image_id, image_w, image_h, num_boxes, boxes, features (base64 of float32; no header)
`lxmert`     TSV with ten columns: first img_id, img_h, img_w, last num_boxes, boxes, features
`hdf5`       image_features (N, n, D) and image_bb (N, n, 4), or all rows and pos_boxes (N, 2) that divides them
`npz`        a folder with one archive per picture: x or features, bbox or boxes
`npy`        a folder with one array per picture, (H, W, D) cells or (n, D) rows; or one array of all pictures

Not read: the .npy files of MMF with their _info.npy, and LMDB. Both hold pickles, which can run any code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from latentalign.data.region_features import Regions
from latentalign.errors import InputError
from latentalign.tasks.vqa.layouts.arrays import read_npy, read_npz
from latentalign.tasks.vqa.layouts.hdf5 import read_hdf5
from latentalign.tasks.vqa.layouts.pictures import open_source, read_ids
from latentalign.tasks.vqa.layouts.tsv import COLUMNS, read_bottom_up, read_lxmert, read_rows

__all__ = ["COLUMNS", "LAYOUTS", "read", "read_ids", "sniff"]

LAYOUTS: dict[str, Callable[[Path, Path | None], Iterator[Regions]]] = {
    "bottom-up": read_bottom_up,
    "lxmert": read_lxmert,
    "hdf5": read_hdf5,
    "npz": read_npz,
    "npy": read_npy,
}
HDF5_START = b"\x89HDF\r\n\x1a\n"
LMDB_NAMES = {"data.mdb", "lock.mdb"}
LMDB_ENDS = (".lmdb", ".mdb")


def sniff(source: Path) -> str:
    """The name of the layout of a file or folder, found from its content."""
    refuse_lmdb(source)
    if source.is_dir():
        ends = {path.suffix for path in source.iterdir()}
        for layout in ("npz", "npy"):
            if f".{layout}" in ends:
                return layout
        raise InputError(
            f"{source}: no .npz or .npy file in this folder; for a folder of pictures, add --extractor"
        )
    with open_source(source) as file:
        beginning = file.read(8)
    if beginning == HDF5_START or source.suffix in (".h5", ".hdf5"):
        return "hdf5"
    if beginning.startswith(b"\x93NUMPY"):
        return "npy"
    columns = len(next(read_rows(source), b"").split(b"\t"))
    for layout, names in COLUMNS.items():
        if columns == len(names):
            return layout
    raise InputError(
        f"{source}: the layout is unknown: the first row has {columns} columns, not 6 (bottom-up) or 10 (lxmert), "
        "and the file is neither HDF5 nor .npy"
    )


def refuse_lmdb(source: Path) -> None:
    """Raise if a file or folder is an LMDB database."""
    inside = {path.name for path in source.iterdir()} if source.is_dir() else set()
    if source.suffix in LMDB_ENDS or inside & LMDB_NAMES:
        raise InputError(
            f"{source}: an LMDB database, which is not supported: its values are pickles, which can run any code. "
            "Write each picture to an .npz file with x, bbox, image_w and image_h, and pass their folder"
        )


def read(
    source: Path, layout: str, ids: Path | None = None, *, prefix_tokens: int | None = None
) -> Iterator[Regions]:
    """The pictures of a source in a layout. `ids` is a file with their ids, if the source does not contain them.

    `prefix_tokens` is the number of tokens before the patches of a vision transformer, for `npy`.
    """
    refuse_lmdb(source)
    if layout not in LAYOUTS:
        raise InputError(f"unknown layout {layout!r}; choose one of {', '.join(LAYOUTS)}")
    if ids is not None and (layout not in ("hdf5", "npy") or source.is_dir()):
        raise InputError(f"--ids: {source} contains the image ids; remove --ids")
    if layout == "npy":
        return read_npy(source, ids, prefix_tokens=prefix_tokens)
    if prefix_tokens is not None:
        raise InputError(f"--prefix-tokens applies to the layout npy; {source} has the layout {layout}")
    return LAYOUTS[layout](source, ids)
