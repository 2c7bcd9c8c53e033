"""Initialisers of query and key weights, per head: orthonormal by QR or polar, global QR, Gaussian; and their scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from oelm_core.config import Method, layer_numbers
from oelm_core.errors import BadInput, LabError
from oelm_core.method.facts import HeadErrors, Orthogonality
from oelm_core.registry import INITIALISERS, Initialiser

if TYPE_CHECKING:
    from torch import nn

Scale = Literal["unit", "keep"] | float
TOLERANCE = 1e-5


class BadWeight(BadInput, ValueError):
    """A weight that an initialiser cannot work on; says where and why."""


class NotOrthogonal(LabError, AssertionError):
    """A head whose rows should be orthonormal and are not."""


def split_heads(weight: Tensor, heads: int, where: str = "weight") -> Tensor:
    """`[heads * head_dim, d_model]` seen as `[heads, head_dim, d_model]`; refused with the numbers if it cannot be."""
    if weight.dim() != 2 or heads < 1 or weight.shape[0] % heads:
        raise BadWeight(f"{where}: shape {list(weight.shape)} cannot be split into {heads} heads of equal rows.")
    return weight.reshape(heads, weight.shape[0] // heads, weight.shape[1])


def qr_rows(matrices: Tensor) -> Tensor:
    """Orthonormal rows spanning each matrix's rows: Gram-Schmidt from the first row on. `[..., rows, d] -> same`.

    The sign of R's diagonal is put back, so a matrix with orthonormal rows is its own answer; a zero there (a row
    that depends on those before it) counts as +1: the row then becomes a new direction instead of vanishing.
    """
    q, r = torch.linalg.qr(matrices.transpose(-2, -1))
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    signs = torch.where(diagonal < 0, -1.0, 1.0).to(q.dtype)
    return (q * signs.unsqueeze(-2)).transpose(-2, -1)


def polar_rows(matrices: Tensor) -> Tensor:
    """The nearest matrix with orthonormal rows (U V^T of the SVD). No row is favoured, unlike with QR."""
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    return u @ vh


ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "head-qr": qr_rows,
    "polar": polar_rows,
    "global-qr": qr_rows,
    "gaussian": lambda matrices: matrices,
}
"""What each initialiser makes of its start `[heads, head_dim, d_model]`, or of `[rows, d_model]` when not per head."""


def initialise_(
    weight: Tensor,
    heads: int,
    *,
    init: str,
    source: Literal["pretrained", "gaussian"] = "pretrained",
    scale: Scale = "unit",
    generator: torch.Generator | None = None,
    where: str = "weight",
) -> Tensor:
    """Overwrites a weight `[heads * head_dim, d_model]` in place and returns it.

    init: a name of `registry.INITIALISERS`. source: orthogonalise the weight as found, or a fresh Gaussian. scale: unit
    rows; keep each head's Frobenius norm; or a number (the std of a Gaussian, else a factor on unit rows). Computed on
    the CPU in float64, so device, dtype and BLAS do not matter.
    """
    if init == "none":
        return weight
    found = split_heads(weight.detach().to("cpu", torch.float64), heads, where)
    about = INITIALISERS[init]
    fresh = source == "gaussian" or not about.has_source
    _refuse_unusable(found, about, fresh, scale, where)
    start = torch.randn(found.shape, dtype=torch.float64, generator=generator) if fresh else found
    rows = ROWS[init](start if about.per_head else start.flatten(0, 1)).view_as(start)
    if not about.orthonormal and isinstance(scale, str):
        rows = rows / rows.norm(dim=-1, keepdim=True)
    with torch.no_grad():
        weight.copy_(_scaled(rows, found, scale).flatten(0, 1))
    return weight


def _scaled(rows: Tensor, found: Tensor, scale: Scale) -> Tensor:
    if scale == "unit":
        return rows
    if scale == "keep":
        norms = found.flatten(1).norm(dim=1) / rows.flatten(1).norm(dim=1)
        return rows * norms.view(-1, 1, 1)
    return rows * float(scale)


def _refuse_unusable(found: Tensor, init: Initialiser, fresh: bool, scale: Scale, where: str) -> None:
    heads, head_dim, d_model = found.shape
    rows = head_dim if init.per_head else heads * head_dim
    if init.orthonormal and rows > d_model:
        raise BadWeight(
            f"{where}: {rows} rows of length {d_model} cannot all be orthogonal; {init.name} needs a wider input."
        )
    if fresh and scale != "keep":
        return  # the weight found is not looked at
    for head, matrix in enumerate(found):
        if not torch.isfinite(matrix).all():
            raise BadWeight(f"{where}, head {head}: it holds values that are not finite, so {init.name} has no answer.")
        if not matrix.any():
            raise BadWeight(
                f"{where}, head {head}: it is all zero, so it has no directions and no norm to keep; "
                "write from: gaussian with a scale other than keep."
            )


def apply_head_wise_orthogonal_(weight: Tensor, num_heads: int) -> Tensor:
    """The author's initialiser: QR of each head of the weight as found, unit rows, in place."""
    return initialise_(weight, num_heads, init="head-qr")


