"""Best and last scores of an author's run as our result.json has them, and a note on which of the two counts."""

from __future__ import annotations

import math

from oelm_core.formatting import metric_value
from oelm_core.method.facts import Census
from oelm_core.metric import best_of, metric_named
from oelm_core.published.import_author import AuthorFolder, AuthorResults, TimingStats
from oelm_core.runs.schema import Evaluated, Headline, Result, Seconds, StepTiming


def result_of(folder: AuthorFolder) -> Result:
    """The result as our worker writes it, with what is known. Where no best is, the last counts, and a note says so."""
    stats, results = folder.stats or TimingStats(), folder.results or AuthorResults()
    best, final = _best_and_final(folder)
    counts = folder.counts
    trainable = counts.trainable if counts else None
    score = (best or final).get(folder.metric)
    return Result(
        imported=True,
        metric=Headline(folder.metric, score, metric_named(folder.metric).direction),
        best=best or None,
        final=final or None,
        parameters=Census(
            total=counts.total if counts else None,
            trainable=trainable,
            frozen=counts.total - trainable if counts and trainable is not None else None,
        ),
        timing=StepTiming(
            step_time_mean=stats.mean_step_time or stats.mean_time_per_step or results.avg_step_time,
            step_time_std=_first(stats.std_step_time, stats.std_time_per_step),
            step_time_median=_first(stats.median_step_time, stats.median_time),
            step_time_p95=_first(stats.p95_step_time, stats.p95_time),
            step_time_p99=_first(stats.p99_step_time, stats.p99_time),
            steps_measured=stats.num_steps_measured,
        ),
        seconds=Seconds(
            total=stats.total_wall_time or results.total_time_seconds,
            training=stats.pure_training_time,
            validation=stats.total_validation_time,
        ),
        checkpoint_bytes=folder.checkpoint_bytes,
    )


def _best_and_final(folder: AuthorFolder) -> tuple[Evaluated, Evaluated]:
    metric, results = folder.metric, folder.results or AuthorResults()
    evaluations: list[Evaluated] = [{"step": line.step, **line.values} for line in folder.log.evals]
    scored = [one for one in evaluations if math.isfinite(one.get(metric) or math.nan)]
    best, final = dict(best_of(scored, metric) or {}), dict(scored[-1]) if scored else {}
    summary, in_log = _summary(folder), best.get(metric)
    if summary is not None and in_log is None:
        best = {metric: summary}
        if folder.kind == "gpt" and folder.stats and folder.stats.best_val_loss is not None:
            best["loss"] = folder.stats.best_val_loss
    elif summary is not None and in_log is not None and abs(in_log / summary - 1) > 0.005:
        folder.notes.append(f"best {metric} is {in_log:g} in the log and {summary:g} in the summary; the log counts.")
    if not final and results.final_val_accuracy is not None:
        final = {"accuracy": _fraction(results.final_val_accuracy)}
        if results.final_val_loss is not None:
            final["loss"] = results.final_val_loss
    folder.notes += _which_it_is(folder, best, final, len(scored))
    return best, final


def _which_it_is(folder: AuthorFolder, best: Evaluated, final: Evaluated, in_log: int) -> list[str]:
    """Whether the figure is the best validation's or the last's."""
    metric, stats = folder.metric, folder.stats or TimingStats()
    top, last = (_shown(metric, one) for one in (best, final))
    if not best:
        return [f"the {metric} is that of the last validation, {last}; the best is not in its files."] if final else []
    if in_log == 1:
        return [f"the {metric} is that of the only validation in the log, {top}."]
    many = in_log or stats.num_validations or len(stats.epoch_times or ())
    which = f"of the best of {many} validations" if many > 1 else "of the best validation"
    rest = f"the last is {last}" if final else "the last is not in its files"
    notes = [f"the {metric} is that {which}, {top}; {rest}."]
    loss = stats.best_val_loss
    if not in_log and metric == "perplexity" and stats.final_perplexity is not None:
        if loss is None:
            notes.append(
                "final_perplexity is taken for that of the best validation, as the author's program writes it."
            )
        elif loss > 700 or abs(math.exp(loss) / stats.final_perplexity - 1) > 0.005:
            notes.append(
                f"final_perplexity is not exp of best_val_loss {loss:g}: which validation it is of is in doubt."
            )
    return notes


def _shown(metric: str, evaluated: Evaluated) -> str:
    value, step = evaluated.get(metric), evaluated.get("step")
    if value is None:
        return "unknown"
    return metric_value(metric, value, unit=True) + (f" at step {step:,}" if step is not None else "")


def _summary(folder: AuthorFolder) -> float | None:
    """The best of the headline metric as the summary files have it."""
    if folder.metric == "perplexity":
        found = folder.stats.final_perplexity if folder.stats else None
        return found if found is not None and found > 0 else None
    best = folder.results.best_accuracy if folder.results else None
    return None if best is None else _fraction(best)


def _fraction(value: float) -> float:
    return value / 100 if value > 1 else value


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
