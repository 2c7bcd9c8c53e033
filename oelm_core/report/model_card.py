"""The model card of a published run, from its own records: what it is, its result, its audit, how it was made."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from oelm_core.compare import compare_runs
from oelm_core.compare.evidence import Evidence, gather
from oelm_core.compare.item_scores import score_run
from oelm_core.errors import NotFound
from oelm_core.formatting import count, duration, gap, interval, listed, metric_value, step_time, with_spread
from oelm_core.metric import metric_named
from oelm_core.plain_text import visible
from oelm_core.runs.evaluations import PublishAnswer, later_scores
from oelm_core.runs.store import list_runs

if TYPE_CHECKING:
    from oelm_core.compare.comparison import Group
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.runs.store import Run

PATHS = ("data.path", "data.tokenizer", "data.test", "model.path")
"""Settings that may name a place on somebody's machine: of these the card has only the last part."""
_PARTS = ("model", "data", "method", "train")


def model_card(run: Run, answer: PublishAnswer, folder: str, catalogue: Catalogue) -> str:
    """Markdown with the header that model hubs read. `folder`: what the published folder is called."""
    e = gather(run)
    group = _compared(run, e, catalogue)
    title = visible(str(e.config.get("title") or run.preset))
    sections = {
        "Loading": _loading(e, answer, folder),
        "Method": _method(e),
        "Data": _data(e),
        "Result": [*_result(e), *(_against_baseline(run, group) if group else [])],
        "Audit": _audit(run, e, group),
        "How it was made": _made(e),
    }
    lines = [*_header(e, answer), f"# {title}", "", _summary(e, answer)]
    for heading, content in sections.items():
        lines += ["", f"## {heading}", "", *content]
    return "\n".join(lines) + "\n"


def _header(e: Evidence, answer: PublishAnswer) -> list[str]:
    task = "text-generation" if e.config.get("data", {}).get("classes") is None else "text-classification"
    library = "transformers" if answer.loader == "transformers" else "oelm-lab"
    return ["---", f"library_name: {library}", f"pipeline_tag: {task}", "tags: [oelm, oelm-lab]", "---", ""]


def _summary(e: Evidence, answer: PublishAnswer) -> str:
    total, trainable, frozen = (e.values.get(name) for name in ("total", "trainable", "frozen"))
    sizes = (
        f", {count(total)} parameters, {count(trainable)} of them trained and {count(frozen)} frozen" if total else ""
    )
    return (
        f"{answer.network} ({visible(str(e.record.setting('model.name', 'a network')))}{sizes}), trained with seed"
        f" {e.seed} by OELM Lab as run `{e.id}`. These are the weights of step {answer.step}, its best validation."
    )


def _loading(e: Evidence, answer: PublishAnswer, folder: str) -> list[str]:
    if answer.loader == "transformers":
        auto = "AutoModelForCausalLM" if answer.network.endswith("CausalLM") else "AutoModelForSequenceClassification"
        code = [
            f"from transformers import {auto}, AutoTokenizer",
            "",
            f'model = {auto}.from_pretrained("{folder}")',
            f'tokenizer = AutoTokenizer.from_pretrained("{folder}")',
        ]
        return ["```python", *code, "```"]
    code = ["from oelm_core import load_published", f'model, tokenizer = load_published("{folder}")']
    why = (
        "The network is not one of transformers' own, so it needs the package oelm-lab. No code of this folder is run."
    )
    return ["```python", *code, "```", "", why]


def _method(e: Evidence) -> list[str]:
    method = e.config.get("method", {})
    lines = [f"`{visible(str(method.get('name')))}`: {_settings(method)}", ""]
    worst = e.checks.orthogonality.worst
    if worst is not None and method.get("init") not in (None, "none", "gaussian"):
        lines.append(f"- Rows of a head's query and key weights are orthonormal to {worst:.1e} at the start.")
    if e.result.frozen.unchanged is not None and e.values.get("frozen"):
        how = "did not change" if e.result.frozen.unchanged else "CHANGED"
        lines.append(f"- Frozen weights {how} during training, by their hash.")
    if e.qk_untouched:
        lines.append("- Query and key weights started as they were loaded or drawn.")
    return lines


def _settings(settings: dict[str, Any]) -> str:
    shown = [f"{key} {text}" for key, value in settings.items() if key != "name" and (text := _plain(value))]
    return visible("; ".join(shown)) + "."


