"""A demo study of written (not trained) runs: both families, three arms, two seeds; always the same numbers."""

from __future__ import annotations

import math
import random
from pathlib import Path

from oelm_core.compare import Comparison, compare_study
from oelm_core.config import Experiment, build_study
from oelm_core.config.catalogue import Catalogue
from oelm_core.published.column import with_published_column
from oelm_core.runs.store import list_runs
from tests.run_factory import BERT, FROZEN, GPT, RANDOM, experiment, predictions_with, write_run

PUBLISHED = {"source": "000_report.txt", "accuracy": 0.9312}
TARGET = {"metric": "perplexity", "at_most": 1.05, "of": "baseline"}
ARMS = [
    experiment("demo-bert-baseline", BERT, published=PUBLISHED),
    experiment("demo-bert-oelm", BERT, "train.lr=5e-3", method=FROZEN, baseline="demo-bert-baseline"),
    experiment("demo-bert-random", BERT, "train.lr=5e-3", method=RANDOM, baseline="demo-bert-baseline"),
    experiment("demo-gpt-baseline", GPT),
    experiment("demo-gpt-oelm", GPT, method=FROZEN, baseline="demo-gpt-baseline", target=TARGET),
    experiment("demo-gpt-random", GPT, method=RANDOM, baseline="demo-gpt-baseline", target=TARGET),
]
SCORES = [0.94, 0.92, 0.85, 4.2, 4.5, 4.9]
STEP_TIMES = [0.050, 0.048, 0.0482, 0.080, 0.079, 0.0788]


def demo_comparison(root: Path) -> Comparison:
    """The study's comparison from run folders written under `root`."""
    number = 0
    for seed in (42, 43):
        for arm, score, step_time in zip(ARMS, SCORES, STEP_TIMES, strict=True):
            _write(root, arm, seed, number, score, step_time)
            number += 1
    study = build_study(
        {
            "id": "demo",
            "title": "Demo: OELM on generated text",
            "question": "Does attention learn with query & key weights orthonormal per head and frozen?",
            "arms": [arm.id for arm in ARMS],
            "seeds": [42, 43],
        },
        "demo",
    )
    catalogue = Catalogue(experiments={arm.id: arm for arm in ARMS})
    return with_published_column(compare_study(study, list_runs(root), catalogue), catalogue)


def _write(root: Path, arm: Experiment, seed: int, number: int, score: float, step_time: float) -> None:
    dice = random.Random(f"{arm.id} {seed}")
    time = step_time * (1 + dice.uniform(-0.01, 0.01))
    if arm.family == "bert":
        labels = [place % 2 for place in range(400)]
        wrong = dice.sample(range(400), round((1 - score + dice.uniform(-0.01, 0.01)) * 400))
        score = 1 - len(wrong) / 400
        write_run(
            root,
            arm,
            seed=seed,
            number=number,
            score=score,
            step_time=time,
            labels=labels,
            predictions=predictions_with(labels, wrong),
        )
        return
    # sequences differ in difficulty alike for all arms, which is what pairing takes out
    hardness = [random.Random(place).uniform(-0.3, 0.3) for place in range(60)]
    losses = [31 * (math.log(score) + hard + dice.uniform(-0.05, 0.05)) for hard in hardness]
    write_run(
        root,
        arm,
        seed=seed,
        number=number,
        score=math.exp(sum(losses) / (31 * 60)),
        step_time=time,
        losses=losses,
    )
