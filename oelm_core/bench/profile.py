"""Where a step's time goes, by kind of operation: the explanation beside a claim that was not reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oelm_core.bench.claims import Effort, Table, percent
from oelm_core.bench.variants import Recipe, take_turns

# What an operation belongs to, by its name in torch's profiler.
KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "dot"),
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
    "random numbers": ("random_", "bernoulli_", "ge"),
    "optimiser and clipping": (
        *("_fused_adamw_", "linalg_vector_norm", "_foreach_norm", "_foreach_mul_"),
        *("lerp_", "addcmul_", "addcdiv_", "sqrt"),  # what AdamW does tensor by tensor when it is not fused
    ),
    "copies and fills": ("copy_", "fill_", "cat", "zero_", "embedding_dense_backward", "index_select"),
}


def where_time_goes(make: str, arguments: dict[str, Any]) -> Any:
    """For a child: a variant whose `about` has the share of each kind in one profiled step."""
    import importlib

    from torch.profiler import ProfilerActivity, profile

    from oelm_core.bench.stepping import About

    module, _, name = make.partition(":")
    step = getattr(importlib.import_module(module), name)(**arguments)
    step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    return About(shares({event.key: event.self_cpu_time_total for event in seen.key_averages()}))


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """Operation -> time, as kind -> share of the whole.

    >>> shares({"aten::mm": 3.0, "aten::copy_": 1.0})
    {'matrix products': 0.75, 'copies and fills': 0.25}
    """
    total = sum(seconds.values()) or 1.0
    kind_of = {name: kind for kind, names in KINDS.items() for name in names}
    found: dict[str, float] = {}
    for operation, spent in seconds.items():
        kind = kind_of.get(operation.removeprefix("aten::"), "everything else")
        found[kind] = found.get(kind, 0.0) + spent / total
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def profiles(recipes: dict[str, Recipe], effort: Effort) -> dict[str, dict[str, float]]:
    """Shares by kind of each recipe's step."""
    maker = "oelm_core.bench.profile:where_time_goes"
    found = {}
    for name, r in recipes.items():  # one after another: a variant is made, and so profiled, as soon as it is asked for
        asked = Recipe(maker, {"make": r.make, "arguments": dict(r.arguments)})
        found[name] = take_turns({name: asked}, rounds=1, threads=effort.threads)[name].about
    return found


def profile_table(found: dict[str, dict[str, float]], title: str = "Where the time goes") -> Table:
    kinds: Sequence[str] = [*KINDS, "everything else"]
    rows = [[kind, *(percent(one.get(kind, 0.0)) for one in found.values())] for kind in kinds]
    note = "By torch.profiler, CPU. Freezing and packing save matrix products; the rest dilutes it."
    return Table(title, ["kind of work", *found], rows, note)
