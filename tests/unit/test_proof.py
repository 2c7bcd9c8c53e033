"""`oelm doctor --gpu`: every check on a CPU, and that it fails when what it checks is broken."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from oelm_core.devices.card import Card
from oelm_core.devices.torch_builds import CardFacts, TorchFacts
from oelm_core.doctor import Driver
from oelm_core.errors import LabError
from oelm_core.proof import conduct, machine, memory, numbers, rank_work, steps, subjects, together
from oelm_core.proof.__main__ import make
from oelm_core.proof.checks import ALONE, CHECKS, TOGETHER, chosen
from oelm_core.proof.finding import Finding, RanksSaid
from oelm_core.proof.record import CardIdentity, CheckResult, keep_card
from oelm_core.provenance import package_versions
from oelm_core.runs import outcomes, process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import DeviceFacts, Outcome, RunState
from oelm_core.training import checkpoint, results
from oelm_core.training.distributed import Ranks
from oelm_core.training.tasks import ClassificationTask
from oelm_core.training.timing import Stopwatch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The texts of the subjects are written and read once."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("proof")
        patch.setenv("OELM_HOME", str(path))
        yield path


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [numbers.gpt, numbers.bert])
def test_a_device_that_computes_like_a_cpu_passes_in_each_of_its_precisions(home: Path, check: Any) -> None:
    found = check(CPU)
    assert found.ok, found
    assert found.figures["fp32"] == 0.0
    assert 0 < found.figures["bf16"] < numbers.BOUNDS["bf16"]


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_attention_that_is_wrong_by_a_tenth_is_found(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    right, attention = numbers.train, torch.nn.functional.scaled_dot_product_attention
    on_the_card = iter([False, True, True])

    def train(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            if next(on_the_card):
                wrong = lambda *a, **named: attention(*a, **named) * 1.1  # noqa: E731
                patch.setattr(torch.nn.functional, "scaled_dot_product_attention", wrong)
            return right(*arguments)

    monkeypatch.setattr(numbers, "train", train)
    found = numbers._against_cpu(name, CPU)
    assert found.ok is False
    assert found.figures["fp32"] > 10 * numbers.BOUNDS["fp32"]
    assert "layer" in found.measured  # the weight that is furthest off


def test_numbers_that_are_none_and_weights_that_are_missing_are_infinitely_wrong() -> None:
    one = {"w": torch.ones(3)}
    assert numbers.worst(one, {"w": torch.tensor([1.0, float("nan"), 1.0])})[0] == float("inf")
    assert numbers.worst(one, {})[0] == float("inf")


def test_a_resume_continues_to_the_last_bit(home: Path) -> None:
    assert numbers.resume(CPU) == Finding(
        True, "gpt off by 0.000 %; bert off by 0.000 %", "equal to the last bit", figures={"off": 0.0}
    )


def test_a_resume_that_loses_the_moments_is_found_also_within_the_bound_of_a_card(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "load_optimiser", lambda *_: None)
    found = numbers.resume(CPU)
    assert found.ok is False
    assert found.figures["off"] > numbers.OF_A_RESUME


def compile_by(change: Any) -> Any:
    """In place of `nn.Module.compile`, which takes half a minute: a layer that counts as compiled, with a change."""

    def compile_layer(self: torch.nn.Module, **_: Any) -> None:
        from torch._dynamo.utils import counters

        forward = self.forward
        counters["stats"]["unique_graphs"] += 1
        self.forward = lambda *a, **named: change(forward(*a, **named))  # type: ignore[method-assign]

    return compile_layer


@pytest.mark.parametrize(
    ("replacement", "ok"),
    [
        (compile_by(lambda out: out), True),
        (compile_by(lambda out: out * 1.2), False),
        (lambda self, **_: None, False),
    ],
    ids=["same numbers", "other numbers", "nothing compiled"],
)
def test_compiled_layers_must_compute_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch, replacement: Any, ok: bool
) -> None:
    monkeypatch.setattr(torch.nn.Module, "compile", replacement)
    assert numbers.compiled(CPU).ok is ok


def test_graphs_that_torch_skipped_are_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.utils import counters

    def skipping(self: torch.nn.Module, **_: Any) -> None:
        counters["stats"]["unique_graphs"] += 1
        counters["inductor"]["cudagraph_skips"] += 1

    monkeypatch.setattr(torch.nn.Module, "compile", skipping)
    found = numbers.compiled(CPU)
    assert found.ok
    assert re.search(r"; CUDA graphs that torch skipped: [1-9]", found.measured)


# -- steps -------------------------------------------------------------------------------------------------------------


def test_attention_runs_on_a_fused_kernel_and_the_plain_one_is_named(home: Path) -> None:
    found = steps.attention_kernels(CPU)
    assert found.ok
    assert found.measured.startswith("gpt: flash on a CPU; bert packed: flash on a CPU; bert padded")
    with sdpa_kernel(SDPBackend.MATH):
        slow = steps.attention_kernels(CPU)
    assert slow.ok is False
    assert slow.measured.startswith("gpt: the plain one")


def test_a_step_that_asks_for_a_number_is_found_with_its_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = steps.host_waits(CPU)
    assert found.ok, found
    loss = ClassificationTask.loss

    def peeking(self: ClassificationTask, *arguments: Any) -> Any:
        found = loss(self, *arguments)
        found.item()
        return found

    monkeypatch.setattr(ClassificationTask, "loss", peeking)
    found = steps.host_waits(CPU)
    assert found.ok is False
    assert found.measured.startswith("bert packed: _local_scalar_dense waits for the device at ")
    assert "unit/test_proof.py" in found.measured


def test_clocks_that_disagree_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps.event_clock(CPU).ok
    seconds = Stopwatch.seconds
    monkeypatch.setattr(Stopwatch, "seconds", lambda self: seconds(self) / 2)
    assert steps.event_clock(CPU).ok is False


# -- memory ------------------------------------------------------------------------------------------------------------


def test_out_of_memory_is_recognised_and_the_next_step_trains(home: Path) -> None:
    found = memory.out_of_memory(CPU)
    assert found.ok
    assert found.measured.startswith("out of memory: asked for 36028797018963968 bytes")


@pytest.mark.parametrize(
    ("forced", "held", "words"),
    [
        (RuntimeError("an error of its own kind"), 0, "not recognised: RuntimeError: an error of its own kind"),
        (None, 0, "a request that cannot be met was met"),
        (MemoryError(), memory.SLACK + 1, "more are held after it"),
    ],
)
def test_out_of_memory_that_is_misnamed_met_or_leaks_is_found(
    home: Path, monkeypatch: pytest.MonkeyPatch, forced: Any, held: int, words: str
) -> None:
    amounts = iter([0, held])
    monkeypatch.setattr(memory, "_force", lambda _: forced)
    monkeypatch.setattr(memory, "_held", lambda _: next(amounts))
    found = memory.out_of_memory(CPU)
    assert found.ok is False
    assert words in found.measured


def test_the_largest_batch_and_the_times_of_its_steps_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = memory.largest_batches(CPU)
    assert found.ok
    assert {"GPT-01 batch", "BERT-base batch", "GPT-01 seconds at 1", "BERT-base seconds at 4"} <= found.figures.keys()
    full = torch.OutOfMemoryError("CUDA out of memory.")

    def step(self: memory.Trial, batch: int) -> None:
        raise full

    monkeypatch.setattr(memory.Trial, "_step", step)
    nothing = memory.largest_batches(CPU)
    assert nothing.ok is False
    assert nothing.figures["GPT-01 batch"] == 0
    full = RuntimeError("another error")
    with pytest.raises(RuntimeError, match="another error"):
        memory.largest_batches(CPU)


# -- the machine -------------------------------------------------------------------------------------------------------


def test_the_build_is_judged_by_driver_wheel_and_card(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.build(CPU).ok is None  # not on a CPU
    a100 = CardFacts("0", "A100", (8, 0))
    monkeypatch.setattr(machine, "torch_facts", lambda: TorchFacts("2.13.0+cu130", "13.0", ("sm_80",), 1))
    monkeypatch.setattr(machine, "driver_and_cards", lambda: Driver("580.65", (a100,)))
    assert machine.build(CPU).ok
    monkeypatch.setattr(machine, "driver_and_cards", lambda: Driver("535.183", (a100,)))
    found = machine.build(CPU)
    assert found.ok is False
    assert "torch==2.13.0+cu126" in found.fix


def test_another_card_that_torch_cannot_use_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    a100, old = CardFacts("0", "A100", (8, 0)), CardFacts("1", "GT 710", (3, 5))
    monkeypatch.setattr(machine, "torch_facts", lambda: TorchFacts("2.13.0+cu130", "13.0", ("sm_80",), 1))
    monkeypatch.setattr(machine, "driver_and_cards", lambda: Driver("580.65", (a100, old)))
    monkeypatch.setattr(machine, "read_cards", lambda: [Card(0, uuid="GPU-a"), Card(1, uuid="GPU-b")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    assert machine.build(CPU).ok
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert "no kernels for GPU 1 (GT 710" in machine.build(CPU).measured


def test_another_card_than_the_one_asked_for_is_found() -> None:
    asked, nvml = "GPU-aa", Card(0, uuid="GPU-aa", name="A100", memory_total=80 << 30)
    seen = machine.Seen("aa", "A100", 79 << 30)
    assert machine.compare_cards(asked, [seen], nvml).ok
    wrong = {
        "torch shows bb": ([seen._replace(uuid="bb")], nvml),
        "torch H100": ([seen._replace(name="H100")], nvml),
        "torch 40.0 GiB": ([seen._replace(memory=40 << 30)], nvml),
        "torch sees 2 cards": ([seen, seen], nvml),
        "NVML knows no card": ([seen], None),
    }
    for words, (by_torch, by_nvml) in wrong.items():
        found = machine.compare_cards(asked, by_torch, by_nvml)
        assert found.ok is False
        assert words in found.measured


# -- several cards -----------------------------------------------------------------------------------------------------


def test_cards_that_reach_each_other_one_way_only_are_found() -> None:
    assert together.judge_peers([], 2).measured == "all 2 cards reach each other"
    neither = together.judge_peers([(0, 1), (1, 0)], 2)
    assert (neither.ok, "slower but right" in neither.fix) == (True, True)
    assert together.judge_peers([(0, 1)], 2) == Finding(False, "one way only, not 0 -> 1", "each way or neither")


def test_wrong_sums_are_found_and_a_slow_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = together.judge_sums(RanksSaid(latency=1e-5, bandwidth=1e9), 2, "cuda")
    assert right.ok
    assert "side by side" in right.fix
    assert right.figures == {"ranks": 2.0, "latency": 1e-5, "bandwidth": 1e9}
    assert together.judge_sums(RanksSaid(wrong=1), 2, "cuda").ok is False
    monkeypatch.setattr(rank_work.dist, "all_reduce", lambda values, **_: values.mul_(3))
    monkeypatch.setattr(Ranks, "agree", lambda self, number: number)
    assert rank_work.sums(Ranks(0, 2, CPU)).wrong == 0  # 1 + 2 where this rank brings 1
    monkeypatch.setattr(rank_work.dist, "all_reduce", lambda values, **_: values.mul_(2))
    assert rank_work.sums(Ranks(0, 2, CPU)).wrong == len(rank_work.SIZES["cpu"]) + 1


def test_a_failing_rank_must_be_named_in_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    assert together.judge_end(folder).measured == "the run has no end on record"
    outcomes.write(folder, 1, Outcome("failed", "error", "rank 1: told to fail", t=100.0))

    def ended(message: str, at: float, state: str = "failed") -> Finding:
        folder.write(RunState(state=state, message=message, ended=at))
        return together.judge_end(folder)

    assert ended("rank 1: told to fail", 101.0).ok
    assert ended("rank 1: told to fail", 131.0).ok is False
    assert ended("rank 0: Connection closed by peer", 101.0).ok is False
    assert ended("completed", 101.0, "finished").ok is False
    outcomes.path_of(folder, 1).unlink()
    assert "did not say" in ended("rank 1: told to fail", 101.0).measured


def test_a_run_records_its_cards_driver_and_proof(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    monkeypatch.setattr(results, "driver_version", lambda: "550.54")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A100")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    two = Ranks(0, 2, torch.device("cuda:0"))
    assert results.device_facts(two) == DeviceFacts("cuda", "A100", ["GPU-a", "GPU-b"], "550.54", None)
    proof = keep_card(
        CardIdentity(process.host(), "GPU-b", "550.54", package_versions()["torch"]),
        "A100",
        [CheckResult(name, True, "") for name in ALONE],
    )
    one = Ranks(0, 1, torch.device("cuda:1"))
    assert results.device_facts(one) == DeviceFacts("cuda", "A100", ["GPU-b"], "550.54", proof.when)
    assert results.device_facts(Ranks(0, 1, CPU)).uuids == []


# -- one after another -------------------------------------------------------------------------------------------------


def test_whatever_a_check_raises_is_its_result_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: torch.device) -> Finding:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(steps, "event_clock", broken)
    result = make(CHECKS["clock"], CPU)
    assert (result.ok, result.fix) == (False, CHECKS["clock"].fix)
    assert "illegal memory access" in result.measured


STAND_IN = """
import os, signal, sys, time
for name in sys.argv[1:]:
    if name == "card":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "batch":
        print('{"name": "batch", "ok": false, "measured": "not even 1"}', flush=True)
        break
    if name == "clock":
        print("no answer from the card", file=sys.stderr, flush=True)
        time.sleep(600)
    print('{"name": "%s", "ok": true, "measured": "by %d"}' % (name, os.getpid()), flush=True)
