"""What is counted and measured on a model's weights, as checks.json and result.json keep it. Loads no torch."""

from __future__ import annotations

from msgspec import Struct


class HeadErrors(Struct):
    """How far one projection of a layer is from orthonormal, by head and across heads."""

    layer: int
    projection: str
    within: list[float] = []
    shape: list[float] = []
    across: float | None = None
    row_norm: list[float] = []


class Orthogonality(Struct):
    tolerance: float | None = None
    worst: float | None = None
    worst_shape: float | None = None
    mean_row_norm: float | None = None
    layers: list[HeadErrors] = []


class Count(Struct):
    """Parameters of a part of the model."""

    total: int = 0
    trainable: int = 0
    frozen: int = 0


class CensusBytes(Struct):
    weights: int = 0
    optimiser: int = 0
    checkpoint: int = 0


class Census(Struct, kw_only=True, omit_defaults=True):
    """Parameters of the model; None where an import does not know."""

    total: int | None = None
    trainable: int | None = None
    frozen: int | None = None
    by_component: dict[str, Count] = {}
    by_layer: dict[str, Count] | None = None
    bytes: CensusBytes | None = None
