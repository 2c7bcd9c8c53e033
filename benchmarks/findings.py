"""`python -m benchmarks.findings restore|write HOME`: the records behind docs/findings.md, and the page from them.

What proves the findings is committed without weights, logs and attention patterns, as docs/findings/records.tar.xz.
`restore` lays it out as an OELM_HOME, so that `make findings` continues where anyone left off; `write` keeps the
records of a home, and prints its tables and figures into the page.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from oelm_core.compare import compare_study
from oelm_core.config.catalogue import Catalogue, load_catalogue
from oelm_core.errors import BadInput, LabError, NotFound
from oelm_core.report.document import Report, comparison_report
from oelm_core.report.markdown import render_markdown
from oelm_core.report.picture import render_svg
from oelm_core.runs.store import Run, list_runs

DOCS = Path(__file__).parents[1] / "docs"
STUDIES = ("findings-gpt", "findings-sst2")
BUDGET = 3
"""Draws an arm, as `make findings` asks for them."""
SHOWN = ("Verdict", "Fairness", "Results", "Tuning", "Parameters", "Timing", "Attention")
"""Sections of an export that the page has; the others are in the export itself."""
LEFT_OUT = re.compile(r"/(checkpoints|mirror)(/|$)|\.npz$|/training\.log$|/lock$|/\.[^/]*$")
_PART = re.compile(r"(<!-- made from the records: (\S+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def records(docs: Path = DOCS) -> Path:
    return docs / "findings" / "records.tar.xz"


def restore(home: Path, docs: Path = DOCS) -> bool:
    """Lays the kept records out as a home; False where there are none, or the home has runs of its own already."""
    if (home / "runs").exists() or not records(docs).exists():
        return False
    home.mkdir(parents=True, exist_ok=True)
    with tarfile.open(records(docs)) as archive:
        archive.extractall(home, filter="data")
    return True


def keep(home: Path, docs: Path = DOCS) -> None:
    """The same home always gives the same bytes: a commit without news would only weigh."""
    kept = sorted(_kept(home))
    missing = _results(records(docs)) - {str(path.relative_to(home)) for path in kept}
    if missing:
        raise BadInput(
            f"{home} lacks {len(missing)} finished runs that {records(docs).name} has, {min(missing)} first."
        )
    records(docs).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(records(docs), "w:xz", preset=9) as archive:
        for path in kept:
            member = archive.gettarinfo(path, str(path.relative_to(home)))
            member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
            with open(path, "rb") as file:
                archive.addfile(member, file)


def _results(archive: Path) -> set[str]:
    if not archive.exists():
        return set()
    with tarfile.open(archive) as opened:
        return {name for name in opened.getnames() if name.endswith("/result.json")}


def _kept(home: Path) -> Iterator[Path]:
    for top in ("runs", "tuning", "studies", "ledger.jsonl", "ledger.head"):
        for path in [home / top, *(home / top).rglob("*")]:
            if path.is_file() and not path.is_symlink() and not LEFT_OUT.search(f"/{path.relative_to(home)}"):
                yield path


def write(home: Path, docs: Path = DOCS) -> None:
    """The page's generated parts, and a figure a study."""
    catalogue, runs, page = load_catalogue(None), list_runs(home / "runs"), docs / "findings.md"
    with _in_utc():
        found = {name: _report(name, runs, catalogue) for name in STUDIES}

    def part(match: re.Match[str]) -> str:
        return f"{match[1]}{progress(match[2], runs, catalogue)}\n\n{tables(found[match[2]])}{match[3]}"

    page.write_text(_PART.sub(part, page.read_text("utf-8")), "utf-8")
    for name, report in found.items():
        if report is not None:
            (docs / "findings" / f"{name}.svg").write_text(render_svg(report), "utf-8")


@contextlib.contextmanager
def _in_utc() -> Iterator[None]:
    """A page that everybody can write again has the same dates everywhere."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def _report(name: str, runs: list[Run], catalogue: Catalogue) -> Report | None:
    try:
        return comparison_report(compare_study(catalogue.study(name), runs, catalogue))
    except NotFound:
        return None


def progress(name: str, runs: list[Run], catalogue: Catalogue) -> str:
    """How far the study is: a page with half of its seeds says so."""
    study = catalogue.study(name)
    over = [run for run in runs if run.preset in study.arms and run.state == "finished"]
    draws, seeds = len([run for run in over if run.is_draw]), len([run for run in over if not run.is_draw])
    arms = len(study.arms)
    return f"*Finished: {draws} of {BUDGET * arms} draws of tuning, {seeds} of {len(study.seeds) * arms} runs.*"


def tables(report: Report | None) -> str:
    if report is None:
        return "*No run of it counts yet.*\n"
    shown = dataclasses.replace(report, sections=tuple(one for one in report.sections if one.heading in SHOWN))
    text = render_markdown(shown).partition("\n\n")[2]  # the page has a title of its own
    return re.sub(r"^## ", "### ", text, flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.findings", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("restore", "write"))
    parser.add_argument("home", type=Path)
    options = parser.parse_args()
    os.environ["OELM_HOME"] = str(options.home.resolve())  # the ledger and the tunings are found by it
    try:
        if options.what == "restore":
            restore(options.home)
        else:
            keep(options.home)
            write(options.home)
    except (LabError, OSError) as error:
        sys.exit(f"findings: {error}")


if __name__ == "__main__":
    main()
