"""gpu-proof.json: for which card, driver and torch it holds, and what tables say of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oelm_core.compare import compare_runs
from oelm_core.config.catalogue import Catalogue
from oelm_core.devices.card import Card, CardProcess
from oelm_core.errors import BadInput, NotFound, Refused
from oelm_core.formatting import day
from oelm_core.launch import lease
from oelm_core.proof import prove
from oelm_core.proof.checks import ALONE, TOGETHER
from oelm_core.proof.record import CardIdentity, CheckResult, keep_card, keep_cards, proven, read_proofs
from oelm_core.report import render
from tests.run_factory import BERT, FROZEN, experiment, write_run

A, B = (CardIdentity("node1", uuid, "550.54", "2.13.0") for uuid in ("GPU-a", "GPU-b"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("OELM_LEASES", str(tmp_path / "leases"))
    return tmp_path


def results(names: tuple[str, ...], **but: bool | None) -> list[CheckResult]:
    return [CheckResult(name, but.get(name, True), "measured") for name in names]


def is_proven(*uuids: str, machine: str = "node1", driver: str = "550.54", torch: str = "2.13.0") -> bool:
    return proven(machine, uuids, driver, torch) is not None


def test_a_proof_is_of_one_card_one_driver_and_one_torch() -> None:
    keep_card(A, "A100", results(ALONE))
    assert is_proven("GPU-a")
    assert not is_proven("GPU-b")
    assert not is_proven("GPU-a", driver="560.10")
    assert not is_proven("GPU-a", torch="2.14.0")
    assert not is_proven("GPU-a", machine="node2")
    assert not is_proven()


@pytest.mark.parametrize("ok", [False, None])
def test_a_check_that_failed_or_could_not_be_made_proves_nothing(ok: bool | None) -> None:
    keep_card(A, "A100", results(ALONE, resume=ok))
    assert not is_proven("GPU-a")


def test_checks_made_one_by_one_add_up_and_a_later_one_counts() -> None:
    keep_card(A, "A100", results(ALONE, clock=False))
    keep_card(A, "A100", results(("clock",)))
    assert is_proven("GPU-a")
    keep_card(A, "A100", results(("clock",), clock=False))
    assert not is_proven("GPU-a")
    assert len(read_proofs().cards) == 1


def test_several_cards_are_proven_when_each_is_and_all_together() -> None:
    keep_card(A, "A100", results(ALONE))
    keep_card(B, "A100", results(ALONE))
    assert not is_proven("GPU-a", "GPU-b")
    keep_cards([A, B], "A100", results(TOGETHER))
    assert is_proven("GPU-b", "GPU-a")
    assert is_proven("GPU-a")


# -- in tables ---------------------------------------------------------------------------------------------------------

CARD = {"kind": "cuda", "name": "NVIDIA A100", "uuids": ["GPU-a"], "driver": "550.54"}


def table(root: Path, device: dict[str, Any], form: str = "markdown", host: str = "node1") -> str:
    arms = [experiment("base", BERT), experiment("oelm", BERT, baseline="base", method=FROZEN)]
    runs = [
        write_run(root / "runs", arm, number=number, result={"device": device}, run={"host": host})
        for number, arm in enumerate(arms)
    ]
    return render(compare_runs(runs, Catalogue()), form)


def test_a_table_says_that_its_machine_was_proven_by_what_the_runs_recorded(home: Path) -> None:
    said = table(home, {**CARD, "proven": 1_790_000_000.0})
    assert said.count("achine proven on") == 1
    assert f"Machine proven on {day(1_790_000_000.0)}: NVIDIA A100, driver 550.54, torch 2.13.0." in said


def test_a_table_says_that_its_machine_was_not_proven(home: Path) -> None:
    assert "Machine not proven (oelm doctor --gpu): NVIDIA A100, driver 550.54, torch 2.13.0." in table(home, CARD)


def test_a_run_on_a_processor_says_nothing_of_proofs(home: Path) -> None:
    assert "proven" not in table(home, {"kind": "cpu", "name": "a processor"})


def test_programs_read_it_too(home: Path) -> None:
    (group,) = json.loads(table(home, CARD, "json"))["groups"]
    machine = {"card": "NVIDIA A100", "cards": 1, "driver": "550.54", "torch": "2.13.0", "proven": None}
    assert group["machines"] == [machine]


def test_a_proof_made_after_the_runs_counts_for_the_same_card(home: Path) -> None:
    from oelm_core.runs.folder import RunFolder
    from oelm_core.runs.store import read_run

    table(home, CARD)
    made_on = read_run(RunFolder(next((home / "runs").iterdir()))).host
    keep_card(CardIdentity(made_on, "GPU-a", "550.54", "2.13.0"), "NVIDIA A100", results(ALONE))
    assert "Machine proven on" in table(home / "again", CARD)


# -- which cards -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> list[Card]:
    found = [Card(0, uuid="GPU-a", name="A100", memory_used=0), Card(1, uuid="GPU-b", name="A100", memory_used=0)]
    monkeypatch.setattr(prove.device_request, "probe", lambda: found)
    monkeypatch.setattr(prove, "driver_version", lambda: "550.54")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return found


def test_named_cards_or_all_are_proven_card_by_card_then_together(
    cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def make_checks(names: list[str], kind: str, uuids: list[str]) -> list[CheckResult]:
        asked.append((kind, tuple(uuids), tuple(names)))
        assert all(map(lease.holder, uuids))  # no waiting run starts on it meanwhile
        return [CheckResult(name, True, "measured") for name in names]

    monkeypatch.setattr(prove, "make_checks", make_checks)
    made = list(prove.prove(None, ["clock", "peers"]))
    assert asked == [
        ("cuda", ("GPU-a",), ("clock",)),
        ("cuda", ("GPU-b",), ("clock",)),
        ("cuda", ("GPU-a", "GPU-b"), ("peers",)),
    ]
    assert [(one.where, one.result.name) for one in made] == [
        ("GPU 0", "clock"),
        ("GPU 1", "clock"),
        ("GPU 0 and GPU 1", "peers"),
    ]
    assert lease.holder("GPU-a") is None
    kept = read_proofs()
    assert [one.card.uuid for one in kept.cards] == ["GPU-a", "GPU-b"]
    assert kept.together[0].uuids == ["GPU-a", "GPU-b"]
    asked.clear()
    list(prove.prove("1", []))
    assert [(uuids, names) for _, uuids, names in asked] == [(("GPU-b",), ALONE)]


def test_nothing_more_is_tried_on_a_card_that_torch_cannot_use(
    cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_checks(names: list[str], kind: str, uuids: list[str]) -> Iterator[CheckResult]:
        for name in names:
            yield CheckResult(name, name != "build", "measured")

    monkeypatch.setattr(prove, "make_checks", make_checks)
    assert [one.result.name for one in prove.prove(None, [])] == ["build", "build"]


def test_a_card_in_use_is_not_proven(cards: list[Card]) -> None:
    cards[0] = Card(0, uuid="GPU-a", processes=(CardProcess(7, user="ann"),))
    with pytest.raises(Refused, match="GPU 0 used by ann, pid 7; wait for it, or name other cards with --cards"):
        list(prove.prove("0", []))
    taken = lease.take("GPU-b", "sst2-oelm-s42")
    assert taken is not None
    with pytest.raises(Refused, match="GPU 1 is used by run sst2-oelm-s42"):
        list(prove.prove("1", []))


def test_what_cannot_be_proven_is_said_in_a_sentence(cards: list[Card]) -> None:
    with pytest.raises(NotFound, match="no GPU 5"):
        list(prove.prove("5", []))
    with pytest.raises(BadInput, match="--cards cpu: write the numbers of cards"):
        list(prove.prove("cpu", []))
    with pytest.raises(BadInput, match="--check peers: it is about several cards"):
        list(prove.prove("0", ["peers"]))
    cards.clear()
    with pytest.raises(NotFound, match="there is no card here to prove"):
        list(prove.prove(None, []))


def test_asking_for_a_proof_imports_no_torch() -> None:
    script = "import sys, oelm_core.proof.prove, oelm_core.scaling; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
