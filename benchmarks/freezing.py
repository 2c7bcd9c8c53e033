"""What freezing Q and K can save and does save: counted work, the arithmetic limit, layers on the clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.calls import Calls
from benchmarks.claims import ClaimSection
from benchmarks.flop_counter import count_both
from oelm_core.bench.profile import profile_step
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import Step, device, network
from oelm_core.bench.turns import ENOUGH, Make, Measured, Ratio, in_child, take_turns
from oelm_core.compare.distributions import t_quantile
from oelm_core.formatting import percent, size
from oelm_core.method import flops
from oelm_core.method.flops import StepSizes
from oelm_core.method.freezing import freeze_model_parameters

SHARE = 0.8
LEFT_OUT = "gradients of Q and K"
PROCESSES = ENOUGH
LAYER_TOKENS = 512
"""Short steps take turns more often, which cancels more of a machine's drift."""


def freezing_claims(
    section: ClaimSection,
    sizes: StepSizes,
    effort: Effort,
    whole: Ratio,
    *,
    step: str,
    classifier: bool,
    layer: Callable[..., Step],
) -> None:
    """Adds the table of work, the claims about it, and measured ratios: `whole` is that of a step of `step`."""
    counted = in_child(partial(count_both, sizes, classifier=classifier), effort.threads)
    expected = {
        name: flops.expected(sizes, frozen=frozen, classifier=classifier)
        for name, frozen in (("baseline", False), ("frozen", True))
    }
    section.tables.append(work_table(counted, sizes))
    totals = {name: sum(work.values()) for name, work in counted.items()}
    limit = flops.ideal_ratio(sizes, classifier=classifier)
    section.claim(
        f"{section.name}: counted FLOPs of both arms",
        f"the formula, exactly; ratio {limit:.4f}",
        f"{totals['baseline']:,} and {totals['frozen']:,}; ratio {totals['baseline'] / totals['frozen']:.4f}",
        counted == expected,
    )
    section.raw["work"] = {"counted": counted, "expected": expected, "ideal_ratio": limit}
    by_time, saved_time = _layers(section, sizes.but(batch=max(1, LAYER_TOKENS // sizes.length)), effort, layer)
    rows = [
        ["a layer, limit by the time of the products that freezing leaves out", f"{by_time:.3f}x"],
        ["saved of that time", str(saved_time)],
        ["whole step, arithmetic limit", f"{limit:.4f}x"],
        [f"a step of {step}, measured", str(whole)],
    ]
    saved = saved_bytes(sizes, biases=classifier)
    rows += [[f"{what} saved a step", size(saving)] for what, saving in saved.items()]
    note = (
        "The limit counts matrix products alone: gradients that are not made and weights that are not updated come on"
        " top, all other work dilutes it. Bytes in fp32; all-reduce per GPU and step."
    )
    section.tables.append(BenchTable("What freezing Q and K pays", ["", "found"], rows, note))
    section.raw["saved_bytes"] = saved


def saved_bytes(sizes: StepSizes, *, biases: bool) -> dict[str, int]:
    """Bytes that frozen Q and K spare at every step in fp32: gradients, Adam's two moments, the all-reduce."""
    frozen = sizes.layers * 2 * (sizes.d_model**2 + (sizes.d_model if biases else 0))
    return {"gradients": 4 * frozen, "optimiser": 8 * frozen, "all-reduce": 4 * frozen}


def layer_ratio(sizes: StepSizes) -> float:
    """What freezing can bring at most to one layer alone, without a head."""
    baseline, frozen = flops.expected(sizes, frozen=False), flops.expected(sizes, frozen=True)
    return (sum(baseline.values()) - baseline["head"]) / (sum(frozen.values()) - frozen["head"])


def work_table(counted: dict[str, dict[str, int]], sizes: StepSizes) -> BenchTable:
    total = sum(counted["baseline"].values())
    rows = [
        [name, f"{work / 1e9:,.1f}", f"{counted['frozen'][name] / 1e9:,.1f}", percent(work / total, 1)]
        for name, work in counted["baseline"].items()
    ]
    rows.append(["all", f"{total / 1e9:,.1f}", f"{sum(counted['frozen'].values()) / 1e9:,.1f}", "100.0 %"])
    return BenchTable(
        "Work of a step by component",
        ["component", "baseline GFLOP", "frozen GFLOP", "share of baseline"],
        rows,
        f"{sizes.batch} x {sizes.length} tokens, counted by torch on the meta device; attention's products dense.",
    )


def _layers(section: ClaimSection, sizes: StepSizes, effort: Effort, layer: Callable[..., Step]) -> tuple[float, Ratio]:
    """Adds the claim about one layer. (what it can gain by the time of what is left out, the share of that it gains)

    On one thread: more of them wait for each other, and CPU time would count the waiting.
    """
    arms: dict[str, Make] = {"trained": partial(layer, sizes), "frozen": partial(layer, sizes, frozen=True)}
    makes = {f"{arm} {number}": make for number in range(PROCESSES) for arm, make in arms.items()}
    makes[LEFT_OUT] = partial(weight_gradients, sizes)
    found = take_turns(makes, rounds=effort.rounds(60), within=35, threads=1, warmup=3)
    section.keep("layers", found)
    trained, frozen = ([found[f"{arm} {number}"] for number in range(PROCESSES)] for arm in arms)
    measured, limit = between_processes(trained, frozen), layer_ratio(sizes)
    share, wanted = (measured.value - 1) / (limit - 1), 1 + SHARE * (limit - 1)
    profile_step(section, "a layer", arms["trained"], "Where a layer's time goes")
    part = found[LEFT_OUT].median / statistics.fmean(one.median for one in trained)
    by_time = 1 / (1 - part)
    above = measured.value > limit
    section.claim_ratio(
        f"{section.name}: a layer with frozen Q/K on {sizes.tokens} tokens, forward and backward, one thread",
        f"at least 80 % of the ideal saving, {wanted:.4f}x of {limit:.4f}x",
        measured,
        at_least=wanted,
        remark="above what products alone can save" if above else f"{100 * share:.0f} % of the saving",
        impossible_above=limit,
        why="the ideal counts matrix products as if nothing else took time, and all of them as equally fast. Those that"
        f" freezing leaves out take {percent(part, 1)} of a layer's time when measured alone: without them it can be"
        f" {by_time:.3f}x as fast.",
    )
    saved = {end: (1 - 1 / getattr(measured, end)) / part for end in ("value", "low", "high")}
    return by_time, replace(measured, **saved)


def between_processes(others: Sequence[Measured], ours: Sequence[Measured]) -> Ratio:
    """How many times as fast `ours` are, by the median of each process.

    Processes of one kind differ for good (where their memory lies), so the interval is by them and not by rounds: of
    Student's t over the logs. Medians, since single steps of a shared machine vary by more than the saving.

    >>> fast, slow = ([Measured("", cpu=[one]) for one in times] for times in ([1.0, 1.0], [1.99, 2.01]))
    >>> str(between_processes(slow, fast))
    '2.000x [1.957, 2.043] in 2 processes of each'
    """
    logs = [[math.log(one.median) for one in each] for each in (others, ours)]
    value = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    error = math.sqrt(sum(statistics.variance(each) / len(each) for each in logs))
    side = t_quantile(0.975, sum(len(each) - 1 for each in logs)) * error
    middle, low, high = (math.exp(value + by) for by in (0, -side, side))
    return Ratio(middle, low, high, min(map(len, logs)), each="processes of each")


def weight_gradients(sizes: StepSizes) -> Calls:
    """The products that a layer with frozen Q and K leaves out: the two weights' gradients."""
    draw = torch.Generator().manual_seed(0)
    start, *after = (torch.randn(sizes.tokens, sizes.d_model, generator=draw).to(device()) for _ in range(3))
    return Calls(lambda: [gradient.T @ start for gradient in after], 10)


def gpt_layer(sizes: StepSizes, *, frozen: bool = False) -> Step:
    """Forward and backward of one block of our GPT alone: where freezing saves, nothing around it."""
    block = network("gpt", sizes.but(layers=1, vocab=64)).train().model.layers[0]
    return _layer_step(block, lambda start: block(start, None, None), sizes, frozen)


def bert_layer(sizes: StepSizes, *, frozen: bool = False) -> Step:
    """Forward and backward of one encoder layer."""
    layer = network("bert", sizes.but(layers=1, vocab=64)).train().bert.encoder.layer[0]
    return _layer_step(layer, layer, sizes, frozen)


def _layer_step(layer: Any, forward: Callable[[Tensor], Any], sizes: StepSizes, frozen: bool) -> Step:
    freeze_model_parameters(layer, frozen)
    start = torch.randn(sizes.batch, sizes.length, sizes.d_model, device=device(), requires_grad=True)

    def loss() -> Tensor:
        start.grad = None
        out = forward(start)
        total: Tensor = (out[0] if isinstance(out, tuple) else out).sum()
        return total

    return Step(layer, loss, None)
