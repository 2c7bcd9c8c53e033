"""`oelm bench gpt`: our GPT's step against its peers, what freezing saves, and what each choice bought."""

from __future__ import annotations

from typing import Any

from oelm_core.bench import flops
from oelm_core.bench.claims import Claim, Effort, Section, Table, megabytes, percent, seconds
from oelm_core.bench.freezing import freezing_claims
from oelm_core.bench.profile import profile_table, profiles
from oelm_core.bench.sizes import MEDIUM, TINY, Sizes
from oelm_core.bench.variants import Measured, Recipe, ratio, take_turns

OURS, GEMM = "ours", "GEMM"
PEERS = {
    "nanoGPT-style": "nanoGPT-style",
    "transformers GPT2": "transformers' GPT2 with SDPA",
}
CHOICES = {
    "loss in chunks": "cross-entropy takes the logits 256 tokens at a time and never holds them all",
    "attention in blocks": "SDPA with dropout stores all attention maps on a CPU; ours works in blocks",
    "cheap dropout": "masks of 16 random bits a number, kept as a byte, instead of Bernoulli draws (not in attention)",
    "fused optimiser": "AdamW in one pass over memory instead of a dozen per tensor",
}


def measure(effort: Effort) -> Section:
    recipe = TINY if effort.quick else MEDIUM
    sizes = recipe.but(batch=2)  # all variants at once must fit into memory, and many rounds into minutes
    model = "A tiny GPT" if effort.quick else "GPT Medium-512"
    section = Section("gpt", f"{model}, a training step of {sizes.batch} x {sizes.length} tokens")
    memory = _peak_memory(recipe, effort)
    gemm = Recipe("oelm_core.bench.machine:Gemm", {"size": 256 if effort.quick else 2048})
    variants = {**_variants(sizes), GEMM: gemm}
    found = take_turns(variants, rounds=effort.rounds(12), within=90, threads=effort.threads)
    section.raw["memory"] = memory
    section.keep("steps", found)
    _against_peers(section, sizes, effort, found, memory)
    whole = ratio(found, OURS, "ours, Q/K frozen")
    tokens, layer = f"{sizes.batch} x {sizes.length} tokens", "oelm_core.bench.ours:gpt_layer"
    freezing_claims(section, recipe, effort, whole, step=tokens, classifier=False, layer=layer)
    _what_choices_bought(section, sizes, effort)
    return section


def _ours(arguments: dict[str, Any]) -> Recipe:
    return Recipe("oelm_core.bench.ours:gpt", arguments)


def _variants(sizes: Sizes) -> dict[str, Recipe]:
    size = sizes.as_dict()
    return {
        OURS: _ours(size),
        "ours, Q/K frozen": _ours({**size, "frozen": True}),
        "plain": Recipe("oelm_core.bench.peers:plain_gpt", size),
        "nanoGPT-style": Recipe("oelm_core.bench.peers:nano_gpt", size),
        "transformers GPT2": Recipe("oelm_core.bench.peers:transformers_gpt2", size),
    }


def _peak_memory(sizes: Sizes, effort: Effort) -> dict[str, int]:
    """Bytes of a step at the recipe's batch, one variant after another: they would not fit beside each other."""
    recipes = {name: recipe for name, recipe in _variants(sizes).items() if name in (OURS, "plain")}
    found = {
        name: take_turns({name: r}, rounds=1, threads=effort.threads, warmup=0)[name] for name, r in recipes.items()
    }
    return {name: one.memory for name, one in found.items()}


def _against_peers(
    section: Section, sizes: Sizes, effort: Effort, found: dict[str, Measured], memory: dict[str, int]
) -> None:
    variants = _variants(sizes)
    gemm = found[GEMM].about["flops"] / found[GEMM].median
    work = {name: flops.expected(sizes, frozen="frozen" in name).total for name in variants}
    rows = []
    for name in variants:
        one = found[name]
        against = "" if name == OURS else str(ratio(found, name, OURS))
        use = percent(work[name] / one.median / gemm)
        rows.append([name, seconds(one.median), seconds(one.median_wall), against, megabytes(one.memory), use])
    note = (
        f"{len(found[OURS].seconds)} rounds in turns. Ratio: how many times our time, median of the rounds with its"
        f" 95 % interval. Memory: most held above the libraries, in the variant's own process (the claim's is at the"
        f" recipe's batch of {MEDIUM.batch}). MFU: counted FLOPs per second of the clock over"
        f" those of a {'256' if effort.quick else '2048'}-square product in the same rounds"
        f" ({gemm / 1e9:.0f} GFLOP a second). nanoGPT and GPT2 have no dropout inside the feed-forward,"
        " which is work they save; nanoGPT takes the fused AdamW only on a GPU, GPT2 has the one its Trainer takes."
    )
    columns = ["variant", "step", "wall", "ratio to ours", "peak memory", "MFU"]
    section.tables.append(Table("Against what researchers use", columns, rows, note))
    seen = profiles({OURS: variants[OURS]}, effort.threads)
    section.tables.append(profile_table(seen))
    products = percent(seen[OURS].products)
    why = f"matrix products, which all variants must do, are {products} of our step; see where the time goes."
    _peer_claims(section, f"{sizes.batch} x {sizes.length} tokens", found, memory, why)


def _peer_claims(section: Section, tokens: str, found: dict[str, Measured], memory: dict[str, int], why: str) -> None:
    plain = ratio(found, "plain", OURS)
    section.claims.append(
        Claim(
            f"GPT step of {tokens} against the author's plain implementation",
            "at least 1.15x, interval above 1",
            str(plain),
            plain.value >= 1.15 and plain.low > 1,
            why,
        )
    )
    fastest = min(PEERS, key=lambda name: found[name].median)
    best = ratio(found, fastest, OURS)
    section.claims.append(
        Claim(
            f"GPT step of {tokens} against the fastest peer ({PEERS[fastest]})",
            "at least 1.05x, interval above 1",
            str(best),
            best.value >= 1.05 and best.low > 1,
            why,
        )
    )
    share = memory[OURS] / memory["plain"]
    section.claims.append(
        Claim(
            f"GPT peak memory at the recipe's batch of {MEDIUM.batch} against the plain implementation",
            "at most 60 %",
            f"{percent(share)} ({megabytes(memory[OURS])} of {megabytes(memory['plain'])})",
            share <= 0.6,
        )
    )


def _what_choices_bought(section: Section, sizes: Sizes, effort: Effort) -> None:
    """Each of our choices switched off in turn, the others on; half the batch, for the sake of time."""
    half = sizes.but(batch=max(1, sizes.batch // 2))
    size = half.as_dict()
    recipes = {OURS: _ours(size), **{name: _ours({**size, "without": name}) for name in CHOICES}}
    found = take_turns(recipes, rounds=effort.rounds(3), threads=effort.threads)
    rows = [
        [name, str(ratio(found, name, OURS)), megabytes(found[name].memory - found[OURS].memory), what]
        for name, what in CHOICES.items()
    ]
    note = f"A step of {half.batch} x {half.length} tokens. Time: without the choice over with it, in turns."
    columns = ["choice", "time", "memory saved", "what it is"]
    section.tables.append(Table("What each choice bought", columns, rows, note))
    section.keep("choices", found)
