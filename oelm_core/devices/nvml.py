"""NVIDIA cards through NVML: every question may fail by itself, and one dead card never hides the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
from msgspec.structs import replace

from oelm_core.devices.card import Card, CardProcess

_UNANSWERED = 1 << 62
"""NVML says "not available" for a size with the largest numbers there are."""
_open = False
_IDLE_REASONS = 0x1 | 0x2  # the card is idle, or runs at clocks an administrator set: neither is throttling


class NoDriver(Exception):
    """There is no usable NVIDIA driver; the sentence says whether it is absent or broken."""

    def __init__(self, message: str, broken: bool) -> None:
        super().__init__(message)
        self.broken = broken


def read_cards() -> list[Card]:
    """Every card and MIG instance. Raises NoDriver."""
    global _open
    try:
        if not _open:  # kept open: without persistence mode every nvmlInit wakes the cards for seconds
            pynvml.nvmlInit()
            _open = True
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        if _open:
            _open = False  # the driver may have been reloaded: start afresh next time
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
        raise _no_driver(error) from None
    return [card for index in range(count) for card in _read(index)]


def driver_version() -> str | None:
    """535.183.01; None where there is no usable driver."""
    with contextlib.suppress(NoDriver, pynvml.NVMLError):
        read_cards()  # opens it
        return _text(pynvml.nvmlSystemGetDriverVersion())
    return None


def _no_driver(error: Any) -> NoDriver:
    code = error.value
    if code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
        return NoDriver("No NVIDIA driver here.", broken=False)
    if code == getattr(pynvml, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18):
        return NoDriver(
            "The NVIDIA driver and its library differ in version; reboot or reload the driver.", broken=True
        )
    return NoDriver(f"The NVIDIA driver does not answer: {_words(error)}.", broken=True)


def _read(index: int) -> Iterator[Card]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        yield Card(index, error=_words(error))
        return
    card = _describe(handle, index, None)
    instances = list(_instances(handle, index))
    if instances:
        card = replace(card, is_mig_parent=True)
    yield card
    yield from instances


def _instances(handle: Any, index: int) -> Iterator[Card]:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
        if current != pynvml.NVML_DEVICE_MIG_ENABLE:
            return
        count = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:
        return
    for number in range(count):
        with contextlib.suppress(pynvml.NVMLError):  # places on the card that hold no instance
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            yield _describe(instance, index, number)


class _Questions:
    """Asks one thing after another; remembers the first refusal that is worth a sentence."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.lost = False

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        if self.lost:  # a card off the bus answers nothing any more, and slowly
            return None
        try:
            return question(*arguments)
        except pynvml.NVMLLibraryMismatchError:
            return None  # an older driver that does not know this question
        except pynvml.NVMLError as error:
            code = error.value
            if code in (pynvml.NVML_ERROR_GPU_IS_LOST, getattr(pynvml, "NVML_ERROR_RESET_REQUIRED", 16)):
                self.lost = True
                self.error = _words(error)
            elif code not in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                self.error = self.error or _words(error)
            return None


def _describe(handle: Any, index: int, mig: int | None) -> Card:
    questions = _Questions()
    ask = questions.ask
    uuid, name = _text(ask(pynvml.nvmlDeviceGetUUID, handle)), _text(ask(pynvml.nvmlDeviceGetName, handle))
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle) if mig is None else None
    temperature = ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU) if mig is None else None
    power = ask(pynvml.nvmlDeviceGetPowerUsage, handle) if mig is None else None
    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle) if mig is None else None
    reasons = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) if mig is None else None
    running = ask(_running, handle) or []
    if questions.lost:
        return Card(index, uuid=uuid, name=name, mig=mig, error=questions.error)
    return Card(
        index=index,
        uuid=uuid,
        name=name,
        utilisation=None if rates is None else int(rates.gpu),
        memory_used=None if memory is None else _size(memory.used),
        memory_total=None if memory is None else _size(memory.total),
        temperature=None if temperature is None else int(temperature),
        power=None if power is None else power / 1000,
        throttled=None if reasons is None else bool(reasons & ~_IDLE_REASONS),
        processes=tuple(CardProcess(int(one.pid), _size(one.usedGpuMemory)) for one in running),
        error=questions.error,
        mig=mig,
        power_limit=None if limit is None else limit / 1000,
    )


def _running(handle: Any) -> Any:
    """Compute processes, by the newest question the driver understands."""
    try:
        return pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLLibraryMismatchError:
        return pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)


def _size(value: Any) -> int | None:
    return None if value is None or int(value) >= _UNANSWERED else int(value)


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _words(error: Any) -> str:
    return str(error).removeprefix("NVML: ").strip()
