"""The Timing, Samples and Checks tabs: what was measured, generated and verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oelm_core import formatting
from oelm_tui import glyphs
from oelm_tui.glyphs import bar
from oelm_tui.snapshots.detail import Detail
from oelm_tui.text import Line, heading, named, wrapped

_ROLES = {True: "ok", False: "bad"}


def timing_lines(detail: Detail) -> list[Line]:
    result = detail.files.get("result") or {}
    timing = _part(result, "timing")
    lines: list[Line] = []
    if timing:
        lines += [heading("Time per optimiser step, by the protocol")]
        mean, std = timing.get("step_time_mean"), timing.get("step_time_std")
        spread = f" ± {formatting.step_time(std)}" if std is not None else ""
        lines.append(named("mean", formatting.step_time(mean) + spread))
        for key in ("median", "p95", "p99"):
            lines.append(named(key, formatting.step_time(timing.get(f"step_time_{key}"))))
        lines.append(named("steps measured", f"{timing.get('steps_measured', '?')}"))
        lines.append(named("outliers dropped", f"{timing.get('outliers_dropped', '?')}"))
        lines.append(named("tokens", f"{formatting.count(timing.get('tokens_per_s'))}/s"))
        lines.append(named("examples", f"{formatting.count(timing.get('examples_per_s'))}/s"))
        wait = timing.get("data_wait_share")
        lines.append(named("waiting for data", f"{wait * 100:.1f} %" if isinstance(wait, (int, float)) else "?"))
    seconds = _part(result, "seconds")
    if seconds:
        lines += [[], heading("Wall clock")]
        lines += [
            named(key, formatting.duration(value)) for key, value in seconds.items() if isinstance(value, (int, float))
        ]
    reached = _part(result, "reached")
    if reached:
        lines += [[], heading("First reached")]
        for mark, hit in reached.items():
            words = f"step {hit.get('step')} after {formatting.duration(hit.get('seconds'))}" if hit else "never"
            lines.append(named(f"{float(mark) * 100:g} %", words))
    memory = _part(result, "memory")
    if memory:
        lines += [[], heading("Memory, at most")]
        lines.append(
            named("device", formatting.size_short(memory.get("device_peak")) if memory.get("device_peak") else "-")
        )
        lines.append(named("host", formatting.size_short(memory.get("host_peak"))))
    if not lines:
        when = "come when the run ends" if detail.view.is_live else "were not written: it ended before its last step"
        lines = [*_live_timing(detail), [], [(f"The protocol's figures {when}.", "faint")]]
    return lines + _attempt_lines(detail)


def _live_timing(detail: Detail) -> list[Line]:
    last, view = detail.view.last.values if detail.view.last else {}, detail.view
    lines: list[Line] = [heading("So far")]
    lines.append(named("pace", f"{formatting.rate(view.pace)} with evaluations" if view.pace else "not known yet"))
    for key, title in (("step_time", "step"), ("data_wait", "waiting for data")):
        if key in last:
            lines.append(named(title, formatting.step_time(last[key])))
    for key, title in (("tokens_per_s", "tokens"), ("examples_per_s", "examples")):
        if key in last:
            lines.append(named(title, f"{formatting.count(last[key])}/s"))
    return lines


def _attempt_lines(detail: Detail) -> list[Line]:
    if not detail.attempts:
        return []
    lines: list[Line] = [[], heading("Attempts")]
    for number, attempt in enumerate(detail.attempts, 1):
        start, end = attempt.get("started"), attempt.get("ended")
        known = isinstance(start, (int, float)) and isinstance(end, (int, float))
        took = formatting.duration(end - start) if known else "now"  # type: ignore[operator]
        parts = [f"from step {attempt.get('from_step', 0)}", took, str(attempt.get("host") or "")]
        devices = attempt.get("devices")
        if isinstance(devices, list) and devices:
            parts.append(", ".join(map(str, devices)))
        if attempt.get("reason"):
            parts.append(str(attempt["reason"]))
        lines.append(named(str(number), f" {glyphs.signs.dot} ".join(part for part in parts if part)))
    return lines


def sample_lines(samples: tuple[Mapping[str, Any], ...], width: int) -> list[Line]:
    """Generated text, newest step first."""
    if not samples:
        return wrapped("No samples: only language models write them, at evaluations.", width, "faint", indent="")
    lines: list[Line] = []
    step = None
    for sample in reversed(samples):
        if sample.get("step") != step:
            step = sample.get("step")
            lines += [[], heading(f"step {step}")] if lines else [heading(f"step {step}")]
        prompt = str(sample.get("prompt") or "")
        text = _harmless(str(sample["text"]))
        body = text[len(prompt) :] if prompt and text.startswith(prompt) else text
        if prompt:
            lines += wrapped(_harmless(prompt), width, "key")
        lines += wrapped(body.strip() or "(nothing)", width)
        lines.append([])
    return lines


def _harmless(text: str) -> str:
    """Generated text may hold any character: none may move the cursor."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def check_lines(detail: Detail) -> list[Line]:
    checks, result = detail.files.get("checks") or {}, detail.files.get("result") or {}
    if not checks:
        return [[("No checks.json yet: the worker writes it before its first step.", "faint")]]
    lines: list[Line] = [heading("Is it what it says?")]
    if checks.get("true_baseline") is not None:
        lines.append(_baseline_line(bool(checks["true_baseline"]), detail.view.run.method == "baseline"))
    orthogonality = _part(checks, "orthogonality")
    worst, tolerance = orthogonality.get("worst"), orthogonality.get("tolerance")
    if isinstance(worst, (int, float)) and isinstance(tolerance, (int, float)):
        fine = worst < tolerance
        words = f"{_sign(fine)} worst {worst:.1e}, allowed {tolerance:.0e}"
        lines.append(named("orthogonal heads", words, role=_ROLES[fine]))
    frozen = _part(result, "frozen")
    if frozen:
        same = bool(frozen.get("unchanged"))
        words = "hash equal before and after" if same else "HASH CHANGED during training"
        lines.append(named("frozen weights", f"{_sign(same)} {words}", role=_ROLES[same]))
    scale = _part(checks, "qk_scale").get("mean_row_norm")
    if isinstance(scale, (int, float)):
        lines.append(named("Q/K row norm", f"{scale:.3f} on average"))
    return lines + _census_lines(_part(checks, "census")) + _layer_lines(orthogonality)


