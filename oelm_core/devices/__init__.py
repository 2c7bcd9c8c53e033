"""What the machine has and who uses it: processors, memory, disk and NVIDIA cards, as one frozen snapshot."""

from __future__ import annotations

from oelm_core.devices.sampler import Sampler
from oelm_core.devices.snapshot import Cpu, Disk, Gpu, GpuProcess, Memory, Snapshot, snapshot

__all__ = ["Cpu", "Disk", "Gpu", "GpuProcess", "Memory", "Sampler", "Snapshot", "snapshot"]
