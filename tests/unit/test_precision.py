"""Which number format a run trains in: by the card's generation, by the processor's instructions, by its own past."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from oelm_core.errors import BadInput
from oelm_core.training import precision
from oelm_core.training.precision import bf16_units, choose_precision

CPU = torch.device("cpu")
CARD = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _products() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def card(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Pretend-100")


@pytest.mark.parametrize(
    ("capability", "amp", "refused"),
    [
        ((6, 0), "fp32", {"bf16", "tf32"}),
        ((6, 1), "fp32", {"bf16", "tf32"}),
        ((7, 0), "fp16", {"bf16", "tf32"}),
        ((7, 5), "fp16", {"bf16", "tf32"}),
        ((8, 0), "bf16", set()),
        ((8, 6), "bf16", set()),
        ((8, 9), "bf16", set()),
        ((9, 0), "bf16", set()),
        ((12, 0), "bf16", set()),
    ],
)
def test_a_card_trains_in_what_its_generation_has(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], amp: str, refused: set[str]
) -> None:
    card(monkeypatch, capability)
    chosen = choose_precision("amp", CARD)
    assert chosen.name == amp
    assert f"so {amp} is used" in (chosen.note or "")
    for name in ("fp32", "tf32", "bf16", "fp16"):
        if name in refused:
            with pytest.raises(
                BadInput, match=f"train.precision {name}: Pretend-100 has no {name}; write fp16 or fp32"
            ):
                choose_precision(name, CARD)
        else:
            assert choose_precision(name, CARD).name == name


@pytest.mark.parametrize(
    ("flags", "name", "words"),
    [
        ("fpu avx2 avx512f avx512_bf16", "bf16", "has AVX-512 BF16, which multiplies in bf16"),
        ("fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "bf16", "has AMX"),
        ("fpu avx2 avx512f", "fp32", "has no instructions for bf16"),
    ],
)
def test_a_processor_trains_in_bf16_where_it_has_instructions_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, name: str, words: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: pretend\nflags\t\t: {flags}\n")
    monkeypatch.setattr(precision, "bf16_units", lambda: bf16_units(cpuinfo))
    chosen = choose_precision("amp", CPU)
    assert chosen.name == name
    assert words in (chosen.note or "")
    for asked in ("fp16", "tf32"):
        with pytest.raises(BadInput, match=f"{asked} needs a GPU; write fp32 or amp"):
            choose_precision(asked, CPU)


@pytest.mark.parametrize(("units", "before"), [("AMX", "fp32"), (None, "bf16")])
def test_a_resumed_run_keeps_its_format_on_another_processor(
    monkeypatch: pytest.MonkeyPatch, units: str | None, before: str
) -> None:
    monkeypatch.setattr(precision, "bf16_units", lambda: units)
    chosen = choose_precision("amp", CPU, before)
    assert (chosen.name, "as when this run began" in (chosen.note or "")) == (before, True)


def test_a_resumed_run_cannot_keep_a_format_that_the_card_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, (7, 0))
    assert choose_precision("amp", CARD, before="bf16").name == "fp16"


def test_only_tf32_rounds_the_products_of_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, (8, 6))
    choose_precision("tf32", CARD).engage()
    assert torch.get_float32_matmul_precision() == "high"
    choose_precision("fp32", CARD).engage()
    assert torch.get_float32_matmul_precision() == "highest"
