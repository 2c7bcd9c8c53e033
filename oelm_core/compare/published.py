"""Audit of the author's own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm_core.compare.comparison import Finding

if TYPE_CHECKING:
    from oelm_core.presets import Catalogue


def audit_published(catalogue: Catalogue) -> list[Finding]:
    return []
