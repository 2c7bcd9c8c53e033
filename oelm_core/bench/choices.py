"""The rest of `oelm bench loop`: precision, generation and validation as the worker has them, and torch.compile."""

from __future__ import annotations

from oelm_core.bench.claims import Claim, Effort, Section, Table, megabytes, seconds
from oelm_core.bench.sizes import MEDIUM, TINY
from oelm_core.bench.statistics import paired_ratio
from oelm_core.bench.variants import Recipe, look_at, ratio, take_turns

COLD = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
"""So that a warm-up is one, also the second time."""
TIE = 1.05
"""Formats whose products differ by less are equally fast."""


def measure(section: Section, effort: Effort) -> None:
    _precision(section, effort)
    _generation(section, effort)
    _validation(section, effort)
    _compile(section, effort)


def _precision(section: Section, effort: Effort) -> None:
    about = look_at(Recipe("oelm_core.bench.worker_parts:precision"), effort.threads)
    fastest = min(about["products"], key=lambda name: about["products"][name])
    rows = [[name, seconds(value)] for name, value in about["products"].items()]
    side, chosen = about["size"], about["chosen"]
    note = f"The faster of two. `amp` here takes {chosen}: {about['said']}."
    section.tables.append(Table(f"A product of {side} x {side} in each format", ["format", "time"], rows, note))
    section.claims.append(
        Claim(
            "amp takes the format this device is fastest in, and says so",
            fastest,
            chosen,
            about["products"][chosen] <= TIE * about["products"][fastest] and bool(about["said"]),
        )
    )
    section.raw["precision"] = about


def _generation(section: Section, effort: Effort) -> None:
    size = (TINY if effort.quick else MEDIUM).as_dict()
    maker, tokens = "oelm_core.bench.worker_parts:generation", 8 if effort.quick else 16
    recipes = {
        name: Recipe(maker, {"cache": cache, "tokens": tokens, "sizes": size})
        for name, cache in (("cache", True), ("none", False))
    }
    found = take_turns(recipes, rounds=effort.rounds(3), threads=effort.threads)
    faster = ratio(found, "none", "cache")
    section.claims.append(
        Claim("generate with a key/value cache against without", "faster", f"{faster}", faster.low > 1)
    )
    section.keep("generation", found)


def _validation(section: Section, effort: Effort) -> None:
    sizes = TINY if effort.quick else MEDIUM.but(batch=2)
    maker, one, all_ = "oelm_core.bench.worker_parts:", {"at_once": 1}, {"at_once": sizes.batch}
    size = {"sizes": sizes.as_dict()}
    recipes = {
        "validation, 1 at once or what fits": Recipe(maker + "validation", {**one, **size, "fixed": False}),
        f"validation, {sizes.batch} at once": Recipe(maker + "validation", {**all_, **size, "fixed": True}),
        "forward with gradients, 1 at once": Recipe(maker + "forward_with_gradients", {**one, **size}),
    }
    found = take_turns(recipes, rounds=effort.rounds(2), threads=effort.threads)
    usual, joined, kept = found.values()
    times = {joined.name: str(paired_ratio(joined.seconds, usual.seconds))}
    rows = [[name, seconds(one.median), times.get(name, ""), megabytes(one.memory)] for name, one in found.items()]
    note = (
        f"The trainer's own validation of {sizes.batch} x {sizes.length} tokens. On a GPU it joins batches until they"
        " no longer fit; on a CPU it leaves them as the recipe has them, and the ratio says what more at once would do."
    )
    columns = ["way", "time", "ratio to the first", "peak memory"]
    section.tables.append(Table("Validation", columns, rows, note))
    held = " against ".join(megabytes(one.memory) for one in (usual, kept))
    section.claims.append(
        Claim("validation keeps nothing for gradients", "less memory", held, usual.memory < kept.memory)
    )
    section.keep("validation", found)


def _compile(section: Section, effort: Effort) -> None:
    """torch.compile as an option: its step against ours as shipped, and the seconds before its first step.

    Compiled layers do without our own attention and dropout, which torch's compiler cannot see into.
    """
    import shutil

    from oelm_core.config.sections import Train

    what = "torch.compile (an option, off by default)"
    if not shutil.which("g++") and not shutil.which("clang++"):
        section.claims.append(Claim(what, "measured with its warm-up", "no C++ compiler here", None))
        return
    size = (TINY if effort.quick else MEDIUM.but(batch=1)).as_dict()
    recipes = {
        "as shipped": Recipe("oelm_core.bench.ours:gpt", size),
        "compiled": Recipe("oelm_core.bench.ours:gpt", {**size, "compiled": True}, COLD),
    }
    found = take_turns(recipes, rounds=effort.rounds(3), threads=effort.threads, warmup=2)
    times, first = ratio(found, "as shipped", "compiled"), found["compiled"].first_wall
    verdict = "worth it here" if times.low > 1 else "not worth it here"
    section.claims.append(
        Claim(
            what,
            "measured with its warm-up, off unless asked for",
            f"{times} at {size['batch']} x {size['length']} tokens, first steps {seconds(first)}; {verdict}",
            Train.model_fields["compile"].default is False,
        )
    )
    section.keep("compile", found)