def _baseline_line(untouched: bool, is_baseline: bool) -> Line:
    """Only a baseline has to be a true one; of another arm it is no fault that Q and K were made anew."""
    words = "as loaded" if untouched else "re-initialised"
    if is_baseline:
        return named("true baseline", f"{_sign(untouched)} Q/K {words}", role=_ROLES[untouched])
    return named("Q/K at the start", words)


def _census_lines(census: Mapping[str, Any]) -> list[Line]:
    if not census.get("total"):
        return []
    total = census["total"]
    lines: list[Line] = [[], heading("Parameters")]
    for key in ("total", "trainable", "frozen"):
        value = census.get(key) or 0
        lines.append(named(key, f"{value:>13,}  {value / total * 100:5.1f} %"))
    components = census.get("by_component")
    if isinstance(components, Mapping) and components:
        lines.append([])
        for name, part in components.items():
            if isinstance(part, Mapping):
                share = (part.get("total") or 0) / total
                frozen = f"  frozen {part['frozen']:,}" if part.get("frozen") else ""
                lines.append(named(str(name), f"{part.get('total', 0):>13,} {bar(share, 12)}{frozen}"))
    return lines


def _layer_lines(orthogonality: Mapping[str, Any]) -> list[Line]:
    layers = orthogonality.get("layers")
    if not isinstance(layers, list) or not layers:
        return []
    lines: list[Line] = [[], heading("Orthogonality by layer: worst head, and across heads")]
    for layer in layers:
        if isinstance(layer, Mapping):
            within = [value for value in layer.get("within") or [] if isinstance(value, (int, float))]
            name = f"layer {layer.get('layer')} {layer.get('projection')}"
            across = layer.get("across")
            words = f"within {max(within):.1e}" if within else ""
            lines.append(named(name, words + (f"   across {across:.2f}" if isinstance(across, (int, float)) else "")))
    return lines


def _part(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _sign(good: bool) -> str:
    return glyphs.signs.good if good else glyphs.signs.bad
