"""What an experiment and a study are: the preset schema, overrides by dotted key, and the configuration's hash."""

from oelm_core.config.experiment import SCHEMA_VERSION, Experiment, Study, build_experiment, build_study
from oelm_core.config.overrides import as_dict, config_hash, merge, override, parse_overrides
from oelm_core.config.published import Claim, CurvePoint, Published
from oelm_core.config.sections import (
    Data,
    Extras,
    Method,
    Model,
    Peer,
    Section,
    Shape,
    Target,
    Train,
    Unfreeze,
    layer_numbers,
)

__all__ = [
    "SCHEMA_VERSION",
    "Claim",
    "CurvePoint",
    "Data",
    "Experiment",
    "Extras",
    "Method",
    "Model",
    "Peer",
    "Published",
    "Section",
    "Shape",
    "Study",
    "Target",
    "Train",
    "Unfreeze",
    "as_dict",
    "build_experiment",
    "build_study",
    "config_hash",
    "layer_numbers",
    "merge",
    "override",
    "parse_overrides",
]
