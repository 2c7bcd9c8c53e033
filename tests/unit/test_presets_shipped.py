"""The shipped presets: the author's recipes as reported, untouched baselines, controls that differ in what they say."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

import pytest

from oelm_core.compare.config_values import steps_of
from oelm_core.config import Claim, Experiment, Method, Published, Study, Train, as_dict, config_hash, merge, override
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.config.limits import planned_steps
from oelm_core.estimate import estimate
from oelm_core.training.schedule import BatchPlan

SST2 = ["sst2-baseline", "sst2-oelm", "sst2-random"]
PAIRS = ["mnli-baseline", "mnli-oelm", "XNLI-01", "XNLI-02"]
LANGUAGE = [*(f"GPT-0{number}" for number in range(1, 8)), "gpt-global-qr"]
DEMOS = [f"demo-{family}-{arm}" for family in ("bert", "gpt") for arm in ("baseline", "oelm", "random")]
CLASSIFYING_STUDIES = ["sst2", "mnli", "xnli", "ablation", "cross-dataset", "fair-timing"]
LANGUAGE_STUDIES = ["gpt-tinystories", "gpt-openwebtext", "gpt-wikitext103"]
SEEDS = {
    "000_2fa626d7d96d5163.txt",
    "001_59006b69b968bf25.txt",
    "002_d7eded592dbe48bd.txt",
    "003_d6aec677c4bff7b0.txt",
    "004_c17b2f835bb17683.txt",
}

CATALOGUE = load_folders([SHIPPED])
OURS = {name: exp for name, exp in CATALOGUE.experiments.items() if not name.startswith("demo-")}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return CATALOGUE


def published(catalogue: Catalogue, name: str) -> Published:
    found = catalogue.experiment(name).published
    assert found is not None
    return found


def claimed(catalogue: Catalogue, name: str, what: str) -> list[float]:
    return [claim.value for claim in published(catalogue, name).claims if claim.what == what]


def test_no_shipped_preset_is_broken(catalogue: Catalogue) -> None:
    assert catalogue.warnings == []
    assert catalogue.broken == {}


@pytest.mark.parametrize("name", [*SST2, *PAIRS, *LANGUAGE, *DEMOS])
def test_every_experiment_of_the_contract_is_there(catalogue: Catalogue, name: str) -> None:
    assert catalogue.experiment(name).id == name


@pytest.mark.parametrize("name", [*CLASSIFYING_STUDIES, *LANGUAGE_STUDIES, "demo"])
def test_every_study_of_the_contract_is_there(catalogue: Catalogue, name: str) -> None:
    assert catalogue.study(name).id == name


def test_every_baseline_is_untouched(catalogue: Catalogue) -> None:
    baselines = [exp for exp in catalogue.experiments.values() if exp.is_baseline]
    assert len(baselines) >= 12
    for exp in baselines:
        said = {"name": exp.method.name, "source": exp.method.source, "scale": exp.method.scale}  # idle without an init
        assert exp.method == Method(name="baseline").model_copy(update=said), exp.id


def test_every_other_arm_has_a_baseline_on_the_same_data_and_network(catalogue: Catalogue) -> None:
    for exp in catalogue.experiments.values():
        if exp.baseline is None:
            continue
        baseline = catalogue.experiment(exp.baseline)
        assert baseline.is_baseline, exp.id
        assert (exp.family, exp.data, exp.model) == (baseline.family, baseline.data, baseline.model), exp.id


def test_arms_keep_their_baselines_recipe_but_for_the_learning_rate(catalogue: Catalogue) -> None:
    for exp in OURS.values():
        if exp.baseline is not None:
            recipe = catalogue.experiment(exp.baseline).train
            assert exp.train.model_copy(update={"lr": recipe.lr}) == recipe, exp.id


def test_no_two_presets_are_the_same_run(catalogue: Catalogue) -> None:
    # a control whose key was misplaced would train its parent again under another name
    by_hash: dict[str, list[str]] = defaultdict(list)
    for exp in catalogue.experiments.values():
        by_hash[config_hash(as_dict(exp))].append(exp.id)
    assert [names for names in by_hash.values() if len(names) > 1] == []


def test_every_arm_beyond_the_authors_says_what_it_settles() -> None:
    assert [exp.id for exp in OURS.values() if len(exp.about) < 20] == []


BERT = {"warmup_ratio": 0.1, "schedule": "linear", "precision": "fp32", "eval_every": 500, "epochs": 3}
GPT = {"warmup_steps": 1000, "schedule": "cosine", "precision": "amp", "eval_every": 1000, "checkpoint_every": 5000}


@pytest.mark.parametrize(
    ("names", "rates", "length", "recipe"),
    [
        ("sst2-baseline sst2-oelm sst2-random", (2e-5, 1e-4, 1e-4), 128, {**BERT, "batch_size": 32}),
        ("mnli-baseline mnli-oelm", (2e-5, 1e-4), 128, {**BERT, "batch_size": 32}),
        ("XNLI-01 XNLI-02", (2e-5, 1e-4), 128, {**BERT, "batch_size": 16}),
        ("GPT-01 GPT-02 GPT-03", (3e-4, 1e-3, 1e-3), 512, {**GPT, "batch_size": 8, "max_steps": 100_000}),
        ("GPT-04 GPT-05", (3e-4, 1e-3), 512, {**GPT, "batch_size": 8, "max_steps": 150_000}),
        ("GPT-06 GPT-07", (3e-4, 1e-3), 512, {**GPT, "batch_size": 8, "max_steps": 200_000}),
    ],
)
def test_the_authors_recipes_are_as_reported(
    catalogue: Catalogue, names: str, rates: tuple[float, ...], length: int, recipe: dict[str, Any]
) -> None:
    for name, rate in zip(names.split(), rates, strict=True):
        exp = catalogue.experiment(name)
        assert exp.train.lr == rate
        assert (exp.data.max_length, exp.seed, exp.train.accumulate) == (length, 42, 1)
        assert {key: getattr(exp.train, key) for key in recipe} == recipe
        adam = (exp.train.betas, exp.train.eps, exp.train.weight_decay, exp.train.clip)
        assert adam == ((0.9, 0.999), 1e-8, 0.01, 1.0)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("sst2-oelm", 6_315), ("XNLI-02", 73_632), ("mnli-oelm", 36_816), ("qqp-oelm", 34_113), ("cola-oelm", 804)],
)
def test_epochs_and_set_sizes_give_the_number_of_steps(catalogue: Catalogue, name: str, steps: int) -> None:
    exp = catalogue.experiment(name)
    assert exp.data.train_examples is not None
    assert exp.train.epochs is not None
    assert math.ceil(exp.data.train_examples / exp.train.effective_batch) * exp.train.epochs == steps


def test_a_tenth_of_an_epoch_has_as_many_steps_wherever_they_are_counted(catalogue: Catalogue) -> None:
    part = override(catalogue.experiment("sst2-baseline"), ["train.epochs=0.1"])
    examples = part.data.train_examples or 0
    plan = BatchPlan(examples, part.train.batch_size, part.train.accumulate, seed=42)
    trained = plan.total_steps(None, 0.1)
    assert (trained, planned_steps(part.train, part.data), steps_of(as_dict(part))) == (211, 211, 211)
    assert estimate(part, []).steps == 211


def test_text_is_held_out_as_the_author_did(catalogue: Catalogue) -> None:
    stories, web, wiki = (catalogue.experiment(name).data for name in ("GPT-01", "GPT-04", "GPT-06"))
    assert (stories.validation, stories.validation_fraction, stories.validation_seed) == ("random", 0.01, 42)
    assert (web.validation, web.validation_fraction, web.max_tokens) == ("tail", 0.01, 100_000_000)
    assert wiki.validation == "split"


@pytest.mark.parametrize(
    ("name", "init", "source", "scale", "freeze"),
    [
        ("sst2-oelm", "head-qr", "pretrained", "unit", ["query", "key"]),
        ("sst2-random", "gaussian", "gaussian", 0.02, ["query", "key"]),
        ("mnli-oelm", "head-qr", "pretrained", "unit", ["query", "key"]),
        ("XNLI-02", "head-qr", "pretrained", "unit", ["query", "key"]),
        ("GPT-02", "head-qr", "gaussian", "unit", ["query", "key"]),
        ("GPT-03", "gaussian", "gaussian", 0.02, ["query", "key"]),
        ("gpt-global-qr", "global-qr", "gaussian", "unit", ["query", "key"]),
        ("sst2-oelm-nofreeze", "head-qr", "pretrained", "unit", []),
        ("sst2-pretrained-frozen", "none", "pretrained", "unit", ["query", "key"]),
        ("GPT-03-unit-norm", "gaussian", "gaussian", "unit", ["query", "key"]),
    ],
)
def test_methods_are_what_their_names_say(
    catalogue: Catalogue, name: str, init: str, source: str, scale: str | float, freeze: list[str]
) -> None:
    method = catalogue.experiment(name).method
    assert (method.init, method.source, method.scale, list(method.freeze), method.layers) == (
        init,
        source,
        scale,
        freeze,
        "all",
    )


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("sst2-baseline", "accuracy", 0.9312),
        ("sst2-oelm", "accuracy", 0.9128),
        ("sst2-oelm", "f1", 0.9159),
        ("sst2-oelm", "loss", 0.3152),
        ("sst2-oelm", "seconds", 2148),
        ("sst2-random", "accuracy", 0.8211),
        ("mnli-baseline", "accuracy", 0.8344),
        ("mnli-oelm", "accuracy", 0.8223),
        ("sst2-baseline", "step_time", 0.3218),
        ("sst2-oelm", "step_time", 0.3262),
        ("XNLI-01", "accuracy", 0.7671),
        ("XNLI-02", "accuracy", 0.7779),
        ("GPT-01", "perplexity", 4.27),
        ("GPT-02", "perplexity", 4.69),
        ("GPT-03", "perplexity", 4.97),
        ("GPT-04", "perplexity", 47.24),
        ("GPT-05", "perplexity", 54.29),
        ("GPT-06", "perplexity", 25.13),
        ("GPT-07", "perplexity", 29.03),
        ("gpt-global-qr", "perplexity", 4.94),
    ],
)
def test_published_results_are_as_reported(catalogue: Catalogue, name: str, key: str, value: float) -> None:
    assert getattr(published(catalogue, name), key) == value


def test_the_sst2_curve_is_there_with_its_impossible_points(catalogue: Catalogue) -> None:
    curve = {point.step: point.accuracy for point in published(catalogue, "sst2-oelm").curve}
    assert list(curve) == [500, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 6000]
    impossible = [step for step, value in curve.items() if not _is_share_of(872, value)]
    assert {3500, 4000} <= set(impossible)


def _is_share_of(examples: int, accuracy: float | None) -> bool:
    assert accuracy is not None
    return abs(round(accuracy * examples) / examples - accuracy) <= 0.5e-4


def test_figures_that_contradict_each_other_are_all_kept(catalogue: Catalogue) -> None:
    assert claimed(catalogue, "sst2-oelm", "seconds") == [5760]  # beside 2148 by the clock
    start, end = (claimed(catalogue, "sst2-oelm", f"clock_{side}")[0] for side in ("start", "end"))
    assert end - start == published(catalogue, "sst2-oelm").seconds
    assert 0.91 in claimed(catalogue, "sst2-oelm", "step_time")
    assert claimed(catalogue, "sst2-oelm", "it_per_s") == [3.08]
    assert claimed(catalogue, "sst2-baseline", "step_time_run") == [0.2774, 0.3366, 0.3514]
    assert claimed(catalogue, "XNLI-02", "speedup") == [0.57]
    assert claimed(catalogue, "GPT-01", "step_time") == [0.184, 0.0837]
    assert claimed(catalogue, "GPT-01", "total") == [82e6]
    assert claimed(catalogue, "GPT-02", "trainable") == [71e6]
    assert claimed(catalogue, "GPT-02", "saved_share") == [0.129]
    assert claimed(catalogue, "GPT-01", "checkpoint_mib") == [514]
    assert claimed(catalogue, "GPT-02", "checkpoint_mib") == [490]
    assert claimed(catalogue, "gpt-global-qr", "baseline_perplexity") == [4.14, 4.39]
    means = [claim.value for claim in catalogue.study("cross-dataset").claims if claim.what == "mean_retention"]
    assert means == [0.983, 0.985]


def test_every_claim_uses_a_word_that_the_claims_docstring_explains(catalogue: Catalogue) -> None:
    words = set(re.findall(r"[a-z0-9_]+", Claim.__doc__ or ""))
    for owner, claim in _all_claims(catalogue):
        assert claim.what in words, f"{owner}: {claim.what}"


def test_every_published_figure_names_a_report_or_the_repository(catalogue: Catalogue) -> None:
    sources = [(owner, claim.source) for owner, claim in _all_claims(catalogue)]
    for exp in OURS.values():
        if exp.published:
            sources.append((exp.id, exp.published.source))
            sources += [(exp.id, point.source) for point in exp.published.curve if point.source]
    assert [(owner, s) for owner, s in sources if s not in SEEDS and not re.fullmatch(r"repo:\S+", s)] == []


def test_claims_about_arms_name_arms_that_exist(catalogue: Catalogue) -> None:
    for owner, claim in _all_claims(catalogue):
        for arm in claim.arms:
            assert catalogue.experiment(arm), owner
    for study in catalogue.studies.values():
        for claim in study.claims:
            assert set(claim.arms) <= set(study.arms), study.id


def _all_claims(catalogue: Catalogue) -> list[tuple[str, Claim]]:
    owners: list[Experiment | Study] = [*catalogue.experiments.values(), *catalogue.studies.values()]
    found = []
    for owner in owners:
        claims = owner.claims if isinstance(owner, Study) else owner.published.claims if owner.published else []
        found += [(owner.id, claim) for claim in claims]
    return found


def test_what_the_author_really_ran_is_a_valid_recipe_that_differs_from_ours(catalogue: Catalogue) -> None:
    kinds = {"method": Method, "train": Train}
    for name in ("sst2-baseline", "mnli-baseline", "XNLI-01", "XNLI-02", "gpt-global-qr"):
        ours = as_dict(catalogue.experiment(name))
        as_run = published(catalogue, name).as_run
        changed = [part for part in kinds if part in as_run]
        assert changed, name
        for part in changed:
            theirs = kinds[part].model_validate(merge(ours[part], as_run[part]))
            assert theirs != kinds[part].model_validate(ours[part]), name


def test_each_overwritten_baseline_has_an_arm_that_runs_it_as_it_was_run(catalogue: Catalogue) -> None:
    pairs = (
        ("sst2-baseline", "sst2-oelm-nofreeze"),
        ("mnli-baseline", "mnli-oelm-nofreeze"),
        ("XNLI-01", "XNLI-01-gaussian"),
    )
    for baseline, arm in pairs:
        ours = as_dict(catalogue.experiment(baseline))
        theirs = Method.model_validate(merge(ours["method"], published(catalogue, baseline).as_run["method"]))
        rerun = catalogue.experiment(arm)
        assert rerun.method.model_copy(update={"name": theirs.name}) == theirs
        assert rerun.train == catalogue.experiment(baseline).train


def test_a_study_holds_the_baseline_of_each_of_its_arms(catalogue: Catalogue) -> None:
    for study in catalogue.studies.values():
        arms = [catalogue.experiment(arm) for arm in study.arms]
        assert len({arm.id for arm in arms}) == len(arms), study.id
        present = {arm.id for arm in arms}
        for arm in arms:
            assert arm.baseline is None or catalogue.experiment(arm.baseline).id in present, f"{study.id}: {arm.id}"


def test_every_preset_belongs_to_a_study(catalogue: Catalogue) -> None:
    used = {arm.lower() for study in catalogue.studies.values() for arm in study.arms}
    assert [name for name in catalogue.experiments if name.lower() not in used] == []


def test_language_model_arms_must_come_within_five_percent(catalogue: Catalogue) -> None:
    for exp in OURS.values():
        if exp.metric == "perplexity" and exp.method.freeze and not exp.id.startswith("findings-"):
            assert exp.target is not None, exp.id
            assert (exp.target.metric, exp.target.at_most, exp.target.of) == ("perplexity", 1.05, "baseline"), exp.id


@pytest.mark.parametrize("name", ["findings-sst2", "findings-gpt"])
def test_the_findings_are_tuned_alike_and_each_claim_has_its_margin(catalogue: Catalogue, name: str) -> None:
    study = catalogue.study(name)
    arms = [catalogue.experiment(arm) for arm in study.arms]
    assert study.tune is not None
    assert {len(one.values) for one in study.tune.space.values()} == {3}
    assert not set(study.tune.seeds or ()) & set(study.seeds)
    assert len(study.seeds) == 5
    assert {arm for pair in study.contrasts for arm in pair} <= {arm.id for arm in arms}
    for arm in arms:
        assert arm.data.test is not None, arm.id
        assert (arm.target is not None) == bool(arm.method.freeze), arm.id
        if arm.metric == "perplexity" and arm.target:
            all_stay_frozen = set(arm.method.freeze) == {"query", "key"} and arm.method.layers == "all"
            bound = 1.01 if all_stay_frozen and not arm.method.unfreeze else 1.005
            assert (arm.target.at_most, arm.target.of) == (bound, "baseline"), arm.id


@pytest.mark.parametrize(
    ("name", "total", "frozen"),
    [
        ("sst2-baseline", 109_483_778, 0),
        ("sst2-oelm", 109_483_778, 14_174_208),
        ("XNLI-02", 109_484_547, 14_174_208),
        ("GPT-01", 44_896_768, 0),
        ("GPT-02", 44_896_768, 3_145_728),
        ("GPT-02-last-2", 44_896_768, 4 * 2 * 512**2),
        ("GPT-02-position-bias", 44_896_768 + 6 * 8 * 65, 3_145_728),
        ("sst2-oelm-query-only", 109_483_778, 14_174_208 // 2),
        ("findings-gpt-low-rank", 1_086_208 + 4 * 2 * 2 * 128 * 8, 4 * 2 * 128**2),
    ],
)
def test_sizes_are_exact_without_a_download(catalogue: Catalogue, name: str, total: int, frozen: int) -> None:
    from oelm_core.method.census import census_of

    counted = census_of(catalogue.experiment(name))
    assert (counted.total, counted.frozen) == (total, frozen)
    assert counted.trainable == total - frozen


def test_the_checkpoint_sizes_the_author_lists_are_those_of_our_gpt(catalogue: Catalogue) -> None:
    from oelm_core.method.census import census_of

    for name in ("GPT-01", "GPT-02"):
        size = census_of(catalogue.experiment(name)).bytes.checkpoint / 2**20
        assert claimed(catalogue, name, "checkpoint_mib") == [round(size)]
