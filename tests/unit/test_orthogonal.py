"""Initialisers: what they promise holds over shapes, dtypes and seeds, and what they cannot do they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oelm_core.method.initialisers import (
    TOLERANCE,
    BadWeight,
    NotOrthogonal,
    apply_head_wise_orthogonal_,
    check_orthogonality,
    head_errors,
    initialise_,
    polar_rows,
    qr_rows,
    split_heads,
)

shapes = st.tuples(st.integers(1, 5), st.integers(1, 8), st.integers(0, 20)).map(
    lambda s: (s[0], s[1], s[0] * s[1] + s[2])  # wide enough for a global QR too
)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])
seeds = st.integers(0, 2**31)
orthonormal = st.sampled_from(["head-qr", "polar", "global-qr"])
sources = st.sampled_from(["pretrained", "gaussian"])
quick = settings(max_examples=40, deadline=None)
ROUNDING = {torch.bfloat16: 3e-2, torch.float16: 4e-3}  # what half precision leaves of orthonormality


def gaussian(shape: tuple[int, int, int], seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    heads, head_dim, width = shape
    drawn = torch.randn(heads * head_dim, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (drawn * 0.02).to(dtype)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@quick
@given(shapes, dtypes, seeds, orthonormal, sources)
def test_every_head_ends_with_orthonormal_rows(shape, dtype, seed, init, source) -> None:
    weight = gaussian(shape, seed, dtype)
    initialise_(weight, shape[0], init=init, source=source, generator=generator(seed))
    assert weight.dtype == dtype
    assert check_orthogonality(weight, shape[0], ROUNDING.get(dtype, TOLERANCE))


@quick
@given(shapes, seeds, st.sampled_from([qr_rows, polar_rows]))
def test_each_head_keeps_its_row_space(shape, seed, make) -> None:
    before = split_heads(gaussian(shape, seed), shape[0])
    after = make(before)
    projected = before @ after.transpose(1, 2) @ after  # onto the new rows: nothing may be lost
    assert torch.allclose(projected, before, atol=1e-9)


@quick
@given(shapes, seeds, st.sampled_from([qr_rows, polar_rows]))
def test_orthonormal_rows_are_left_as_they_are(shape, seed, make) -> None:
    once = make(split_heads(gaussian(shape, seed), shape[0]))
    assert torch.allclose(make(once), once, atol=1e-12)


@quick
@given(shapes, seeds)
def test_polar_is_nearest_to_the_original_and_qr_keeps_the_first_row(shape, seed) -> None:
    weight = split_heads(gaussian(shape, seed), shape[0])
    unit = weight / weight.flatten(1).norm(dim=1).view(-1, 1, 1) * math.sqrt(shape[1])
    by_polar, by_qr = polar_rows(unit), qr_rows(unit)
    assert (by_polar - unit).norm() <= (by_qr - unit).norm() + 1e-9
    assert torch.allclose(by_qr[:, 0], torch.nn.functional.normalize(unit[:, 0], dim=-1), atol=1e-9)


@quick
@given(shapes, seeds, st.sampled_from(["head-qr", "polar", "global-qr", "gaussian"]), sources)
def test_keep_preserves_each_heads_norm(shape, seed, init, source) -> None:
    weight = gaussian(shape, seed)
    before = split_heads(weight, shape[0]).flatten(1).norm(dim=1)
    initialise_(weight, shape[0], init=init, source=source, scale="keep", generator=generator(seed + 1))
    assert torch.allclose(split_heads(weight, shape[0]).flatten(1).norm(dim=1), before, rtol=1e-9)


@quick
@given(shapes, seeds, st.floats(0.01, 3.0), orthonormal)
def test_a_number_is_a_factor_on_unit_rows(shape, seed, factor, init) -> None:
    unit, scaled = gaussian(shape, seed), gaussian(shape, seed)
    initialise_(unit, shape[0], init=init)
    initialise_(scaled, shape[0], init=init, scale=factor)
    assert torch.allclose(scaled, unit * factor, atol=1e-12)
    assert max(head_errors(scaled, shape[0]).shape) < 1e-9


def test_gaussian_takes_a_std_or_unit_rows() -> None:
    weight = torch.zeros(64, 4096)
    initialise_(weight, 4, init="gaussian", scale=0.02, generator=generator(3))
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    initialise_(weight, 4, init="gaussian", scale="unit", generator=generator(3))
    assert torch.allclose(weight.norm(dim=1), torch.ones(64), atol=1e-6)
    assert max(head_errors(weight, 4).within) > 1e-3  # of unit length, but not orthogonal


def test_only_global_qr_is_orthogonal_across_heads() -> None:
    head_wise, whole = gaussian((4, 8, 32), 5), gaussian((4, 8, 32), 5)
    initialise_(head_wise, 4, init="head-qr")
    initialise_(whole, 4, init="global-qr")
    assert head_errors(whole, 4).across < 1e-6 < 0.1 < head_errors(head_wise, 4).across
    assert max(head_errors(whole, 4).within) < 1e-9  # so a check inside heads cannot tell them apart


@quick
@given(shapes, dtypes, seeds, orthonormal)
def test_half_precision_is_the_exact_answer_rounded(shape, dtype, seed, init) -> None:
    low = gaussian(shape, seed, dtype)
    exact = low.double()
    initialise_(low, shape[0], init=init)
    initialise_(exact, shape[0], init=init)
    assert torch.equal(low, exact.to(dtype))


@quick
@given(shapes, seeds, st.sampled_from(["head-qr", "polar", "global-qr", "gaussian"]))
def test_a_seed_gives_the_same_weights_again_and_another_seed_others(shape, seed, init) -> None:
    def draw(s: int) -> torch.Tensor:
        weight = gaussian(shape, 0)
        return initialise_(weight, shape[0], init=init, source="gaussian", scale=0.5, generator=generator(s))

    assert torch.equal(draw(seed), draw(seed))
    if shape[2] > 1:  # one dimension has only two orthonormal rows
        assert not torch.equal(draw(seed), draw(seed + 1))


def test_untouched_means_bit_equal() -> None:
    weight = gaussian((2, 4, 8), 1, torch.float32)
    assert torch.equal(initialise_(weight.clone(), 2, init="none"), weight)


def test_heads_are_independent_of_one_another() -> None:
    weight = gaussian((3, 4, 16), 7)
    alone = weight[4:8].clone()
    initialise_(weight, 3, init="head-qr")
    initialise_(alone, 1, init="head-qr")
    assert torch.equal(weight[4:8], alone)


def test_a_trainable_weight_is_changed_in_place_without_a_graph() -> None:
    weight = torch.nn.Parameter(gaussian((2, 4, 8), 1, torch.float32))
    place = weight.data_ptr()
    apply_head_wise_orthogonal_(weight, 2)
    assert weight.data_ptr() == place
    assert weight.grad_fn is None
    assert weight.requires_grad
    assert check_orthogonality(weight, 2)


@pytest.mark.parametrize("init", ["head-qr", "polar"])
def test_a_dependent_row_becomes_a_new_direction_instead_of_vanishing(init: str) -> None:
    weight = gaussian((2, 4, 16), 2)
    weight[1] = weight[0] * 3
    weight[5] = 0
    initialise_(weight, 2, init=init)
    assert check_orthogonality(weight, 2)


def test_a_zero_head_is_refused_by_name() -> None:
    weight = gaussian((3, 4, 16), 2)
    weight[4:8] = 0
    with pytest.raises(ValueError, match=r"layer 7 key, head 1: it is all zero"):
        initialise_(weight, 3, init="head-qr", where="layer 7 key")
    initialise_(weight, 3, init="head-qr", source="gaussian", generator=generator(0))  # has no need of the old one
    assert check_orthogonality(weight, 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("init", ["head-qr", "polar", "global-qr"])
def test_values_that_are_not_finite_are_refused_by_name(bad: float, init: str) -> None:
    weight = gaussian((3, 4, 16), 2)
    weight[9, 3] = bad
    with pytest.raises(ValueError, match=r"layer 0 query, head 2: .* not finite"):
        initialise_(weight, 3, init=init, where="layer 0 query")


def test_heads_must_divide_the_rows_and_fit_the_width() -> None:
    with pytest.raises(BadWeight, match=r"shape \[10, 16\] cannot be split into 3 heads"):
        initialise_(torch.ones(10, 16), 3, init="head-qr")
    with pytest.raises(BadWeight, match="8 rows of length 4 cannot all be orthogonal"):
        initialise_(torch.ones(16, 4), 2, init="polar")
    with pytest.raises(BadWeight, match="16 rows of length 8"):
        initialise_(torch.ones(16, 8), 2, init="global-qr")


def test_fewer_key_heads_and_narrower_projections_work() -> None:
    narrow = gaussian((2, 4, 32), 1)  # 8 rows for a model of width 32
    assert check_orthogonality(initialise_(narrow, 2, init="head-qr"), 2)


def test_a_failed_check_names_the_head_and_the_error() -> None:
    weight = gaussian((3, 4, 16), 2)
    initialise_(weight, 3, init="head-qr")
    weight[4] *= 1.01
    with pytest.raises(NotOrthogonal, match=r"head 1: .* 2.01e-02"):
        check_orthogonality(weight, 3)
    assert check_orthogonality(weight, 3, tolerance=0.05)


def test_nan_does_not_pass_a_check() -> None:
    weight = gaussian((2, 4, 16), 2)
    initialise_(weight, 2, init="head-qr")
    weight[5, 0] = math.nan
    with pytest.raises(NotOrthogonal, match="head 1"):
        check_orthogonality(weight, 2)
