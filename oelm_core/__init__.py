"""OELM Lab's library: train Transformers whose query and key weights are orthogonal per head and frozen.

The author's function names are its public API; they are loaded, and torch with them, when first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "apply_head_wise_orthogonal_": "oelm_core.method.initialisers",
    "check_orthogonality": "oelm_core.method.initialisers",
    "freeze_model_parameters": "oelm_core.method.freezing",
    "load_bert_with_head_wise_orthogonal": "oelm_core.models.bert",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'oelm_core' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
