"""`oelm doctor --gpu` as its user calls it, with the processor in place of cards and two ranks in place of two."""

from __future__ import annotations

import json
from pathlib import Path

from tests.functional.oelm import Oelm


def test_checks_are_made_printed_and_kept(tmp_path: Path) -> None:
    oelm = Oelm(tmp_path)
    names = ("card", "all-reduce", "failing-rank")
    asked = [part for name in names for part in ("--check", name)]
    ended = oelm("doctor", "--gpu", "--device", "cpu", *asked, timeout=300)
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [line[1] for line in lines if line[0] in "✔!✘"] == list(names)
    assert "not on a CPU" in ended.stdout
    assert "rank 1: RuntimeError: this rank was told to fail" in " ".join(ended.stdout.split())
    kept = json.loads((tmp_path / "gpu-proof.json").read_text())
    assert kept["cards"][0]["checks"]["card"]["ok"] is None  # it proves nothing
    figures = kept["together"][0]["checks"]["all-reduce"]["figures"]
    assert figures["ranks"] == 2
    assert figures["bandwidth"] > 0
    # what the ranks measured is what a prediction goes by; no step was timed, so it says what is missing
    more = oelm("doctor", "--gpu", "--device", "cpu", "--check", "speed-up")
    assert more.returncode == 1
    assert "no step of GPT-01 was timed" in more.stdout
    assert more.stderr == "oelm: not proven: speed-up (CPU).\n"


def test_wrong_options_are_refused_in_a_sentence(tmp_path: Path) -> None:
    oelm = Oelm(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert "go with --gpu" in oelm.refusal("doctor", "--cards", "0,1", code=2)
    unknown = oelm.refusal("doctor", "--gpu", "--check", "clok", code=2)
    assert "no such check. Did you mean clock?" in unknown
    assert "There are: build, card, numbers-gpt," in unknown
    assert "no card is proven" in oelm.refusal("doctor", "--gpu", "--cards", "7,8", "--device", "cpu", code=2)
    assert "there is no card here to prove" in oelm.refusal("doctor", "--gpu", code=3)  # and no word of two minutes
    assert "write local or slurm" in oelm.refusal("doctor", "--gpu", "--launcher", "pbs", code=2)
