"""OELM Lab's library: train Transformers whose query and key weights are orthogonal per head and frozen.

    from oelm_core import Method, apply

    report = apply(model, Method(init="head-qr", scale="keep", freeze=("query", "key")))

The names below and the author's own are its public API; they are loaded when first asked for, and torch with them where
they need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from oelm_core.config.sections import Extras as Extras
    from oelm_core.config.sections import Unfreeze as Unfreeze
    from oelm_core.method.apply import Method as Method
    from oelm_core.method.apply import OelmCallback as OelmCallback
    from oelm_core.method.apply import Report as Report
    from oelm_core.method.apply import apply as apply
    from oelm_core.method.apply import verify as verify
    from oelm_core.method.freezing import freeze_model_parameters as freeze_model_parameters
    from oelm_core.method.initialisers import apply_head_wise_orthogonal_ as apply_head_wise_orthogonal_
    from oelm_core.method.initialisers import check_orthogonality as check_orthogonality
    from oelm_core.models.bert import load_bert_with_head_wise_orthogonal as load_bert_with_head_wise_orthogonal
    from oelm_core.models.published import load_published as load_published
    from oelm_core.report.rows import load_runs as load_runs

_HOMES = {
    "Extras": "oelm_core.config.sections",
    "Unfreeze": "oelm_core.config.sections",
    "Method": "oelm_core.method.apply",
    "OelmCallback": "oelm_core.method.apply",
    "Report": "oelm_core.method.apply",
    "apply": "oelm_core.method.apply",
    "verify": "oelm_core.method.apply",
    "apply_head_wise_orthogonal_": "oelm_core.method.initialisers",
    "check_orthogonality": "oelm_core.method.initialisers",
    "freeze_model_parameters": "oelm_core.method.freezing",
    "load_bert_with_head_wise_orthogonal": "oelm_core.models.bert",
    "load_published": "oelm_core.models.published",
    "load_runs": "oelm_core.report.rows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'oelm_core' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
