"""What the makers' data sheets say of cards: products and bytes a second, memory, the way to the next card."""

from __future__ import annotations

import re
from typing import NamedTuple

from oelm_core.errors import BadInput

GB, TERA = 10**9, 10**12
PCIE3, PCIE4, PCIE5 = 15.75 * GB, 31.5 * GB, 63 * GB
"""Sixteen lanes, each way."""


class DataSheet(NamedTuple):
    name: str
    memory: float
    bandwidth: float
    """Bytes a second."""
    peaks: dict[str, float]
    """FLOPs a second of dense products by number format, summed in fp32; formats that it has not are missing."""
    link: float
    """Bytes a second to another card, each way: NVLink where the card always has it, else PCIe."""


def _card(name: str, gib: float, gb_s: float, link: float, **peaks: float) -> DataSheet:
    formats = {**peaks, **({"fp16": peaks["bf16"]} if "bf16" in peaks else {})}
    return DataSheet(name, gib * 2**30, gb_s * GB, {key: value * TERA for key, value in formats.items()}, link)


# Sheets print the tensor units' figures with sparsity where they can; these are without, so half of those.
SHEETS = {
    "t4": _card("T4", 16, 320, PCIE3, fp32=8.1, fp16=65),
    "v100": _card("V100 SXM2", 32, 900, 150 * GB, fp32=15.7, fp16=125),
    "v100-pcie": _card("V100 PCIe", 32, 900, PCIE3, fp32=14, fp16=112),
    "3090": _card("GeForce RTX 3090", 24, 936, PCIE4, fp32=35.6, tf32=35.6, bf16=71.2),
    "4090": _card("GeForce RTX 4090", 24, 1008, PCIE4, fp32=82.6, tf32=82.6, bf16=165.2),
    "a10": _card("A10", 24, 600, PCIE4, fp32=31.2, tf32=62.5, bf16=125),
    "a40": _card("A40", 48, 696, PCIE4, fp32=37.4, tf32=74.8, bf16=149.7),
    "a5000": _card("RTX A5000", 24, 768, PCIE4, fp32=27.8, tf32=55.6, bf16=111.1),
    "a6000": _card("RTX A6000", 48, 768, PCIE4, fp32=38.7, tf32=77.4, bf16=154.8),
    "a100-40": _card("A100 40 GB", 40, 1555, 300 * GB, fp32=19.5, tf32=156, bf16=312),
    "a100": _card("A100 80 GB", 80, 2039, 300 * GB, fp32=19.5, tf32=156, bf16=312),
    "l4": _card("L4", 24, 300, PCIE4, fp32=30.3, tf32=60, bf16=121),
    "l40s": _card("L40S", 48, 864, PCIE4, fp32=91.6, tf32=183, bf16=362),
    "h100": _card("H100 SXM", 80, 3350, 450 * GB, fp32=67, tf32=494.7, bf16=989.4),
    "h100-pcie": _card("H100 PCIe", 80, 2000, PCIE5, fp32=51, tf32=378, bf16=756),
    "h200": _card("H200", 141, 4800, 450 * GB, fp32=67, tf32=494.7, bf16=989.4),
}


OTHERS = {"laptop", "mobile", "mig", "nvl", "super"}
"""Words by which a driver tells a card from the one whose name it shares."""


def sheet_of(name: str) -> DataSheet | None:
    """By a short name, or as a driver spells it.

    >>> [sheet_of(name).name for name in ("a5000", "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-40GB")]
    ['RTX A5000', 'GeForce RTX 4090', 'A100 40 GB']
    >>> [sheet_of(name).name for name in ("NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "Tesla V100-PCIE-16GB")]
    ['H100 PCIe', 'H100 SXM', 'V100 PCIe']
    >>> sheet_of("Quadro P400"), sheet_of("NVIDIA GeForce RTX 4090 Laptop GPU"), sheet_of("NVIDIA A100 MIG 1g.10gb")
    (None, None, None)
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    if OTHERS & set(words):
        return None
    if "a100" in words and {"40", "40gb"} & set(words):
        return SHEETS["a100-40"]
    known = [word for word in words if word in SHEETS]
    if not known:
        return None
    return SHEETS.get(f"{known[0]}-pcie", SHEETS[known[0]]) if "pcie" in words else SHEETS[known[0]]


def named_sheet(name: str) -> DataSheet:
    found = sheet_of(name)
    if found is None:
        raise BadInput(f"card '{name}': its data sheet is not known here; write {', '.join(SHEETS)}, cpu or this.")
    return found


def format_on(asked: str, sheet: DataSheet) -> str:
    """What `train.precision` becomes on it: `amp` takes bf16, else fp16, else fp32, as training does."""
    if asked == "amp":
        return next((one for one in ("bf16", "fp16") if one in sheet.peaks), "fp32")
    if asked not in sheet.peaks:
        raise BadInput(f"train.precision {asked}: {sheet.name} has no {asked}; write fp16 or fp32.")
    return asked
