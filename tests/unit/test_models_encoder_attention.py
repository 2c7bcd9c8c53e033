"""Encoder attention with cheap dropout on a CPU: the numbers of SDPA, and SDPA itself everywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from oelm_core.config import Shape
from oelm_core.models import bert
from oelm_core.models.bert import encoder_config, from_config
from oelm_core.models.dropout import Dropout, cheapen_dropout

NEARLY_NONE = 1e-9
"""Dropout so small that nothing is dropped, yet the path with dropout is taken."""


class Encoder(nn.Module):
    is_causal = False


def parts() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, 7, 8, requires_grad=True) for _ in range(3)]


def padding() -> Tensor:
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[1, :, :, 4:] = False
    return mask


@pytest.mark.parametrize("mask", [None, padding(), torch.randn(2, 3, 7, 7)], ids=["none", "boolean", "added"])
def test_without_drops_it_equals_sdpa_forward_and_backward(mask: Tensor | None) -> None:
    ours, theirs = parts(), parts()
    out, _ = bert.attend(Encoder(), *ours, mask, dropout=NEARLY_NONE)
    plain = F.scaled_dot_product_attention(*theirs, attn_mask=mask).transpose(1, 2)
    torch.testing.assert_close(out, plain, atol=1e-6, rtol=1e-5)
    out.square().sum().backward()
    plain.square().sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-5)


def test_dropout_keeps_the_mean() -> None:
    q, k, _ = parts()
    ones = torch.ones(2, 3, 7, 8)
    torch.manual_seed(1)
    outs = torch.stack([bert.attend(Encoder(), q, k, ones, None, dropout=0.2)[0] for _ in range(300)])
    assert outs.std() > 0.05  # something was dropped
    assert abs(outs.mean().item() - 1) < 0.01


def test_a_row_that_sees_nothing_stays_finite() -> None:
    nothing = torch.zeros(2, 1, 7, 7, dtype=torch.bool)
    out, _ = bert.attend(Encoder(), *parts(), nothing, dropout=0.1)
    assert torch.isfinite(out).all()


def test_evaluation_and_causal_layers_go_to_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(bert, "sdpa_attention_forward", lambda *a, **k: asked.append(k) or (a[1], None))
    bert.attend(Encoder(), *parts(), None, dropout=0.0)
    bert.attend(Encoder(), *parts(), None, dropout=0.1, is_causal=True)
    bert.attend(nn.Module(), *parts(), None, dropout=0.1)  # says nothing: causal, as transformers has it
    monkeypatch.setattr(bert, "cheaper_here", lambda _: False)
    bert.attend(Encoder(), *parts(), None, dropout=0.1)
    assert [k["dropout"] for k in asked] == [0.0, 0.1, 0.1, 0.1]


def test_an_encoder_trains_with_it_and_its_folder_does_not_name_it(tmp_path: Path) -> None:
    shape = Shape(vocab=50, d_model=16, layers=2, heads=2, d_ff=32, positions=16)
    model = from_config(encoder_config(shape, "bert", 2, 0.1)).train()
    assert not [m for m in model.modules() if type(m) is nn.Dropout]
    assert len([m for m in model.modules() if type(m) is Dropout]) == 2 * 3 + 2  # 3 a layer, embedding, head
    model(input_ids=torch.randint(0, 50, (2, 9)), labels=torch.tensor([0, 1])).loss.backward()
    model.save_pretrained(tmp_path)
    assert bert.ATTENTION not in (tmp_path / "config.json").read_text()  # others can load it


def test_cheap_dropout_takes_the_place_of_torchs_and_keeps_its_rate() -> None:
    model = cheapen_dropout(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.3)), nn.Dropout(0.0)))
    assert [m.p for m in model.modules() if isinstance(m, Dropout)] == [0.3, 0.0]
    assert list(model.state_dict()) == ["0.weight", "0.bias"]


def test_a_mask_is_the_one_of_transformers_but_nobody_looks_whether_it_hides_anything() -> None:
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, 4:] = False
    about = {"batch_size": 2, "q_length": 7, "kv_length": 7, "mask_function": bidirectional_mask_function}
    about |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True}
    theirs = sdpa_mask(**about, attention_mask=real)
    assert torch.equal(bert.padding_mask(**about, attention_mask=real), theirs)
    assert torch.equal(theirs.expand(2, 1, 7, 7), padding())
    assert bert.padding_mask(**about, attention_mask=None) is None
    unseen = bert.padding_mask(**about, attention_mask=real.to("meta"), device="meta")  # a device that has no numbers
    assert unseen.shape == (2, 1, 7, 7)