def apply_method(model: nn.Module, method: Method, generator: torch.Generator) -> None:
    """Initialises query and key of the chosen layers as the method says. Biases stay as they are.

    Acts on what the method freezes of query and key, or on both when it freezes neither (NoFreeze). With `ffn` among
    the frozen, feed-forward weights are initialised too, as one head each (the author's QK-FFN variant). Each weight
    draws from its own stream, so what layer 5's key gets does not depend on which other layers are chosen.
    """
    from oelm_core.models.structure import attention_layers

    if method.init == "none":
        return
    layers = attention_layers(model)
    chosen = chosen_layers(method, len(layers))
    seeds = torch.randint(2**62, (len(layers), 4), generator=generator)
    initialise = partial(initialise_, init=method.init, source=method.source, scale=method.scale)
    for index in chosen:
        streams = [torch.Generator().manual_seed(int(seed)) for seed in seeds[index]]
        for stream, (name, projection) in zip(streams[:2], layers[index].projections().items(), strict=True):
            if name in touched(method):
                weight = projection.weight.detach().clone()
                initialise(weight, projection.heads, generator=stream, where=f"layer {index} {name}")
                projection.write_(weight)
        if "ffn" in method.freeze:
            for stream, module in zip(streams[2:], layers[index].ffn, strict=False):
                whole = module.weight.data
                assert isinstance(whole, Tensor)
                # Orthonormal along the shorter side: rows of the down projection, columns of the up projection.
                side = whole.T if whole.shape[0] > whole.shape[1] else whole
                initialise(side, 1, generator=stream, where=f"layer {index} ffn")


def chosen_layers(method: Method, layers: int) -> list[int]:
    """The layers a method acts on in a model of so many; a refusal when it names one that is not there."""
    try:
        return layer_numbers(method.layers, layers)
    except ValueError as error:
        raise BadInput(f"method {method.name}: {error}.") from None


def touched(method: Method) -> tuple[str, ...]:
    """The projections a method initialises: those it freezes, or both when it freezes neither."""
    if method.init == "none":
        return ()
    return tuple(p for p in ("query", "key") if p in method.freeze) or ("query", "key")


def head_errors(weight: Tensor, heads: int, layer: int = 0, projection: str = "") -> HeadErrors:
    """How far a weight `[heads * head_dim, d_model]` is from orthonormal, by head and across heads.

    within: per head, max |W_h W_h^T - I|; shape: the same after dividing the head by its mean row norm (what `keep` and
    numeric scales leave at 0); across: largest |cosine| between rows of different heads; row_norm: mean, per head.
    """
    rows = split_heads(weight.detach().to("cpu", torch.float64), heads)
    count, head_dim, _ = rows.shape
    identity = torch.eye(head_dim, dtype=torch.float64)
    gram = rows @ rows.transpose(1, 2)
    mean_square = gram.diagonal(dim1=1, dim2=2).mean(1)
    flat = torch.nn.functional.normalize(rows.flatten(0, 1), dim=1).float()  # enough for a cosine, and twice as fast
    cosines = (flat @ flat.T).abs().view(count, head_dim, count, head_dim).amax((1, 3))
    cosines.fill_diagonal_(0)
    return HeadErrors(
        layer=layer,
        projection=projection,
        within=(gram - identity).abs().amax((1, 2)).tolist(),
        shape=(gram / mean_square.clamp(min=1e-300).view(-1, 1, 1) - identity).abs().amax((1, 2)).tolist(),
        across=float(cosines.max()),
        row_norm=rows.norm(dim=2).mean(1).tolist(),
    )


def check_orthogonality(weight: Tensor, num_heads: int, tolerance: float = TOLERANCE) -> bool:
    """True when every head of one weight has orthonormal rows; NotOrthogonal naming the worst head otherwise."""
    errors = head_errors(weight, num_heads).within
    worst = max(range(num_heads), key=lambda head: _rank(errors[head]))
    if _rank(errors[worst]) > tolerance:
        raise NotOrthogonal(
            f"head {worst}: |W W^T - I| reaches {errors[worst]:.2e}, past the tolerance {tolerance:.0e}."
        )
    return True


def check_model(model: nn.Module, method: Method | None = None) -> Orthogonality:
    """Orthogonality of every layer, projection and head, for checks.json.

    worst is the largest |W W^T - I| of any head, worst_shape the same with its scale divided out (what `keep` and
    numeric scales leave at 0), mean_row_norm that scale.
    With a method, NotOrthogonal is raised for a head that the method should have made orthonormal (up to its scale)
    and that is past the tolerance. Without one the report is made and nothing is demanded.
    """
    from oelm_core.models.structure import attention_layers

    layers = attention_layers(model)
    report = [
        head_errors(projection.weight, projection.heads, layer.index, name)
        for layer in layers
        for name, projection in layer.projections().items()
    ]
    weights = [projection.weight for layer in layers for projection in layer.projections().values()]
    # Rounding to a half type alone puts the rows' products off by as much as its epsilon.
    tolerance = max(TOLERANCE, *(2 * torch.finfo(weight.dtype).eps for weight in weights))
    if method is not None and INITIALISERS[method.init].orthonormal:
        _demand(report, method, len(layers), tolerance)
    norms = [norm for entry in report for norm in entry.row_norm]
    return Orthogonality(
        tolerance=tolerance,
        worst=max((error for entry in report for error in entry.within), key=_rank),
        worst_shape=max((error for entry in report for error in entry.shape), key=_rank),
        mean_row_norm=sum(norms) / len(norms),
        layers=report,
    )


def _demand(report: list[HeadErrors], method: Method, layers: int, tolerance: float) -> None:
    chosen = chosen_layers(method, layers)
    for entry in report:
        if entry.layer not in chosen or entry.projection not in touched(method):
            continue
        for head, error in enumerate(entry.within if method.scale == "unit" else entry.shape):
            if _rank(error) > tolerance:
                raise NotOrthogonal(
                    f"layer {entry.layer} {entry.projection}, head {head}: its rows are off orthonormal by "
                    f"{error:.2e}, past the tolerance {tolerance:.0e}, although method.init is {method.init}."
                )


def _rank(error: float) -> float:
    """NaN counts as the worst error, so that it cannot slip under a tolerance."""
    return math.inf if math.isnan(error) else error
