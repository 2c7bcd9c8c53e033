"""Runs on other machines: their devices as their own workers report them, and whether Slurm answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oelm_core.runs.status import LIVE
from oelm_core.runs.store import Run
from oelm_tui.snapshots.cards import Card

if TYPE_CHECKING:
    from oelm_core.launch.remote_devices import DeviceSample


def remote_cards(runs: Sequence[Run]) -> tuple[Card, ...]:
    """One card for each live run on another machine, by node."""
    if not any(run.launcher == "slurm" and run.state in LIVE and run.devices for run in runs):
        return ()  # nothing is imported for those who have no cluster
    from oelm_core.launch import remote_devices

    return tuple(card_of(sample) for sample in remote_devices.samples(runs))


def card_of(sample: DeviceSample) -> Card:
    on_cpu = bool(sample.devices) and sample.devices[0].startswith("cpu")
    where = "cpu" if on_cpu else ",".join(short_card(device) for device in sample.devices)
    return Card(
        index=f"{sample.node}:{where}",
        name="",
        uuid=f"{sample.node}/{sample.run}",
        utilisation=sample.cpu if on_cpu else sample.utilisation,
        memory_used=sample.host_memory if on_cpu else sample.memory_used,
        memory_total=None,
        temperature=None,
        power=None,
        whose="ours",
        label=sample.run,
        heard=sample.at,
    )


def short_card(device: str) -> str:
    """`GPU-1234abcd...` by its first letters, `cuda:2` by its number."""
    text = str(device)
    return text[4:8] if text.startswith("GPU-") else text.removeprefix("cuda:")


def slurms_silence(runs: Sequence[Run]) -> str:
    """For the header: that Slurm does not answer, when it was asked about a run of its own."""
    if not any(run.launcher == "slurm" for run in runs):
        return ""
    from oelm_core.launch.launcher import slurm_silence

    return "Slurm does not answer: its runs as last heard of" if slurm_silence() else ""
