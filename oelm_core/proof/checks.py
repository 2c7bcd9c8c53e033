"""The list of checks: what each proves, where it is, and what to do when it fails. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oelm_core.errors import BadInput, did_you_mean


class Check(NamedTuple):
    """One check. Its function takes a torch.device and gives a `Finding`."""

    name: str
    about: str
    function: str
    """`module:function` inside this package, imported in the process that makes the check; "" for what needs none."""
    fix: str
    together: bool = False
    """About several cards at once."""
    in_job: bool = False
    """Made in a job of Slurm only."""
    seconds: float = 120.0
    """After so long its process is ended and the check has failed."""


WRONG_NUMBERS = (
    "a card that computes wrongly must not train: look for Xid and ECC lines in dmesg, run `nvidia-smi -q -d ECC`,"
    " try another build of torch"
)
CHECKS = {
    one.name: one
    for one in (
        Check(
            "build",
            "driver, wheel and architecture fit",
            "machine:build",
            "`oelm doctor` prints the line that installs the right torch",
        ),
        Check(
            "card",
            "NVML's card is torch's card",
            "machine:same_card",
            "unset CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES in your shell; after a driver update reboot",
        ),
        Check(
            "numbers-gpt",
            "20 steps of a GPT in each precision against a CPU",
            "numbers:gpt",
            WRONG_NUMBERS,
        ),
        Check(
            "numbers-bert",
            "20 steps of a BERT in each precision against a CPU",
            "numbers:bert",
            WRONG_NUMBERS,
        ),
        Check(
            "attention",
            "which kernel attention runs on",
            "steps:attention_kernels",
            "steps are right but slow and hold the whole attention map: use a newer torch, or bf16 or fp16",
        ),
        Check(
            "waits",
            "no step waits for the card, in every kind of batch",
            "steps:host_waits",
            "steps are right but slower: train with train.batching packed, and report the line named here",
        ),
        Check(
            "clock",
            "times by events against a synchronised clock",
            "steps:event_clock",
            "do not trust step times of this machine; look for other programs on the card (`oelm gpus`)",
        ),
        Check(
            "resume",
            "5 + 5 steps from a checkpoint against 10",
            "numbers:resume",
            "do not resume runs here; check the disk of OELM_HOME and report this",
        ),
        Check(
            "memory",
            "out of memory is recognised and recovered from",
            "memory:out_of_memory",
            "a run that runs out of memory may be misnamed here; report the error's words",
        ),
        Check(
            "batch",
            "the largest batch of GPT-01 and BERT-base",
            "memory:largest_batches",
            "the recipes' own batch does not fit: lower train.batch_size and raise train.accumulate by the same factor",
            seconds=240.0,
        ),
        Check(
            "compile",
            "train.compile gives the same numbers",
            "numbers:compiled",
            "leave train.compile off; it needs a C compiler (gcc) and triton beside torch",
            seconds=240.0,
        ),
        Check(
            "peers",
            "cards reach each other's memory",
            "together:peer_access",
            "cards that reach each other one way only are misconfigured: NCCL_P2P_DISABLE=1 until the BIOS is right",
            together=True,
        ),
        Check(
            "all-reduce",
            "sums over the cards, and how fast",
            "together:all_reduce",
            "NCCL_DEBUG=INFO says which way NCCL takes; NCCL_P2P_DISABLE=1 avoids a broken one",
            together=True,
        ),
        Check(
            "speed-up",
            "what these cards bring together",
            "",
            "make the checks `batch` and `all-reduce` of these cards, then this one",
            together=True,
        ),
        Check(
            "failing-rank",
            "a rank that fails is named within 30 s",
            "together:failing_rank",
            "a failed run may hold its cards: look for it with `oelm gpus`, end it with `oelm stop --now`",
            together=True,
            seconds=180.0,
        ),
        Check(
            "signal",
            "Slurm's signal before the time limit arrives",
            "",
            "at the time limit runs would lose the steps since their last checkpoint: `python` in slurm.yaml must not"
            " start a shell or a container that keeps signals to itself",
            in_job=True,
        ),
    )
}
ALONE = tuple(one.name for one in CHECKS.values() if not one.together and not one.in_job)
"""Of each card by itself."""
TOGETHER = tuple(one.name for one in CHECKS.values() if one.together)
"""Of several cards."""


def chosen(names: Iterable[str], among: Sequence[str] = tuple(CHECKS)) -> list[str]:
    """Checks in their order; no names mean all."""
    asked = list(names)
    for name in asked:
        if name not in CHECKS:
            known = ", ".join(CHECKS)
            raise BadInput(f"--check {name}: no such check.{did_you_mean(name, CHECKS)} There are: {known}.")
    return [name for name in among if not asked or name in asked]
