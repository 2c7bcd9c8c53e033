"""What stands under every table: how much was tried for its arms, and whether a study is as it was registered."""

from __future__ import annotations

from oelm_core.compare.comparison import Group, Looks, Registered, Search
from oelm_core.formatting import day


def selection_lines(group: Group) -> list[str]:
    """A sentence each. What differs from a plan is said in full by the audit."""
    lines = [f"Tried: {tried(group)}."] if group.search else []
    if group.test_looks:
        lines.append(looks_words(group.test_looks))
    return [*lines, *([registered_words(group.registered)] if group.registered else [])]


def looks_words(found: Looks) -> str:
    """
    >>> looks_words(Looks(0, 0, 0))
    'No look at the test set is in the ledger.'
    >>> looks_words(Looks(6, 6, 6)), looks_words(Looks(9, 8, 6))
    ('Test set looked at once by each run.', 'Test set looked at 9 times, by 8 runs, of which 6 are shown.')
    """
    if not found.looks:
        return "No look at the test set is in the ledger."
    if found.looks == found.runs == found.shown:
        return "Test set looked at once by each run."
    return f"Test set looked at {found.looks} times, by {found.runs} runs, of which {found.shown} are shown."


def tried(group: Group) -> str:
    """Each preset once: "sst2-oelm: 8 configurations, 19 runs, 3 diverged; sst2-baseline: 1 configuration, 3 runs"."""
    if len(group.search) > 1 and len(set(group.search.values())) == 1:
        return f"{search_words(next(iter(group.search.values())))} of each arm"
    by_preset = {arm.preset: group.search[arm.id] for arm in group.arms if arm.id in group.search}
    return "; ".join(f"{preset}: {search_words(search)}" for preset, search in by_preset.items())


def search_words(search: Search) -> str:
    counts = [_counted(search.configurations, "configuration"), _counted(search.runs, "run")]
    others = (("failed", search.failed - search.diverged), ("diverged", search.diverged), ("deleted", search.deleted))
    return ", ".join([*counts, *(f"{count} {what}" for what, count in others if count)])


def registered_words(registered: Registered) -> str:
    """What deviates is listed by the audit, a finding each."""
    if registered.hash is None or registered.when is None:
        return "Never registered."
    plan = f"registered {registered.hash[:8]} on {day(registered.when)}"
    if not registered.deviations:
        return f"As {plan}."
    count = len(registered.deviations)
    return f"{plan[:1].upper()}{plan[1:]}, but {_counted(count, 'deviation')}, listed under Fairness."


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
