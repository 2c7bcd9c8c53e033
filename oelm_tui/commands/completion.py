"""What the shell offers for RUN, PRESET and STUDY when tab is pressed; `oelm --install-completion` sets it up.

Each returns (what to write, what it is). Whatever goes wrong, tab offers nothing rather than an error.
"""

from __future__ import annotations

from oelm_core.errors import LabError

Offers = list[tuple[str, str]]


def runs(incomplete: str) -> Offers:
    """Runs that begin so, newest first."""
    from oelm_core.runs.store import list_runs

    try:
        found = list_runs()
    except LabError:
        return []
    offers = [("@last", "the newest run")] if found else []
    offers += [(run.id, f"{run.method}, {run.state}") for run in found]
    return [offer for offer in offers if offer[0].lower().startswith(incomplete.lower())]


def presets(incomplete: str) -> Offers:
    return _of_catalogue(incomplete, experiments=True, studies=False)


def studies(incomplete: str) -> Offers:
    return _of_catalogue(incomplete, experiments=False, studies=True)


def presets_and_studies(incomplete: str) -> Offers:
    return _of_catalogue(incomplete, experiments=True, studies=True)


def studies_and_runs(incomplete: str) -> Offers:
    return [*studies(incomplete), *runs(incomplete)]


def _of_catalogue(incomplete: str, *, experiments: bool, studies: bool) -> Offers:
    from oelm_core.config.catalogue import load_catalogue

    try:
        found = load_catalogue()
    except LabError:
        return []
    titles = {one.id: one.title for one in found.studies.values()} if studies else {}
    if experiments:
        titles |= {one.id: one.title for one in found.experiments.values()}
    return [(name, title) for name, title in titles.items() if name.lower().startswith(incomplete.lower())]
