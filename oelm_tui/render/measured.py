"""The Timing, Samples and Checks tabs: what was measured, generated and verified."""

from __future__ import annotations

from collections.abc import Sequence

from oelm_core import formatting
from oelm_core.method.facts import Census, Orthogonality
from oelm_core.runs.schema import Attempt, FrozenProof, Notice, PeakMemory, Result, Sample, Seconds, StepTiming
from oelm_tui import glyphs
from oelm_tui.glyphs import bar
from oelm_tui.snapshots.detail import Detail
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.text import Line, heading, named, wrapped

_ROLES = {True: "ok", False: "bad"}


def timing_lines(detail: Detail) -> list[Line]:
    lines = _result_lines(detail.result) if detail.result else []
    if not lines:
        when = "come when the run ends" if detail.view.is_live else "were not written: it ended before its last step"
        lines = [*_live_timing(detail.view), [], [(f"The protocol's figures {when}.", "faint")]]
    return lines + _attempt_lines(detail.attempts) + _notice_lines(detail.notice)


def _notice_lines(notice: Notice | None) -> list[Line]:
    if notice is None or not (notice.command or notice.problem):
        return []
    return [[], heading("Its end"), named("notify", notice.problem or "done", role="bad" if notice.problem else "ok")]


def _result_lines(result: Result) -> list[Line]:
    """What the worker measured; an import may know only some of it."""
    lines: list[Line] = []
    timing, seconds, memory = result.timing, result.seconds, result.memory
    if timing != StepTiming():
        lines += [heading("Time per optimiser step, by the protocol")]
        spread = f" ± {formatting.step_time(timing.step_time_std)}" if timing.step_time_std is not None else ""
        wait = timing.data_wait_share
        lines += [
            named("mean", formatting.step_time(timing.step_time_mean) + spread),
            named("median", formatting.step_time(timing.step_time_median)),
            named("p95", formatting.step_time(timing.step_time_p95)),
            named("p99", formatting.step_time(timing.step_time_p99)),
            named("steps measured", _or_unknown(timing.steps_measured)),
            named("outliers dropped", _or_unknown(timing.outliers_dropped)),
            named("tokens", f"{formatting.count(timing.tokens_per_s)}/s"),
            named("examples", f"{formatting.count(timing.examples_per_s)}/s"),
            named("waiting for data", "?" if wait is None else f"{wait * 100:.1f} %"),
        ]
    if seconds != Seconds():
        lines += [[], heading("Wall clock")]
        parts = {"total": seconds.total, "training": seconds.training, "validation": seconds.validation}
        lines += [named(name, formatting.duration(value)) for name, value in parts.items() if value is not None]
    if result.reached:
        lines += [[], heading("First reached")]
        for mark, hit in result.reached.items():
            words = f"step {hit.step} after {formatting.duration(hit.seconds)}" if hit else "never"
            lines.append(named(f"{float(mark) * 100:g} %", words))
    if memory != PeakMemory():
        lines += [[], heading("Memory, at most")]
        lines.append(named("device", formatting.size_short(memory.device_peak) if memory.device_peak else "-"))
        lines.append(named("host", formatting.size_short(memory.host_peak)))
    return lines


def _or_unknown(count: int | None) -> str:
    return "?" if count is None else str(count)


def _live_timing(view: RunView) -> list[Line]:
    last = view.last.values if view.last else {}
    lines: list[Line] = [heading("So far")]
    lines.append(named("pace", f"{formatting.rate(view.pace)} with evaluations" if view.pace else "not known yet"))
    for key, title in (("step_time", "step"), ("data_wait", "waiting for data")):
        if key in last:
            lines.append(named(title, formatting.step_time(last[key])))
    for key, title in (("tokens_per_s", "tokens"), ("examples_per_s", "examples")):
        if key in last:
            lines.append(named(title, f"{formatting.count(last[key])}/s"))
    return lines


