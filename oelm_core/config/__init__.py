"""What an experiment and a study are: the preset schema, overrides by dotted key, and the configuration's hash."""

from oelm_core.config.experiment import Experiment, Study, build_experiment, build_study
from oelm_core.config.overrides import as_dict, merge, override, parse_overrides
from oelm_core.config.published import Claim, Published
from oelm_core.config.sections import Data, Extras, Method, Peer, Shape, Train, layer_numbers
from oelm_core.recipe import config_hash

__all__ = [
    "Claim",
    "Data",
    "Experiment",
    "Extras",
    "Method",
    "Peer",
    "Published",
    "Shape",
    "Study",
    "Train",
    "as_dict",
    "build_experiment",
    "build_study",
    "config_hash",
    "layer_numbers",
    "merge",
    "override",
    "parse_overrides",
]