def _plain(value: object) -> str:
    """Empty for what is off."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {text}" for key, one in value.items() if (text := _plain(one)))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value in (None, False, 0) else str(value)


def _data(e: Evidence) -> list[str]:
    data = e.result.data
    facts = [f"- {visible(str(data.name or e.run.dataset or 'unknown'))}"]
    sizes = {
        "training examples": data.train_examples or e.checks.data.train_examples,
        "training tokens": data.train_tokens,
        "validation examples": e.eval_examples,
    }
    facts += [f"- {size:,} {what}" for what, size in sizes.items() if size]
    if e.text:
        facts.append(f"- fingerprint `{visible(e.text)}`: equal only for equal text in equal order")
    return facts


def _result(e: Evidence) -> Iterator[str]:
    name, metric = e.metric, metric_named(e.metric)
    better = f"{metric.direction} is better"
    validations = int(e.values.get("validations", 0))
    if "metric" in e.values:
        chosen = f", the best of {validations} validations, which flatters" if validations > 1 else ""
        shown = f"**{metric_value(name, e.score, unit=True)}** {name}{_own_interval(e, 'best')}"
        yield f"- Validation: {shown} ({better}){chosen}."
    if "final" in e.values:
        yield f"- At the end of training: {metric_value(name, e.values['final'], unit=True)}."
    test = e.result.test
    if test is not None and (value := test.values.get(name)) is not None:
        shown = f"**{metric_value(name, float(value), unit=True)}** {name}{_own_interval(e, 'test')}"
        yield f"- Test ({_place(test.source)}, n = {test.examples:,}), scored once: {shown}."
    for later in later_scores(e.run.folder):
        value = later.score.values.get(later.metric)
        if value is not None:
            shown = metric_value(later.metric, float(value), unit=True)
            yield f"- On {_place(later.score.source)} (n = {later.score.examples:,}): {shown} {later.metric}."


def _own_interval(e: Evidence, basis: Any) -> str:
    """95 % over the examples it was judged on, for these weights alone; empty where they were not kept."""
    scored = score_run(e, e.metric, basis)
    if scored is None or scored.items is None or len(scored.items) < 2:
        return ""
    middle = float(scored.items.mean())
    half = 1.96 * float(scored.items.std(ddof=1)) / math.sqrt(len(scored.items))
    share = metric_named(e.metric).is_share
    low, high = (bound if share else math.exp(bound) for bound in (middle - half, middle + half))
    shown = [metric_value(e.metric, bound) for bound in (low, high)]
    return f" [{shown[0]}, {shown[1]}] (95 % over {len(scored.items):,} {scored.unit or 'examples'})"


def _compared(run: Run, e: Evidence, catalogue: Catalogue) -> Group | None:
    """The table of this preset and its baseline, over all their seeds; None where there is nothing to compare."""
    baseline = e.record.setting("baseline")
    runs = [one for one in list_runs(e.run.folder.path.parent) if one.preset in (run.preset, baseline)]
    try:
        comparison = compare_runs([one for one in runs if not one.is_draw], catalogue)
    except (NotFound, IndexError):
        return None
    return next((group for group in comparison.groups if any(run.id in arm.runs for arm in group.arms)), None)


def _against_baseline(run: Run, group: Group) -> Iterator[str]:
    arm = next(arm for arm in group.arms if run.id in arm.runs)
    if arm.metric is not None and arm.metric.n > 1:
        spread = with_spread(arm.metric.mean, arm.metric.std, lambda value: metric_value(group.metric, value))
        yield f"- Over {arm.metric.n} seeds of this recipe: {spread} {group.metric}."
    pair = group.pair(arm.id)
    if pair is not None and pair.delta is not None:
        bounds = f" {interval(group.metric, pair.interval)}" if pair.interval else ""
        yield f"- Against `{pair.baseline}`: {gap(group.metric, pair.delta)}{bounds}. {visible(pair.words)}"
        if pair.verdict:
            yield f"- Target {pair.verdict}: {visible(pair.verdict_why)}."


def _audit(run: Run, e: Evidence, group: Group | None) -> list[str]:
    arm = next((arm for arm in group.arms if run.id in arm.runs), None) if group else None
    if group is None or arm is None:
        return ["It was not compared with anything."]
    findings = group.findings_about(arm.id)
    lines = [f"- {one.grade}, {one.what}: {visible(one.sentence)}" for one in findings]
    baseline = e.record.setting("baseline")
    if baseline and group.pair(arm.id) is None:
        lines.append(f"- There is no run of its baseline, `{visible(str(baseline))}`, to compare it with.")
    return lines or ["Nothing was found that speaks against it."]


def _made(e: Evidence) -> list[str]:
    lines = ["```", visible(_command(e)), "```", ""]
    facts = {
        "steps": f"{e.steps:,}" if e.steps else None,
        "examples a step": f"{e.result.effective_batch:,}" if e.result.effective_batch else None,
        "time": duration(e.result.seconds.total) if e.result.seconds.total else None,
        "time a step": step_time(e.result.timing.step_time_mean) if e.result.timing.step_time_mean else None,
        "device": e.result.device.name or e.result.device.kind,
        "precision": e.result.precision,
        "code": e.record.git_commit,
        "versions": listed([f"{name} {version}" for name, version in sorted(e.versions.items())]),
        "recipe": e.run.config_hash,
    }
    lines += [f"- {name}: {visible(str(value))}" for name, value in facts.items() if value]
    rows = [f"| `{key}` | {value} |" for part in _PARTS for key, value in _flat(part, e.config.get(part))]
    return [*lines, "", "| setting | value |", "|---|---|", *rows]


def _command(e: Evidence) -> str:
    """As it was typed, but for places on the machine."""
    given = e.record.command
    words = shlex.split(given) if isinstance(given, str) else given
    if not words:
        return f"oelm run {e.preset} --seed {e.seed}"
    parted = (word.rpartition("=") for word in words)
    return shlex.join(f"{before}{sign}{_place(last)}" for before, sign, last in parted)


def _flat(prefix: str, settings: object) -> Iterator[tuple[str, str]]:
    for name, value in (settings if isinstance(settings, dict) else {}).items():
        key = f"{prefix}.{name}"
        if isinstance(value, dict):
            yield from _flat(key, value)
        elif value is not None:
            shown = _place(str(value)) if key in PATHS else _plain(value) or str(value)
            yield visible(key), visible(shown).replace("|", "\\|")


def _place(source: str) -> str:
    """Of a path its last part: a card tells nothing of the machine it was made on."""
    return visible(PurePath(source).name if source.startswith(("/", "~", ".")) else source)
