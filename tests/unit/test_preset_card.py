"""A preset's card: what it says of our runs, of the published figures, and of the cost here."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from oelm_core.changes import changed_settings
from oelm_core.compare.comparison import Finding
from oelm_core.config import Experiment, as_dict, override
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.estimate import estimate
from oelm_core.method.facts import Census, Count
from oelm_core.preset_card import PresetCard, PresetFacts, experiment_card, our_runs, study_card
from oelm_core.published import facts
from oelm_core.published.audit import audit_published
from oelm_core.published.facts import CatalogueFacts
from oelm_core.runs.store import Run, list_runs
from oelm_tui.render.preset_card import card_lines
from oelm_tui.snapshots.preset_card import CardReader, CardRequest
from tests.run_factory import experiment, write_run


@pytest.fixture(scope="module")
def shipped() -> Catalogue:
    return load_folders([SHIPPED])


def card_of(
    preset: Experiment, shipped: Catalogue, runs: list[Run] | None = None, facts: PresetFacts | None = None
) -> PresetCard:
    return experiment_card(preset, shipped, runs or [], estimate(preset, runs or []), facts or PresetFacts())


def rows(card: PresetCard, section: str) -> dict[str, str]:
    return {row.name: f"{row.value} {row.extra}" for one in card.sections if one.title == section for row in one.rows}


def test_our_result_is_the_mean_over_seeds_of_the_newest_run_each(tmp_path: Path) -> None:
    arm = experiment("an-arm")
    for number, (seed, score) in enumerate([(42, 0.5), (42, 0.90), (43, 0.94)]):  # the first was run again
        write_run(tmp_path, arm, seed=seed, number=number, score=score)
    write_run(tmp_path, override(arm, ["train.lr=3e-3"]), number=7, score=0.2)
    write_run(tmp_path, arm, seed=44, number=8, state="failed", reason="oom", without=["result"])
    own, changed, also = our_runs(arm, list_runs(tmp_path))
    assert (own.name, own.value, own.extra) == ("accuracy", "92.00 ± 2.83 %", "seeds 42, 43")
    assert (changed.name, changed.value, changed.extra) == ("lr 3e-3", "20.00 %", "seed 42")
    assert also.value == "1 failed"
    assert our_runs(experiment("another"), list_runs(tmp_path)) == ()


def test_without_a_run_here_the_published_time_is_the_cost(shipped: Catalogue, tmp_path: Path) -> None:
    preset = shipped.experiments["GPT-02"]
    assert rows(card_of(preset, shipped), "Cost here")["time"].startswith("4h32m published, on the author's machine")
    run = write_run(tmp_path, preset, number=1)
    timed = replace(run, started=run.created, ended=run.created + 7200)
    assert rows(card_of(preset, shipped, [timed]), "Cost here")["time"].startswith("about 2h00m from an earlier run")


def test_a_card_says_what_is_published_and_what_speaks_against_it(shipped: Catalogue) -> None:
    preset = shipped.experiments["GPT-02"]
    finding = Finding("breaks", "parameters", ("GPT-02",), "GPT-02: counted, they are fewer.", "a control")
    card = card_of(preset, shipped, facts=PresetFacts(Count(10, 8, 2), [finding]))
    assert rows(card, "Parameters")["frozen"] == "2 20.0 %"
    assert rows(card, "Published")["perplexity"].startswith("4.690 ")
    assert rows(card, "What the audit says of it") == {"breaks": "counted, they are fewer. Settle it with: a control."}
    assert rows(card, "What it changes from GPT-01")["train.lr"] == "1e-3 GPT-01: 3e-4"
    assert rows(card, "Start it") == {"": "oelm run GPT-02 "}
    pending = card_of(preset, shipped)
    assert rows(pending, "Parameters")["total"].strip() == "being counted"
    assert rows(pending, "What the audit says of it")[""].strip() == "being checked"


def test_every_shipped_preset_and_study_has_a_card_that_fits(shipped: Catalogue) -> None:
    for width in (60, 120):
        for preset in shipped.experiments.values():
            lines = card_lines(card_of(preset, shipped), width)
            assert max(sum(len(text) for text, _ in line) for line in lines[1:]) <= width, preset.id
        for study in shipped.studies.values():
            assert card_lines(study_card(study, shipped, []), width)


def test_facts_add_up_and_are_looked_up_by_preset() -> None:
    about = Finding("note", "parameters", ("GPT-02",), "something.")
    known = CatalogueFacts({"a": Count(1)}).joined(CatalogueFacts({"b": Count(2)}))
    assert known.about("gpt-02") is None
    known = known.joined(CatalogueFacts(findings=[about])).joined(CatalogueFacts({"c": Count(3)}))
    assert sorted(known.counts) == ["a", "b", "c"]
    assert (known.about("gpt-02"), known.about("GPT-01")) == ([about], [])


DECODER = "llama-tinystories-baseline"


def test_facts_need_no_process_but_for_a_network_that_must_be_built(
    shipped: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    begun: list[subprocess.Popen[bytes]] = []
    light = list(facts.gather(shipped, "", "GPT-02", begun))
    assert begun == []
    assert light[0].counts["GPT-02"] == Count(44_896_768, 41_751_040, 3_145_728)
    assert light[1].findings == audit_published(shipped)
    assert DECODER not in light[0].counts
    for prints, told in ((CatalogueFacts({DECODER: Count(9, 9, 0)}), Count(9, 9, 0)), (None, Count())):
        stand_in = tmp_path / "python"
        stand_in.write_text(f"#!/bin/sh\n{f'echo {shlex.quote(encode(prints).decode())}' if prints else 'exit 1'}\n")
        stand_in.chmod(0o755)
        monkeypatch.setattr(facts.sys, "executable", str(stand_in))
        assert list(facts.gather(shipped, "", DECODER, begun))[2:] == [CatalogueFacts({DECODER: told})]
    assert [process.args[1:] for process in begun] == [["-m", "oelm_core.published.facts", DECODER]] * 2


def test_the_process_counts_what_was_asked_for_first_and_then_what_arithmetic_cannot(
    shipped: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setattr(facts.os, "nice", lambda _: 0)
    monkeypatch.setattr(sys, "argv", ["facts", "--keep-nothing", DECODER])
    monkeypatch.setattr("oelm_core.method.census.census_of", lambda _: Census(total=9, trainable=9, frozen=0))
    facts.main()
    lines = [decode(line, type=CatalogueFacts).counts for line in capsysbinary.readouterr().out.splitlines()]
    decoders = {one.id for one in shipped.experiments.values() if one.family == "decoder"}
    assert list(lines[0]) == [DECODER]
    assert {name for counts in lines for name in counts} == decoders
    assert all(count == Count(9, 9, 0) for counts in lines for count in counts.values())


def test_a_reader_of_cards_asks_again_only_for_what_was_not_counted(shipped: Catalogue) -> None:
    asked: list[str | None] = []

    def find(catalogue: Catalogue, presets: str, wanted: str | None, begun: list[object]) -> Iterator[CatalogueFacts]:
        asked.append(wanted)
        yield CatalogueFacts({"GPT-01": Count(2), **({DECODER: Count()} if wanted == DECODER else {})})

    reader = CardReader(find)
    for key in ("arm/GPT-01", "arm/GPT-01", "study/demo", f"arm/{DECODER}", f"arm/{DECODER}"):
        reader.find_out(CardRequest(key, shipped), lambda: None)
    assert asked == ["GPT-01", DECODER]


def test_changed_settings_are_said_in_a_word_or_two(shipped: Catalogue) -> None:
    preset = shipped.experiments["sst2-oelm"]
    settings = ["train.lr=3e-3", "method.scale=keep", "data.path=/somewhere/reviews.csv", "train.batch_size=16"]
    changed = changed_settings(as_dict(override(preset, settings)), as_dict(preset))
    assert set(changed) == {"lr 3e-3", "scale keep", "data.path reviews.csv", "batch_size 16"}
    older = as_dict(preset)
    older["train"].pop("betas")  # written by a version that did not know it
    assert changed_settings(older, as_dict(preset)) == ()


def test_what_tells_runs_apart_is_said_before_where_their_files_lie(shipped: Catalogue) -> None:
    preset = shipped.experiment("findings-gpt-oelm")
    settings = ["data.path=/data/stories", "data.tokenizer=/data/words", "train.lr=6e-3"]
    changed = changed_settings(as_dict(override(preset, settings)), as_dict(preset))
    assert changed == ("lr 6e-3", "data.path stories", "tokenizer words")
