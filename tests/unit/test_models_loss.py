"""Losses, attention and dropout that hold less in memory: equal to the plain ones, forward and backward."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F

from oelm_core.models import dropout
from oelm_core.models.dropout import PIECE, Dropout, dropout_attention, dropout_attention_usable, kept
from oelm_core.models.loss import IGNORED, chunk_size, chunked_cross_entropy, linear_cross_entropy
from oelm_core.models.threads import on_all_threads
from tests import needs


def problem(tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(tokens, 16, requires_grad=True)
    weight = torch.randn(40, 16, requires_grad=True)
    targets = torch.randint(0, 40, (tokens,))
    targets[::7] = IGNORED
    return hidden, weight, targets


@pytest.mark.parametrize("loss", [linear_cross_entropy, chunked_cross_entropy])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("tokens", [3, 256, 700])
def test_a_chunked_loss_equals_the_plain_one(loss, reduction: str, tokens: int) -> None:
    hidden, weight, targets = problem(tokens)
    plain = F.cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORED, reduction=reduction)
    (plain * 3).sum().backward()
    expected = (hidden.grad, weight.grad)
    hidden, weight, targets = problem(tokens)
    ours = loss(hidden, weight, targets, reduction)
    (ours * 3).sum().backward()
    assert torch.allclose(ours, plain, atol=1e-5)
    for mine, theirs in zip((hidden.grad, weight.grad), expected, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", [linear_cross_entropy, chunked_cross_entropy])
def test_a_card_takes_larger_chunks_and_gets_the_same_loss(monkeypatch: pytest.MonkeyPatch, loss) -> None:
    on_card, on_cpu = (chunk_size(torch.device(kind)) for kind in ("cuda", "cpu"))
    assert on_card > on_cpu
    found = []
    for size in (on_card, on_cpu):
        monkeypatch.setattr("oelm_core.models.loss.chunk_size", lambda device, size=size: size)
        hidden, weight, targets = problem(on_cpu * 2 + 1)
        total = loss(hidden, weight, targets, "sum")
        total.backward()
        found.append((total, hidden.grad, weight.grad))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_under_autocast_the_logits_are_in_its_dtype_and_gradients_in_the_weights() -> None:
    hidden, weight, targets = problem(300)
    plain = F.cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORED)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, targets)
    loss.backward()
    assert loss.dtype == weight.grad.dtype == hidden.grad.dtype == torch.float32
    assert torch.allclose(loss, plain, rtol=2e-2)


def test_a_frozen_weight_gets_no_gradient() -> None:
    hidden, weight, targets = problem(300)
    chunked_cross_entropy(hidden, weight.detach(), targets).backward()
    assert hidden.grad is not None
    with torch.no_grad():
        assert not chunked_cross_entropy(hidden, weight, targets).requires_grad


def heads(length: int, seed: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(2, length, 3, 8).transpose(1, 2).requires_grad_() for _ in range(3)]


def causal_bias(length: int) -> torch.Tensor:
    bias = torch.randn(1, 3, length, length)
    return bias.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf")).requires_grad_()


@pytest.mark.parametrize("length", [5, 128, 300])
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("at_once", [1, dropout.LOGITS], ids=["row by row", "rows together"])
def test_attention_in_blocks_equals_sdpa_when_next_to_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch, length: int, with_bias: bool, at_once: int
) -> None:
    monkeypatch.setattr(dropout, "LOGITS", at_once)
    q, k, v = heads(length)
    bias = causal_bias(length) if with_bias else None
    out = dropout_attention(q, k, v, bias, 1e-9)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    p, r, s = heads(length)
    other = bias.detach().clone().requires_grad_() if bias is not None else None
    expected = F.scaled_dot_product_attention(p, r, s, attn_mask=other, is_causal=other is None)
    (expected * weights).sum().backward()
    assert torch.allclose(out, expected, atol=1e-5)
    for mine, theirs in zip((q, k, v), (p, r, s), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-4)
    if bias is not None:
        seen = bias > float("-inf")
        assert torch.allclose(bias.grad[seen], other.grad[seen], atol=1e-4)


def test_dropped_attention_has_the_right_gradient() -> None:
    q, k, v = heads(140)

    def total() -> torch.Tensor:
        torch.manual_seed(11)  # the same logits fall out each time
        return dropout_attention(q, k, v, None, 0.3).square().sum()

    total().backward()
    for tensor in (q, k, v):
        direction = torch.randn_like(tensor)
        slope = (tensor.grad * direction).sum()
        with torch.no_grad():
            tensor += 1e-3 * direction
            above = total()
            tensor -= 2e-3 * direction
            below = total()
            tensor += 1e-3 * direction
        assert torch.allclose((above - below) / 2e-3, slope, rtol=2e-2, atol=0.5)


def test_dropout_keeps_the_share_it_should_and_the_mean() -> None:
    torch.manual_seed(1)
    survivors, share = kept((4, 250, 1000), 0.1)
    assert share == pytest.approx(0.9, abs=1e-5)
    assert survivors.float().mean().item() == pytest.approx(share, abs=1e-3)
    q, k, _ = heads(64)
    ones = torch.ones(2, 3, 64, 8)
    means = torch.stack([dropout_attention(q, k, ones, None, 0.2) for _ in range(50)])
    assert means.mean().item() == pytest.approx(1.0, abs=0.01)


@needs.two_cores
@pytest.mark.parametrize("rows", [1, 2])
def test_threads_share_the_work_and_change_nothing(rows: int) -> None:
    """But the last bit of a sum: masks of several pieces, attention of one row and of several."""
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(3)
            q, k, v = (torch.randn(rows, 3, 150, 8, requires_grad=True) for _ in range(3))
            bias = causal_bias(150).detach().requires_grad_()
            out = dropout_attention(q, k, v, bias, 0.3)
            out.square().sum().backward()
            masks = kept((3, PIECE), 0.1)[0]
            assert torch.get_num_threads() == threads
            found.append([out.detach(), q.grad, k.grad, v.grad, bias.grad, masks])
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    assert torch.equal(found[0][-1], found[1][-1])


@needs.two_cores
def test_a_block_of_several_pieces_is_drawn_by_the_one_thread_that_has_it() -> None:
    """A thread of the pool that handed on the pieces of its block would wait for itself for ever."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        q, k, v = (torch.randn(2, 70, 130, 1) for _ in range(3))
        assert dropout_attention(q, k, v, None, 0.3).isfinite().all()
        outer: list[int] = []
        inner: list[int] = []

        def hand_on(_: int) -> None:
            outer.append(threading.get_ident())
            on_all_threads(lambda _: inner.append(threading.get_ident()), range(3))

        on_all_threads(hand_on, range(4))
        assert threading.get_ident() not in outer
        assert sorted(inner) == sorted(outer * 3)
    finally:
        torch.set_num_threads(before)


