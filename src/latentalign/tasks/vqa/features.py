"""Region features; the former place of `latentalign.data.region_features`."""

from latentalign.data.region_features import Features as Features
from latentalign.data.region_features import Regions as Regions
from latentalign.data.region_features import image_id_of as image_id_of
