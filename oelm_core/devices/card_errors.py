"""What CUDA, cuBLAS, cuDNN and NCCL say when they fail, as a reason of ours and what to do next."""

from __future__ import annotations

import re
from typing import NamedTuple


class CardError(NamedTuple):
    """A failure of a card, or of what runs on it."""

    reason: str
    """oom, gpu_fault, nccl or error."""
    words: str
    """Its own words, one line."""
    advice: str
    """What to do next, as the end of a sentence. Empty for oom: what to lower depends on the recipe."""


class _Kind(NamedTuple):
    reason: str
    pattern: re.Pattern[str]
    advice: str = ""


def _any_of(*spellings: str) -> re.Pattern[str]:
    return re.compile("|".join(spellings), re.IGNORECASE)


# The first that matches counts: NCCL reports a full or broken card in words of its own around CUDA's.
_KINDS = (
    _Kind(
        "oom",
        _any_of(
            r"CUDA out of memory",
            r"CUDA (?:driver )?error: out of memory",
            r"cudaErrorMemoryAllocation",
            r"CUDA_ERROR_OUT_OF_MEMORY",
            r"(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER)_STATUS_ALLOC_FAILED",
            r"CUDNN_STATUS_INTERNAL_ERROR_\w+_ALLOCATION_FAILED",
            r"(?:NCCL|CUDA failure|CUDA calloc)[^\n]*out of memory",
            r"DefaultCPUAllocator: not enough memory",
            r"can't allocate memory",  # torch's allocator for the host, elsewhere
        ),
    ),
    _Kind(  # a check that the kernel's own author wrote: wrong input, whichever card it runs on
        "error",
        _any_of(r"device-side assert", r"cudaErrorAssert\b"),
        "a kernel was given what it does not take, such as a label or token id outside its table: a bug and no fault of"
        " the card; the same run with --device cpu names the line",
    ),
    _Kind(
        "error",
        _any_of(r"no kernel image is available", r"CUDA driver version is insufficient", r"driver .{0,20}is too old"),
        "this torch is not built for this card or driver; `oelm doctor` prints the install line that is",
    ),
    _Kind(
        "gpu_fault",
        _any_of(
            r"uncorrectable (?:ECC|NVLink)",
            r"cudaErrorECCUncorrectable",
            r"cudaErrorNvlinkUncorrectable",
            r"\bXid \(PCI",
            r"GPU is lost",
            r"fallen off the bus",
            r"illegal memory access was encountered",
            r"an illegal instruction was encountered",
            r"cudaErrorIllegal(?:Address|Instruction)",
            r"misaligned address",
            r"invalid program counter",
            r"hardware stack error",
            r"unspecified launch failure",
            r"cudaErrorLaunchFailure",
            r"launch timed out",
            r"(?:CUBLAS|CUDNN)_STATUS_EXECUTION_FAILED",
            r"CUDA error: unknown error",
        ),
        "resume the run to continue from its newest checkpoint on another card, and look for Xid lines in `dmesg`;"
        " if it fails there too it is a bug, not the card",
    ),
    _Kind(
        "nccl",
        _any_of(
            r"NCCL (?:error|failure|timeout)",
            r"NCCL communicator was aborted",
            r"\bnccl(?:UnhandledCuda|System|Internal|Remote|InvalidArgument|InvalidUsage)(?:Error)?\b",
            r"Watchdog caught collective operation timeout",
            r"ProcessGroupNCCL[^\n]*(?:timed out|timeout|abort)",
        ),
        "the cards of this run lost touch: resume it; if it happens again set NCCL_DEBUG=INFO, or NCCL_P2P_DISABLE=1"
        " where cards cannot reach each other's memory, or leave out --per-run",
    ),
    _Kind(
        "error",
        _any_of(r"CUBLAS_STATUS_NOT_INITIALIZED"),
        "often the card's memory was full when cuBLAS was to start: lower train.batch_size and raise train.accumulate"
        " by the same factor, and see with `oelm gpus` who else is on the card",
    ),
    _Kind(
        "error",
        _any_of(r"(?:CUBLAS|CUDNN)_STATUS_INTERNAL_ERROR\b"),
        "a library of the card failed inside: resume the run; if it fails again, `oelm doctor` says whether torch and"
        " driver fit, and a smaller train.batch_size whether memory was short",
    ),
    _Kind(
        "error",
        _any_of(r"all CUDA-capable devices are busy or unavailable", r"cudaErrorDevicesUnavailable"),
        "another process has the card for itself, or the card needs a reset: `oelm gpus` shows who is on it,"
        " `nvidia-smi -q -d COMPUTE` its compute mode",
    ),
)


def card_error(text: str) -> CardError | None:
    """What an error's text, or the end of a log, says of a card; None where it says nothing of one."""
    for kind in _KINDS:
        found = kind.pattern.search(text)
        if found is not None:
            return CardError(kind.reason, _line_around(text, found.start()), kind.advice)
    return None


def _line_around(text: str, at: int) -> str:
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    line = text[start : end if end >= 0 else None].strip().rstrip(".")
    return line if len(line) <= 200 else line[:197] + "..."