"""


def test_a_check_that_crashes_or_hangs_does_not_end_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(conduct, "COMMAND", [sys.executable, str(script)])
    monkeypatch.setattr(conduct, "STARTING", 20.0)
    monkeypatch.setitem(CHECKS, "clock", CHECKS["clock"]._replace(seconds=0.3))
    names = ["build", "card", "waits", "clock", "resume", "batch", "compile"]
    found = {one.name: one for one in conduct.make_checks(names, "cpu", [])}
    assert [one.ok for one in found.values()] == [True, False, True, False, True, False, True]
    assert found["card"].measured == "its process was killed by SIGSEGV"
    assert found["clock"].measured == "not done after 0 s (no answer from the card)"
    assert found["clock"].fix == CHECKS["clock"].fix
    assert (
        len({found[name].measured for name in ("build", "waits", "resume", "compile")}) == 4
    )  # a process of its own each


def test_every_check_has_a_function_and_a_fix_and_can_be_chosen() -> None:
    from pkgutil import resolve_name

    for check in CHECKS.values():
        assert check.fix
        assert check.function == "" or callable(resolve_name(f"oelm_core.proof.{check.function}"))
    assert chosen([]) == [*ALONE, *TOGETHER, "signal"]
    assert chosen(["clock", "build"]) == ["build", "clock"]
    with pytest.raises(LabError, match=r"--check clok: no such check\. Did you mean .?clock"):
        chosen(["clok"])


def test_what_is_trained_is_small_and_freezes_query_and_key(home: Path) -> None:
    trained = subjects.train("gpt", CPU, "train.max_steps=2")
    names = trained.mean_gradients()
    assert not [name for name in names if "q_proj" in name or "k_proj" in name]
    assert [name for name in names if "v_proj" in name]
