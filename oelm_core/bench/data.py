"""`oelm bench data`: tokenising against `datasets.map`, and the cost of putting a batch together."""

from __future__ import annotations

from oelm_core.bench.claims import Claim, Effort, Section, Table, seconds
from oelm_core.bench.statistics import paired_ratio
from oelm_core.bench.variants import Recipe, take_turns

MAKER = "oelm_core.bench.texts:"


def measure(effort: Effort) -> Section:
    section = Section("data", "From text to batches")
    _tokenising(section, effort)
    _batches(section, effort)
    return section


def _tokenising(section: Section, effort: Effort) -> None:
    documents = 400 if effort.quick else 6_000
    arguments = {"documents": documents, "workers": effort.threads}
    recipes = {name: Recipe(MAKER + name, arguments) for name in ("our_preparation", "datasets_map")}
    found = take_turns(recipes, rounds=effort.rounds(3), threads=effort.threads)
    tokens = found["our_preparation"].about["tokens"]
    # By the wall: datasets works in processes of its own, which this process's CPU time does not count.
    faster = paired_ratio(found["datasets_map"].wall, found["our_preparation"].wall)
    names = {"our_preparation": "oelm data prepare", "datasets_map": "datasets.map, batched"}
    rows = [
        [names[name], seconds(one.median_wall), f"{tokens / one.median_wall / 1e6:.2f} M"]
        for name, one in found.items()
    ]
    note = (
        f"{documents:,} documents of about {tokens // documents} tokens, a byte-level BPE as GPT-2's (fast tokenizer),"
        f" {effort.threads} workers each, wall clock. Ours also writes the token files, checksums and journal;"
        " datasets.map starts its processes at every call and writes its cache."
    )
    section.tables.append(Table("Tokenising", ["way", "time", "tokens/s"], rows, note))
    section.claims.append(Claim("tokenising against datasets.map", "at least as fast", str(faster), faster.value >= 1))
    section.keep("tokenising", found)


def _batches(section: Section, effort: Effort) -> None:
    makers = {"32 sentences packed": "packed_batches", "8 x 512 tokens": "token_batches"}
    found = take_turns(
        {name: Recipe(MAKER + maker) for name, maker in makers.items()},
        rounds=effort.rounds(10),
        threads=effort.threads,
    )
    rows = [[name, seconds(one.median)] for name, one in found.items()]
    note = "Made in a thread beside the training step; `oelm bench loop` prints what the step really waits for."
    section.tables.append(Table("Putting a batch together", ["batch", "time"], rows, note))
    section.keep("batches", found)
