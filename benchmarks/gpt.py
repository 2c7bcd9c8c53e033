"""Our GPT's step against what researchers use, what freezing saves in it, and what each of our choices bought."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from benchmarks.claims import ClaimSection
from benchmarks.freezing import freezing_claims, gpt_layer
from benchmarks.peers import PEERS
from oelm_core.bench.profile import StepProfile, profile_step
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import MEDIUM, TINY, Step, gpt
from oelm_core.bench.subjects import compare_steps
from oelm_core.bench.turns import Make, Measured, ratio, take_turns
from oelm_core.formatting import percent, size
from oelm_core.method.flops import StepSizes
from oelm_core.models import bert as bert_module
from oelm_core.models import dropout
from oelm_core.models import gpt as gpt_module

OURS, FROZEN, PLAIN = "ours", "ours, Q/K frozen", "plain"
SIZES = MEDIUM.but(layers=2, vocab=16384, batch=1)
"""A third of the recipe's network, its head the same share of the work: many rounds must fit into minutes."""
CHOICES = {
    "loss in chunks": "cross-entropy takes the logits 256 tokens at a time and never holds them all",
    "attention in blocks": "SDPA with dropout stores all attention maps on a CPU; ours works in blocks",
    "cheap dropout": "masks of 16 random bits a number, kept as a byte, instead of Bernoulli draws (not in attention)",
    "fused optimiser": "AdamW in one pass over memory instead of a dozen per tensor",
}


def measure(effort: Effort) -> ClaimSection:
    sizes = TINY.but(batch=2) if effort.quick else SIZES
    recipe = TINY if effort.quick else MEDIUM
    section = ClaimSection("gpt", f"GPT, a training step of {sizes.batch} x {sizes.length} tokens")
    half = recipe.but(batch=recipe.batch // 2)
    memory = _peak_memory(half, effort)
    section.raw["memory"] = memory
    note = (
        "A batch of one gives the optimiser more weight than the recipe's eight do: 8 % of a step depend on its being"
        " fused, which the plain way's and nanoGPT's are not on a CPU."
        f" The claim's memory is of GPT Medium-512 at half its batch. nanoGPT and GPT2 have no dropout inside the"
        " feed-forward, which is work they save; nanoGPT takes the fused AdamW only on a GPU, GPT2 has the one its"
        f" Trainer takes. {sizes.layers} layers and {sizes.vocab:,} words: a third of GPT Medium-512, its head the same"
        " share of the work, so that there can be many rounds."
    )
    found = compare_steps(section, "Against what researchers use", _variants(sizes), effort, note, rounds=18)
    profile = profile_step(section, OURS, partial(gpt, sizes))
    tokens = f"{sizes.batch} x {sizes.length} tokens"
    _peer_claims(section, tokens, found, memory, profile)
    whole = ratio(found, OURS, FROZEN)
    freezing_claims(section, recipe, effort, whole, step=tokens, classifier=False, layer=gpt_layer)
    _what_choices_bought(section, sizes, effort)
    return section


def _variants(sizes: StepSizes) -> dict[str, Make]:
    return {
        OURS: partial(gpt, sizes),
        FROZEN: partial(gpt, sizes, frozen=True),
        **{name: partial(make, sizes) for name, make in PEERS.items()},
    }


def _peak_memory(sizes: StepSizes, effort: Effort) -> dict[str, int]:
    """Bytes of a step, one variant after another: they would not fit beside each other."""
    makes = {name: make for name, make in _variants(sizes).items() if name in (OURS, PLAIN)}
    return {
        name: take_turns({name: make}, rounds=1, threads=effort.threads, warmup=0)[name].memory
        for name, make in makes.items()
    }


def _peer_claims(
    section: ClaimSection, tokens: str, found: dict[str, Measured], memory: dict[str, int], profile: StepProfile
) -> None:
    products = percent(profile.products, 1)
    why = f"matrix products, which all variants must do, are {products} of our step; see where the time goes."
    plain = ratio(found, PLAIN, OURS)
    section.claim_ratio(
        f"GPT step of {tokens} against the author's plain implementation",
        "at least 1.15x",
        plain,
        at_least=1.15,
        why=why,
    )
    fastest = min(PEERS.keys() - {PLAIN}, key=lambda name: found[name].median)
    best = ratio(found, fastest, OURS)
    section.claim_ratio(
        f"GPT step of {tokens} against the fastest peer ({fastest})",
        "at least 1.05x",
        best,
        at_least=1.05,
        why=why,
    )
    share = memory[OURS] / memory[PLAIN]
    section.claim(
        "GPT Medium-512's peak memory at half its batch against the plain implementation",
        "at most 60 %",
        f"{percent(share, 1)} ({size(memory[OURS])} of {size(memory[PLAIN])})",
        share <= 0.6,
    )


def _what_choices_bought(section: ClaimSection, sizes: StepSizes, effort: Effort) -> None:
    """Each of our choices switched off in turn, the others on."""
    makes: dict[str, Make] = {
        OURS: partial(gpt, sizes),
        **{name: partial(gpt_without, name, sizes) for name in CHOICES},
    }
    found = take_turns(makes, rounds=effort.rounds(6), threads=effort.threads)
    saved = {name: found[name].memory - found[OURS].memory for name in CHOICES}
    rows = [
        [name, str(ratio(found, name, OURS)), f"{'-' if saved[name] < 0 else ''}{size(abs(saved[name]))}", what]
        for name, what in CHOICES.items()
    ]
    note = f"A step of {sizes.batch} x {sizes.length} tokens. Time: without the choice over with it, in turns."
    columns = ["choice", "time", "memory saved", "what it is"]
    section.tables.append(BenchTable("What each choice bought", columns, rows, note))
    section.keep("choices", found)


def gpt_without(choice: str, sizes: StepSizes) -> Step:
    """Our GPT's step with one of CHOICES undone in this process; a variant has one of its own, so nothing leaks."""
    if choice == "loss in chunks":
        gpt_module.linear_cross_entropy = _whole_logits
    elif choice == "attention in blocks":
        gpt_module.dropout_attention_usable = lambda *_: False
    elif choice == "cheap dropout":
        undo_cheap_dropout()
    return gpt(sizes, optimiser="default" if choice == "fused optimiser" else "fused")


def undo_cheap_dropout() -> None:
    """From here on this process drops as torch does."""
    dropout.cheaper_here = lambda _: False  # type: ignore[assignment]
    bert_module.cheaper_here = dropout.cheaper_here


def _whole_logits(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(hidden @ weight.T, targets, reduction=reduction)
