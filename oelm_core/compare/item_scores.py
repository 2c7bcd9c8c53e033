"""What a run scored as a whole and on each example: on its test text, or on validation without the flattery of a best.

A run's headline is the best of its validations, so it flatters: the more evaluations, the more. Cross-fitting undoes
it: each half of the examples is scored by the evaluation that is best on the other half.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from oelm_core.compare.evidence import Evidence, is_finite
from oelm_core.metric import Metric, metric_named
from oelm_core.runs.evaluations import (
    best_losses,
    best_predictions,
    kept_losses,
    kept_predictions,
    test_losses,
    test_predictions,
)
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Losses, Predictions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

Basis = Literal["test", "cross-fitted", "best"]
BLOCKS = 40
"""Sequences of a text whose documents are not known are taken together in so many stretches: neighbours are alike."""


@dataclass(frozen=True, eq=False)
class RunScore:
    """One run's score in a metric."""

    value: float
    items: Floats | None = None
    """[items], on the scale that is tested (see `level`); their mean is the run's level. None where not kept."""
    examples: str = ""
    """Which examples: a hash of their labels or lengths."""
    unit: Literal["", "examples", "documents", "stretches of text"] = ""


def level(metric: str, value: float) -> float:
    """A value on the scale that is tested: as it is for a share of one, else its log, so that gaps are ratios."""
    return value if metric_named(metric).is_share else math.log(value)


def can_be_tested(metric: str, value: float | None) -> bool:
    return value is not None and is_finite(value) and (metric_named(metric).is_share or value > 0)


def common_basis(runs: Sequence[Evidence], metric: str) -> Basis:
    """The best basis that all scored runs share: numbers of two kinds never stand in one table."""
    scored = [e for e in runs if e.has_result]
    if scored and all(e.result.test and is_finite(e.result.test.values.get(metric)) for e in scored):
        return "test"
    return "cross-fitted" if scored and all(_kept_all(e, metric) for e in scored) else "best"


def _kept_all(e: Evidence, metric: str) -> bool:
    """Whether every validation can be scored again."""
    if not can_be_computed(metric):
        return False
    folder = e.run.folder.losses if _of_losses(metric) else e.run.folder.predictions
    steps = {line.step for line in e.evaluations if is_finite(line.values.get(metric))}
    return bool(steps) and all((folder / f"step-{step}.json").exists() for step in steps)


def can_be_computed(metric: str) -> bool:
    from oelm_core.scores import SCORES

    return _of_losses(metric) or metric_named(metric).name in SCORES


def _of_losses(metric: str) -> bool:
    return metric_named(metric).computed_from == "losses"


def score_run(e: Evidence, metric: str, basis: Basis) -> RunScore | None:
    """None for a run without a usable score."""
    value = e.values.get("metric") if metric == e.metric else e.values.get(metric)
    if basis == "test" and e.result.test:
        value = e.result.test.values.get(metric)
    if value is None or not can_be_tested(metric, value):
        return None
    if not can_be_computed(metric) or (basis != "test" and not _chosen_alike(e.metric, metric)):
        return RunScore(value)
    return (_by_losses if _of_losses(metric) else _by_predictions)(e, metric, basis, value)


def _chosen_alike(headline: str, metric: str) -> bool:
    """Whether a metric is computed from the same examples as the headline, by which the best evaluation is chosen."""
    halves = {one.startswith("mismatched_") for one in (headline, metric)}
    return can_be_computed(headline) and _of_losses(headline) == _of_losses(metric) and len(halves) == 1


Detail = TypeVar("Detail", Predictions, Losses)


def _kept(
    e: Evidence,
    basis: Basis,
    every: Callable[[RunFolder], list[Detail]],
    of_test: Callable[[RunFolder], Detail | None],
    of_best: Callable[[RunFolder], Detail | None],
) -> list[Detail]:
    """What a basis rests on: all evaluations, or the one of the test text or of the best step."""
    if basis == "cross-fitted":
        return every(e.run.folder)
    one = of_test(e.run.folder) if basis == "test" else of_best(e.run.folder)
    return [one] if one else []


# -- classifiers -------------------------------------------------------------------------------------------------------


def _by_predictions(e: Evidence, metric: str, basis: Basis, value: float) -> RunScore:
    import numpy as np

    kept = _kept(e, basis, kept_predictions, test_predictions, best_predictions)
    halves = [half for found in kept if (half := _half_of(found, metric)) is not None]
    halves = [one for one in halves if one.labels == halves[0].labels]
    if not halves:
        return RunScore(value)
    labels = np.asarray(halves[0].labels)
    predicted = np.asarray([one.predictions for one in halves])  # [evaluations, examples]
    classes = max(e.result.data.classes or 0, int(labels.max()) + 1, int(predicted.max()) + 1)
    scored = _score_of(metric, classes)
    chosen = predicted[0]
    if basis == "cross-fitted":
        chooses = _score_of(e.metric, classes)
        chosen = _cross_fitted(predicted, lambda row, half: chooses(labels[half], row[half]), metric_named(e.metric))
        value = scored(labels, chosen)
    if not can_be_tested(metric, value):
        return RunScore(value)
    return RunScore(value, _pseudo_values(labels, chosen, scored, metric), _fingerprint(labels), "examples")


