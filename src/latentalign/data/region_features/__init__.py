"""Region features of many pictures in one safetensors file, which is written as a stream and read in place."""

from latentalign.data.region_features.format import Regions, grid_boxes, image_id_of
from latentalign.data.region_features.reader import Features
from latentalign.data.region_features.writer import (
    DTYPES,
    MAX_REGIONS,
    FeatureWriter,
    Summary,
    write_features,
)

__all__ = [
    "DTYPES",
    "MAX_REGIONS",
    "FeatureWriter",
    "Features",
    "Regions",
    "Summary",
    "grid_boxes",
    "image_id_of",
    "write_features",
]