def _attempt_lines(attempts: Sequence[Attempt]) -> list[Line]:
    if not attempts:
        return []
    lines: list[Line] = [[], heading("Attempts")]
    for number, attempt in enumerate(attempts, 1):
        start, end = attempt.started, attempt.ended
        took = "now" if start is None or end is None else formatting.duration(end - start)
        parts = [f"from step {attempt.from_step or 0}", took, attempt.host, ", ".join(attempt.devices), attempt.reason]
        lines.append(named(str(number), f" {glyphs.signs.dot} ".join(part for part in parts if part)))
    return lines


def sample_lines(samples: Sequence[Sample], width: int) -> list[Line]:
    """Generated text, newest step first."""
    if not samples:
        return wrapped("No samples: only language models write them, at evaluations.", width, "faint", indent="")
    lines: list[Line] = []
    step = None
    for sample in reversed(samples):
        if sample.step != step:
            step = sample.step
            lines += [[], heading(f"step {step}")] if lines else [heading(f"step {step}")]
        prompt, text = _harmless(sample.prompt), _harmless(sample.text)
        if prompt:
            lines += wrapped(prompt, width, "key")
        lines += wrapped(text.removeprefix(prompt).strip() or "(nothing)", width)
        lines.append([])
    return lines


def _harmless(text: str) -> str:
    """Generated text may hold any character: none may move the cursor."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def check_lines(detail: Detail) -> list[Line]:
    checks = detail.checks
    if checks is None:
        return [[("No checks.json yet: the worker writes it before its first step.", "faint")]]
    lines: list[Line] = [heading("Is it what it says?")]
    if checks.qk_untouched is not None:
        lines.append(_baseline_line(checks.qk_untouched, detail.view.run.method == "baseline"))
    worst, tolerance = checks.orthogonality.worst, checks.orthogonality.tolerance
    if worst is not None and tolerance is not None:
        fine = worst < tolerance
        words = f"{_sign(fine)} worst {worst:.1e}, allowed {tolerance:.0e}"
        lines.append(named("orthogonal heads", words, role=_ROLES[fine]))
    if detail.result and detail.result.frozen != FrozenProof():
        same = bool(detail.result.frozen.unchanged)
        words = "hash equal before and after" if same else "HASH CHANGED during training"
        lines.append(named("frozen weights", f"{_sign(same)} {words}", role=_ROLES[same]))
    scale = checks.qk_scale.mean_row_norm
    if scale is not None:
        lines.append(named("Q/K row norm", f"{scale:.3f} on average"))
    return lines + _census_lines(checks.census) + _layer_lines(checks.orthogonality)


def _baseline_line(untouched: bool, is_baseline: bool) -> Line:
    """Only a baseline has to be a true one; of another arm it is no fault that Q and K were made anew."""
    words = "as loaded" if untouched else "re-initialised"
    if is_baseline:
        return named("untouched baseline", f"{_sign(untouched)} Q/K {words}", role=_ROLES[untouched])
    return named("Q/K at the start", words)


def _census_lines(census: Census) -> list[Line]:
    total = census.total
    if not total:
        return []
    lines: list[Line] = [[], heading("Parameters")]
    for name, value in (("total", total), ("trainable", census.trainable or 0), ("frozen", census.frozen or 0)):
        lines.append(named(name, f"{value:>13,}  {value / total * 100:5.1f} %"))
    if census.by_component:
        lines.append([])
    for name, part in census.by_component.items():
        frozen = f"  frozen {part.frozen:,}" if part.frozen else ""
        lines.append(named(name, f"{part.total:>13,} {bar(part.total / total, 12)}{frozen}"))
    return lines


def _layer_lines(orthogonality: Orthogonality) -> list[Line]:
    if not orthogonality.layers:
        return []
    lines: list[Line] = [[], heading("Orthogonality by layer: worst head, and across heads")]
    for layer in orthogonality.layers:
        words = f"within {max(layer.within):.1e}" if layer.within else ""
        words += f"   across {layer.across:.2f}" if layer.across is not None else ""
        lines.append(named(f"layer {layer.layer} {layer.projection}", words))
    return lines


def _sign(good: bool) -> str:
    return glyphs.signs.good if good else glyphs.signs.bad