def _half_of(found: Predictions, metric: str) -> Predictions | None:
    """Those that the metric is of: `mismatched_accuracy` is of MNLI's second half."""
    return found.mismatched if metric.startswith("mismatched_") else found


def _score_of(metric: str, classes: int) -> Callable[[Integers, Integers], float]:
    from oelm_core.scores import SCORES, confusion

    score = SCORES[metric_named(metric).name]
    return lambda labels, predictions: float(score(confusion(labels, predictions, classes)))


def _pseudo_values(labels: Integers, predicted: Integers, scored: Callable[..., float], metric: str) -> Floats:
    """Each example's part in the score (jackknife): for accuracy whether it is right, for F1 what its absence changes.

    [examples], on the scale that is tested. Examples of one label and prediction have one value.
    """
    import numpy as np

    n, whole = len(labels), level(metric, scored(labels, predicted))
    parts = np.empty(n)
    for label in np.unique(labels):
        for prediction in np.unique(predicted[labels == label]):
            alike = np.flatnonzero((labels == label) & (predicted == prediction))
            rest = np.delete(np.arange(n), alike[0])
            without = scored(labels[rest], predicted[rest]) if len(rest) else 0.0
            usable = can_be_tested(metric, without)
            parts[alike] = whole + (n - 1) * (whole - level(metric, without)) if usable else whole
    centred: Floats = parts - parts.mean() + whole
    return centred


# -- language models ---------------------------------------------------------------------------------------------------


def _by_losses(e: Evidence, metric: str, basis: Basis, value: float) -> RunScore:
    import numpy as np

    kept = _kept(e, basis, kept_losses, test_losses, best_losses)
    by_document = all(one.documents is not None and len(one.documents.losses) > 1 for one in kept)
    parts = [_documents(one) if by_document else _stretches(one) for one in kept]
    parts = [one for one in parts if np.array_equal(one[1], parts[0][1])]
    if not parts:
        return RunScore(value)
    tokens = parts[0][1]
    sums = np.asarray([one[0] for one in parts])  # [evaluations, documents]
    chosen = sums[0]
    if basis == "cross-fitted":
        per_token = metric_named("loss")
        chosen = _cross_fitted(sums, lambda row, half: float(row[half].sum() / tokens[half].sum()), per_token)
    loss = float(chosen.sum() / tokens.sum())
    if basis == "cross-fitted":
        value = loss if metric_named(metric).name == "loss" else math.exp(min(loss, 700.0))
    items = parts_by_tokens(chosen, tokens)
    if metric_named(metric).name == "loss":
        items = math.log(loss) + (items - loss) / loss
    items = items - items.mean() + level(metric, value)
    return RunScore(value, items, _fingerprint(tokens), "documents" if by_document else "stretches of text")


def parts_by_tokens(sums: Floats, tokens: Floats) -> Floats:
    """Each document's part in the loss per token [documents]: a ratio estimator, a document weighs by its tokens.

    Their mean is the loss; their variance, over n, that of the loss over samples of documents (linearised).
    """
    loss = sums.sum() / tokens.sum()
    parts: Floats = loss + (sums - loss * tokens) * len(tokens) / tokens.sum()
    return parts


def _documents(found: Losses) -> tuple[Floats, Floats]:
    import numpy as np

    assert found.documents is not None
    return np.asarray(found.documents.losses, float), np.asarray(found.documents.tokens, float)


def _stretches(found: Losses) -> tuple[Floats, Floats]:
    """(summed losses, tokens) of neighbouring sequences taken together."""
    import numpy as np

    count = min(BLOCKS, len(found.losses))
    starts = np.linspace(0, len(found.losses), count, endpoint=False).astype(int)
    return np.add.reduceat(np.asarray(found.losses, float), starts), np.add.reduceat(
        np.asarray(found.tokens, float), starts
    )


# -- choosing on one half, scoring on the other ------------------------------------------------------------------------


def _cross_fitted(rows: np.ndarray, scored: Callable[[np.ndarray, Integers], float], better: Metric) -> np.ndarray:
    """[items] from `rows` [evaluations, items]: each half of the items from the evaluation best on the other half."""
    import numpy as np

    chosen = rows[0].copy()
    even, odd = np.arange(rows.shape[1])[0::2], np.arange(rows.shape[1])[1::2]
    for choosing, scoring in ((even, odd), (odd, even)):
        if not len(choosing):
            continue
        best, value = 0, scored(rows[0], choosing)
        for place in range(1, len(rows)):
            here = scored(rows[place], choosing)
            if better.better(here, value):
                best, value = place, here
        chosen[scoring] = rows[best][scoring]
    return np.asarray(chosen)


def _fingerprint(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]
