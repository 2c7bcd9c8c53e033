"""What stands beside a table in sentences: each pair and its verdict, what would decide, what the numbers rest on."""

from __future__ import annotations

import math

from oelm_core.compare.comparison import Group, Pair, SignificanceTest, Verdict
from oelm_core.formatting import percent, points, relative, rough_duration
from oelm_core.metric import metric_named
from oelm_core.proof.record import sentence
from oelm_core.report.cells import BORROWED, VERDICTS, PairLine
from oelm_core.report.selection import selection_lines
from oelm_core.report.translations import Translations


def pair_lines(group: Group, translate: Translations) -> tuple[PairLine, ...]:
    """One for each arm with a baseline: what may be said of the method, the verdict on its target, and why."""
    return tuple(
        PairLine(
            pair.arm, standing_verdict(group, pair), f"{pair.words}{_target(pair, translate)}{_doubt(group, pair)}"
        )
        for pair in group.pairs
    )


def contrast_lines(group: Group) -> tuple[PairLine, ...]:
    return tuple(PairLine(f"{pair.arm} against {pair.baseline}", None, pair.words) for pair in group.contrasts)


def standing_verdict(group: Group, pair: Pair) -> Verdict | None:
    """The verdict, unless the audit found the comparison broken: then it has no mark and no colour."""
    return None if group.broken(pair.arm) else pair.verdict


def _target(pair: Pair, translate: Translations) -> str:
    if pair.verdict is None:
        return ""
    return f" {translate('Target')} {translate(VERDICTS[pair.verdict])}: {pair.verdict_why}."


def _doubt(group: Group, pair: Pair) -> str:
    broken = group.broken(pair.arm)
    return f" But the comparison does not stand: {broken.why}" if broken else ""


def decide_line(group: Group, translate: Translations) -> str | None:
    """The one command that would decide what is open, with its time here."""
    found = group.decide
    if found is None:
        return None
    known = any(pair.seeds_needed for pair in group.pairs if pair.verdict == "undecided")
    lead = translate("To decide" if known else "To decide, or to learn how many seeds it takes")
    time = f" (about {rough_duration(found.seconds)})" if found.seconds else ""
    return f"{lead}: {found.command}{time}"


def basis_line(group: Group) -> str:
    """Where the headline numbers come from."""
    if group.basis == "test":
        return f"Numbers: {group.metric}, test set."
    if group.basis == "cross-fitted":
        return f"Numbers: {group.metric}, validation, cross-fitted (chosen on one half, scored on the other)."
    most = max((arm.mean("validations") or 0 for arm in group.arms), default=0)
    among = f"the best of {most:.0f}, chosen" if most > 1 else "chosen"
    return f"Numbers: {group.metric}, best validation (flatters: {among} on the very examples it is scored on)."


_BASES = {"best": "best validation"}


def calibration_line(group: Group) -> str:
    """What is known of the lab's own false alarms with these recipes; says where its scores are of another kind."""
    if not group.calibration:
        baseline = group.arm(group.baseline).preset if group.baseline else "PRESET"
        return f"No calibration of these recipes: oelm calibrate {baseline}"
    is_share = metric_named(group.metric).is_share
    by_basis: dict[str, list[str]] = {}
    for one in group.calibration:
        alarms = f", {percent(one.false_alarms, 1)} false alarms" if one.false_alarms is not None else ""
        width = points(one.spread) if is_share else relative(one.spread)
        other = f" ({_BASES.get(one.basis, one.basis)})" if one.basis not in ("", group.basis) else ""
        words = f"{one.preset} with itself, {one.seeds} seeds{alarms}, seeds spread {width.lstrip('+')}"
        by_basis.setdefault(other, []).append(words)
    return " ".join(f"Calibrated{other}: {'; '.join(parts)}." for other, parts in by_basis.items())


def family_line(group: Group) -> str | None:
    """How many comparisons p is adjusted for."""
    tested = any(pair.p is not None for pair in (*group.pairs, *group.contrasts))
    if not tested or group.family_size < 2:
        return None
    return f"p adjusted for {group.family_size} comparisons (Holm)."


def result_notes(group: Group, translate: Translations) -> tuple[str, ...]:
    """The lines under the table of results, but for those of its pairs."""
    if not group.pairs:
        return (basis_line(group), *machine_lines(group), *selection_lines(group))
    rests_on = [basis_line(group), family_line(group), calibration_line(group)]
    lines = [decide_line(group, translate), _borrowed_line(group), " ".join(filter(None, rests_on))]
    return tuple(line for line in (*lines, *machine_lines(group), *selection_lines(group)) if line)


def machine_lines(group: Group) -> list[str]:
    """Whether the cards that the runs were made on were proven; nothing for runs on a processor."""
    found = []
    for one in group.machines:
        card = one.card if one.cards == 1 else f"{one.cards} x {one.card}"
        words = sentence(card, one.driver, one.torch, one.proven)
        found.append(f"{words[0].upper()}{words[1:]}.")
    return found


def is_borrowed(pair: Pair) -> bool:
    """Whether the interval of a pair with one seed rests on a spread of seeds that was seen elsewhere."""
    return pair.p is None and pair.interval is not None


def _borrowed_line(group: Group) -> str | None:
    """From whom is in the words of each pair."""
    borrows = any(is_borrowed(pair) for pair in (*group.pairs, *group.contrasts))
    return f"{BORROWED} with a borrowed spread of seeds; the pair's own line says whose." if borrows else None


# -- time --------------------------------------------------------------------------------------------------------------


def is_in_noise(group: Group, pair: Pair) -> bool:
    """Whether a gap in time per step is no larger than identical work shows."""
    if pair.step_time_delta is None or group.timing_noise is None:
        return False
    return abs(math.log1p(pair.step_time_delta)) <= math.log1p(group.timing_noise)


def step_time_test(pair: Pair) -> SignificanceTest | None:
    """There with two pairs of neighbouring runs or more."""
    return next((test for test in pair.tests if test.over == "timing"), None)


def step_time_gap(group: Group, pair: Pair, translate: Translations) -> str | None:
    """The gap in time per step; with its number of pairs where the means beside it are of more runs."""
    if pair.step_time_delta is None:
        return None
    test = step_time_test(pair)
    pairs = test.n if test else 1
    timed = [group.arm(name).measures.get("step_time") for name in (pair.arm, pair.baseline)]
    of = ""
    if any(found is not None and found.n > pairs for found in timed):
        of = f" ({pairs} {translate('pair' if pairs == 1 else 'pairs')})"
    noise = f", {translate('in the noise')}" if is_in_noise(group, pair) else ""
    return f"{relative(pair.step_time_delta)}{of}{noise}"


def timing_notes(group: Group, translate: Translations) -> tuple[str, ...]:
    if all(pair.step_time_delta is None for pair in group.pairs):
        return ()
    lead = "Gaps are between runs that followed one another."
    if group.timing_noise is None:
        return (f"{lead} The noise of this machine is not known: it takes two pairs of runs with identical work.",)
    floor = relative(group.timing_noise).lstrip("+")
    return (f"{lead} Identical work differs by up to {floor} here; a smaller gap is {translate('in the noise')}.",)
