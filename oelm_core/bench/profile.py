"""Where a step's time goes, by kind of operation: the explanation beside a claim that was not reached."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from oelm_core.bench.child import find
from oelm_core.bench.claims import Table, percent
from oelm_core.bench.variants import Recipe, look_at

# What an operation belongs to, by its name in torch's profiler.
KINDS = {
    "matrix products": ("mm", "addmm", "addmm_", "bmm", "dot"),
    "torch's attention kernel": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "softmax, exp, GELU, norms of layers": (
        "_softmax",
        "_softmax_backward_data",
        "_log_softmax",
        "_log_softmax_backward_data",
        "exp_",
        "amax",
        "logsumexp",
        "gelu",
        "gelu_backward",
        "native_layer_norm",
        "native_layer_norm_backward",
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
class Profile:
    """Shares of a step's time: by kind, and of the largest operations that no kind names."""

    kinds: dict[str, float]
    others: dict[str, float]

    @property
    def products(self) -> float:
        return self.kinds.get("matrix products", 0.0)


def where_time_goes(make: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A Profile of a variant's step, warmed up: a few, unless one takes a second."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    step = find(make)(**arguments)
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
    return asdict(shares({operation.key: getattr(operation, clock) for operation in operations}))


def shares(seconds: dict[str, float]) -> Profile:
    """Operation -> time, as shares of the whole.

    >>> shares({"aten::mm": 6.0, "aten::copy_": 1.0, "aten::sum": 1.0})
    Profile(kinds={'matrix products': 0.75, 'copies and fills': 0.125, 'everything else': 0.125}, others={'sum': 0.125})
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
    return Profile(dict(sorted(kinds.items(), key=lambda item: -item[1])), dict(largest))


def profiles(recipes: dict[str, Recipe], threads: int) -> dict[str, Profile]:
    """Where each recipe's step spends its time."""
    maker = "oelm_core.bench.profile:where_time_goes"
    found = {}
    for name, r in recipes.items():  # one after another: a variant is made, and so profiled, as soon as it is asked for
        asked = Recipe(maker, {"make": r.make, "arguments": dict(r.arguments)})
        found[name] = Profile(**look_at(asked, threads))
    return found


def profile_table(found: dict[str, Profile], title: str = "Where the time goes") -> Table:
    rows = [[kind, *(percent(one.kinds.get(kind, 0.0)) for one in found.values())] for kind in [*KINDS, REST]]
    largest = [
        f"{name}: " + ", ".join(f"{operation} {percent(share)}" for operation, share in one.others.items())
        for name, one in found.items()
    ]
    note = "By torch.profiler. Freezing saves matrix products; the rest dilutes it. Largest of what is"
    return Table(title, ["kind of work", *found], rows, f"{note} left: {'; '.join(largest)}.")
