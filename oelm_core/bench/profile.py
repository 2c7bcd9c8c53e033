"""Where a step's time goes, by kind of operation."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from oelm_core.bench.report import BenchSection, BenchTable
from oelm_core.bench.turns import Make, in_child
from oelm_core.formatting import percent

# What an operation belongs to, by its name in torch's profiler.
KINDS = {
    "matrix products": ("mm", "addmm", "addmm_", "bmm", "dot"),
    "torch's attention kernel": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "softmax, exp, GELU, norms of layers": (
        *("_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data", "exp_", "amax"),
        *("logsumexp", "gelu", "gelu_backward", "native_layer_norm", "native_layer_norm_backward"),
    ),
    # The last two are ours: what they do outside torch is numpy's draws.
    "random numbers": ("random_", "bernoulli_", "_Dropped", "_DropoutAttention"),
    "optimiser and clipping": (
        *("_fused_adamw_", "linalg_vector_norm", "_foreach_norm", "_foreach_mul_"),
        *("lerp_", "addcmul_", "addcdiv_", "sqrt"),  # what AdamW does tensor by tensor when it is not fused
    ),
    "copies and fills": ("copy_", "fill_", "cat", "zero_", "embedding_dense_backward", "index_select"),
}
REST = "everything else"
STEPS, LONG_ENOUGH = 5, 1.0


@dataclass(frozen=True)
class StepProfile:
    """Shares of a step's time: by kind, and of the largest operations that no kind names."""

    kinds: dict[str, float]
    others: dict[str, float]

    @property
    def products(self) -> float:
        return self.kinds.get("matrix products", 0.0)


def profile_step(section: BenchSection, variant: str, make: Make, title: str = "Where the time goes") -> StepProfile:
    """Adds the table of where a variant's step spends its time, found out in a process of its own.

    On one thread: torch's profiler does not see what others do for us.
    """
    found = in_child(partial(where_time_goes, make), 1)
    rows = [[kind, percent(found.kinds.get(kind, 0.0), 1)] for kind in [*KINDS, REST]]
    largest = ", ".join(f"{operation} {percent(share, 1)}" for operation, share in found.others.items())
    note = (
        "By torch.profiler, on one thread. Freezing saves matrix products; the rest dilutes it."
        f" Largest of what is left: {largest}."
    )
    section.tables.append(BenchTable(title, ["kind of work", variant], rows, note))
    return found


def where_time_goes(make: Make) -> StepProfile:
    """Of a variant's step, warmed up: a few, unless one takes a second."""
    step = make()
    step()
    began = time.perf_counter()
    on_gpu = torch.cuda.is_available()
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as seen:
        for _ in range(STEPS):
            step()
            if time.perf_counter() - began > LONG_ENOUGH:
                break
    clock = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    operations = [event for event in seen.key_averages() if event.device_type == DeviceType.CPU]  # kernels are in them
    return shares({operation.key: getattr(operation, clock) for operation in operations})


def shares(seconds: dict[str, float]) -> StepProfile:
    """Operation -> time, as shares of the whole.

    >>> shares({"aten::mm": 6.0, "aten::copy_": 1.0, "aten::sum": 1.0}).kinds
    {'matrix products': 0.75, 'copies and fills': 0.125, 'everything else': 0.125}
    """
    total = sum(seconds.values()) or 1.0
    kind_of = {name: kind for kind, names in KINDS.items() for name in names}
    kinds: dict[str, float] = {}
    others: dict[str, float] = {}
    for operation, spent in seconds.items():
        name = operation.removeprefix("aten::")
        kind = kind_of.get(name, REST)
        kinds[kind] = kinds.get(kind, 0.0) + spent / total
        if kind == REST:
            others[name] = spent / total
    largest = sorted(others.items(), key=lambda item: -item[1])[:4]
    return StepProfile(dict(sorted(kinds.items(), key=lambda item: -item[1])), dict(largest))