def test_pieces_of_a_large_draw_differ() -> None:
    torch.manual_seed(1)
    survivors, _ = kept((2, PIECE), 0.5)
    assert survivors[0].float().sub(survivors[1].float()).abs().mean().item() == pytest.approx(0.5, abs=0.01)


def test_dropped_attention_follows_the_global_seed() -> None:
    q, k, v = heads(32)
    runs = []
    for seed in (4, 4, 5):
        torch.manual_seed(seed)
        runs.append(dropout_attention(q, k, v, None, 0.5))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_it_is_used_only_where_it_is_the_same_thing() -> None:
    q, _, _ = heads(8)
    assert dropout_attention_usable(q, None, 0.1)
    assert not dropout_attention_usable(q, None, 0.0)
    assert not dropout_attention_usable(q.double(), None, 0.1)
    assert not dropout_attention_usable(q, torch.ones(2, 1, 8, 8, dtype=torch.bool), 0.1)
    assert not dropout_attention_usable(q, None, 1.0)


def test_cheap_dropout_drops_the_same_numbers_forward_and_backward() -> None:
    torch.manual_seed(0)
    quarter = Dropout(0.25)
    x = torch.ones(300, 200, requires_grad=True)
    out = quarter(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())  # both are 0 or 1 / share
    assert sorted(set(out.detach().flatten().tolist())) == pytest.approx([0.0, 1 / 0.75])
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    neighbours = (out[:, 1:] == 0) & (out[:, :-1] == 0)
    assert neighbours.float().mean().item() == pytest.approx(0.25**2, abs=0.005)  # drawn independently


def test_dropout_is_off_in_evaluation_and_at_zero_and_total_at_one() -> None:
    x = torch.randn(4, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(1.0)(x).abs().max() == 0
    assert Dropout(0.5)(x.double()).dtype == torch.float64
