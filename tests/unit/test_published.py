"""The audit of the author's tables finds their flaws from the presets alone, and each vanishes when corrected."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from msgspec.structs import asdict

from oelm_core.compare import compare_runs
from oelm_core.compare.comparison import Finding
from oelm_core.config import Claim, Published, override
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.method.facts import Census, Count
from oelm_core.published.audit import audit_published
from oelm_core.published.column import with_published_column
from oelm_core.published.figures import derived, figure, half_unit
from oelm_core.published.parameters import count_parameters, known_count
from oelm_core.report import render
from tests.run_factory import write_run

BERT_TOTAL, BERT_FROZEN = 109_483_778, 14_174_208
GPT_TOTAL, GPT_FROZEN = 44_896_768, 3_145_728


def counted(experiment):
    """Sizes as domain knowledge has them; counting itself is tested elsewhere."""
    bert = experiment.model.name.startswith("bert")
    total = (BERT_TOTAL if bert else GPT_TOTAL) + (769 if experiment.data.classes == 3 else 0)
    frozen = (BERT_FROZEN if bert else GPT_FROZEN) if experiment.method.freeze else 0
    return Count(total, total - frozen, frozen)


@functools.cache
def shipped() -> Catalogue:
    return load_folders([SHIPPED])


@functools.cache
def shipped_audit() -> tuple[Finding, ...]:
    return tuple(audit_published(shipped(), census=counted))


def changed(catalogue: Catalogue, name: str, **published) -> Catalogue:
    """The catalogue with other published figures for one preset."""
    experiment = catalogue.experiment(name)
    figures = (experiment.published or Published(source="x")).model_copy(update=published)
    experiments = {**catalogue.experiments, experiment.id: experiment.model_copy(update={"published": figures})}
    return Catalogue(experiments=experiments, studies=catalogue.studies)


def found(audit, what: str, *arms: str) -> list[Finding]:
    return [f for f in audit if f.what == what and set(arms) <= set(f.arms)]


def test_the_crippled_xnli_baseline_is_caught_as_broken():
    (finding,) = found(shipped_audit(), "untouched baseline", "XNLI-01")
    assert finding.grade == "breaks"
    assert "overwritten by noise" in finding.why


def test_the_xnli_mark_vanishes_when_the_run_was_as_the_recipe_says():
    corrected = changed(shipped(), "XNLI-01", as_run={})
    assert found(audit_published(corrected, census=counted), "untouched baseline", "XNLI-01") == []


@pytest.mark.parametrize("baseline", ["sst2-baseline", "mnli-baseline"])
def test_orthonormal_baselines_are_no_baselines(baseline):
    (finding,) = found(shipped_audit(), "untouched baseline", baseline)
    assert finding.grade == "breaks"
    assert "made orthonormal" in finding.why
    corrected = changed(shipped(), baseline, as_run={})
    assert found(audit_published(corrected, census=counted), "untouched baseline", baseline) == []


def test_the_57_percent_is_a_clock_of_micro_batches_and_the_wall_clock_says_the_opposite():
    audit = shipped_audit()
    assert [f.grade for f in found(audit, "clock", "XNLI-01", "XNLI-02")] == ["breaks"]
    assert [f.grade for f in found(audit, "gradient accumulation", "XNLI-02")] == ["confounds"]
    (speed,) = found(audit, "speed-up", "XNLI-02")
    assert "4 h 02 min against 3 h 48 min" in speed.why
    assert [f.grade for f in found(audit, "warm-up", "XNLI-02")] == ["confounds"]


def test_the_marks_of_the_restarted_xnli_run_vanish_with_its_settings():
    audit = audit_published(changed(shipped(), "XNLI-02", as_run={}), census=counted)
    for what in ("clock", "gradient accumulation", "warm-up"):
        assert found(audit, what, "XNLI-02") == [], what


def test_orthogonal_against_random_is_confounded_by_scale_and_row_space_with_controls():
    audit = shipped_audit()
    (gpt,) = found(audit, "init scale", "GPT-02", "GPT-03")
    (bert,) = found(audit, "init scale", "sst2-oelm", "sst2-random")
    (rows,) = found(audit, "row space", "sst2-oelm", "sst2-random")
    assert "4.9x" in gpt.why
    assert "3.3x" in bert.why
    assert [f.settle_with for f in (gpt, bert, rows)] == [
        "GPT-03-unit-norm",
        "sst2-random-unit-norm",
        "sst2-oelm-random-orthonormal",
    ]


@pytest.mark.parametrize(
    ("arms", "control"),
    [
        (("sst2-baseline", "sst2-oelm"), "sst2-oelm-same-lr"),
        (("mnli-baseline", "mnli-oelm"), "mnli-oelm-same-lr"),
        (("GPT-01", "GPT-02"), "GPT-02-same-lr"),
        (("GPT-04", "GPT-05"), "GPT-05-same-lr"),
    ],
)
def test_learning_rates_that_differ_are_found_with_the_same_rate_control(arms, control):
    (finding,) = found(shipped_audit(), "learning rate", *arms)
    assert (finding.grade, finding.settle_with) == ("confounds", control)


def test_one_seed_and_16_of_872_could_mean_anything():
    (finding,) = found(shipped_audit(), "one seed", "sst2-baseline", "sst2-oelm")
    assert "16 of 872" in finding.why
    assert "p = 0.20" in finding.why
    assert "at most 58" in finding.why


def test_the_global_qr_gap_pairs_two_recipes_and_the_matched_pair_is_named():
    claims = found(shipped_audit(), "paired recipes", "gpt-global-qr")
    assert claims
    assert all("learning rate 3e-4 vs 5e-4" in f.why and "+12.5 %" in f.why for f in claims)


def test_accuracies_that_are_no_k_of_n_are_impossible():
    (finding,) = found(shipped_audit(), "granularity", "sst2-oelm")
    assert "91.42 % at step 3,500" in finding.why
    assert "91.31 % at step 4,000" in finding.why
    assert "91.28" not in finding.why.split("nearest")[0]
    corrected = changed(shipped(), "sst2-oelm", curve=[])
    assert found(audit_published(corrected, census=counted), "granularity") == []


def test_a_best_below_its_own_curve_is_found():
    (finding,) = found(shipped_audit(), "best and curve", "sst2-oelm")
    assert "91.42 % at step 3,500" in finding.why


def test_times_that_contradict_the_clock_or_each_other_are_found():
    audit = shipped_audit()
    assert "1 h 36 min" in found(audit, "duration", "sst2-oelm")[0].why
    assert "0.91 s per step and 3.08 steps per second" in found(audit, "step time", "sst2-oelm")[0].why
    (product,) = found(audit, "step time x steps", "GPT-01")
    assert "0.184 s per step x 100,000 steps = 5 h 07 min, more than the 4 h 31 min" in product.why
    assert "0.0837" in found(audit, "step time", "GPT-01")[0].why


def test_parameter_counts_are_refuted_and_the_copied_share_is_recognised():
    audit = found(shipped_audit(), "parameters", "GPT-02")
    said = " ".join(f.why for f in audit)
    assert "71M; counted, they are 41,751,040" in said
    assert "490 MiB agrees" in said
    assert "counted, it is 7.0 %. 12.9 % is the share of bert-base-uncased" in said
    assert found(shipped_audit(), "parameters", "sst2-oelm") == []


def test_parameters_are_counted_on_the_meta_device_unless_told_otherwise():
    audit = audit_published(shipped(), only=["GPT-01", "GPT-02"])
    assert any("71M; counted, they are 41,751,040" in f.why for f in found(audit, "parameters", "GPT-02"))


def test_the_average_retention_is_recomputed():
    (finding,) = found(shipped_audit(), "average", "mnli-oelm")
    assert "98.50 %" in finding.why
    assert "98.29 %" in finding.why


def test_the_spread_called_stability_is_drift():
    (finding,) = found(shipped_audit(), "drift", "sst2-baseline")
    assert "+27 %" in finding.why
    assert found(shipped_audit(), "order of runs", "sst2-baseline")


def test_figures_that_are_right_are_left_in_peace():
    audit = shipped_audit()
    assert found(audit, "ratio") == []
    assert found(audit, "perplexity and loss") == []
    assert found(audit, "granularity", "XNLI-02") == []


@pytest.mark.parametrize(
    ("claim", "what"),
    [
        ({"what": "delta", "value": -0.0284}, "ratio"),
        ({"what": "retention", "value": 0.95}, "ratio"),
        ({"what": "frozen", "value": 15.2e6}, "parameters"),
        ({"what": "steps", "value": 7000}, "steps"),
        ({"what": "accuracy", "value": 0.9131}, "granularity"),
    ],
)
def test_a_wrong_figure_is_found_and_its_right_value_is_not(claim, what):
    experiment = shipped().experiment("sst2-oelm")
    right = [c for c in experiment.published.claims if c.what != claim["what"]]
    wrong = [*right, Claim(source="x.txt", **claim)]
    counts = []
    for claims in (right, wrong):
        catalogue = changed(shipped(), "sst2-oelm", claims=claims, curve=[])
        counts.append(len(found(audit_published(catalogue, census=counted), what, "sst2-oelm")))
    assert counts[1] == counts[0] + 1


def test_the_audit_can_be_limited_to_some_presets():
    audit = audit_published(shipped(), only=["sst2-baseline", "sst2-oelm"], census=counted)
    assert audit
    assert {arm for f in audit for arm in f.arms} <= {"sst2-baseline", "sst2-oelm"}


def test_rounding_is_allowed_for_but_nothing_more():
    assert half_unit(0.9128) == pytest.approx(5e-5)
    assert half_unit(82.0e6) == 5e5
    gap = derived("gap", lambda a, b: a / b - 1, figure("perplexity", 4.69), figure("perplexity", 4.27))
    assert gap.agrees(figure("relative_delta", 0.098))
    assert not gap.agrees(figure("relative_delta", 0.102))


def test_a_refuted_figure_is_marked_in_the_column_and_explained_under_it(tmp_path):
    presets = shipped()
    arms = [presets.experiments[name] for name in ("sst2-baseline", "sst2-oelm", "GPT-01", "GPT-02")]
    runs = [write_run(tmp_path, arm, number=n, curve=[0.9 if n < 2 else 4.0]) for n, arm in enumerate(arms)]
    text = render(with_published_column(compare_runs(runs, presets), presets), "markdown")
    assert "⚠ 93.12 % [" in text  # not a baseline
    assert "⚠ 91.28 % [" in text  # below its own curve
    assert "| 4.270 [" in text  # its perplexity stands; only its times and sizes do not
    assert "⚠ 184.0 ms" in text
    assert "| 326.2 ms" in text
    assert "- ⚠ sst2-oelm, published 91.28 %: the best accuracy is given as" in text
    assert "≠" not in text


def test_figures_published_for_another_network_or_recipe_say_so(tmp_path):
    presets = shipped()
    other = ["model.path=/data/minilm/model", "train.max_steps=100"]
    arms = [override(presets.experiments[name], other) for name in ("sst2-baseline", "sst2-oelm")]
    comparison = with_published_column(
        compare_runs([write_run(tmp_path, arm, number=n, curve=[0.9]) for n, arm in enumerate(arms)], presets), presets
    )
    (note,) = [finding for finding in comparison.groups[0].audit if finding.what == "published column"]
    assert note.arms == ("sst2-baseline", "sst2-oelm")
    assert "another network" in note.why
    assert "minilm/model" in note.why
    assert "100 steps, not 6,315 steps" in note.why
    assert "⚠ ≠ 93.12 %" in render(comparison, "markdown")


def test_a_finding_about_a_published_figure_says_whose_it_is():
    findings = shipped_audit()
    assert all(any(arm in finding.sentence for arm in finding.arms) for finding in findings)
    (steps,) = [finding for finding in findings if finding.what == "steps"]
    assert steps.sentence.startswith("GPT-04, GPT-05: the number of training steps")
    touched = [
        finding for finding in findings if finding.what == "untouched baseline" and "sst2-baseline" in finding.arms
    ]
    assert "Probable, not proven" in touched[0].why


def test_only_networks_of_unknown_shape_are_built_to_be_counted_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    calls = []

    def census_of(experiment):
        calls.append(experiment.id)
        return Census(**asdict(counted(experiments["GPT-01"])))

    monkeypatch.setattr("oelm_core.method.census.census_of", census_of)
    experiments = shipped().experiments
    same = experiments["llama-tinystories-baseline"]
    elsewhere = same.model_copy(update={"data": same.data.model_copy(update={"name": "wikitext-103"})})
    first, again = count_parameters(same), count_parameters(elsewhere)  # other data, same network
    assert first == again
    assert calls == [same.id]
    assert known_count(same) == first
    assert known_count(experiments["llama-tinystories-oelm"]) is None
    assert count_parameters(experiments["GPT-02"]) == Count(44_896_768, 41_751_040, 3_145_728)
    assert calls == [same.id]


def test_every_source_of_a_published_figure_is_described():
    described = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    reports = [one.published for one in shipped().experiments.values() if one.published]
    claims = [claim for one in (*reports, *shipped().studies.values()) for claim in one.claims]
    points = [point for report in reports for point in report.curve if point.source]
    named = {one.source for one in (*reports, *claims, *points)}
    assert not [source for source in named if f"`{source}`" not in described]


def test_a_forecast_is_no_measurement_that_a_run_could_contradict():
    experiment = shipped().experiment("sst2-oelm")
    for projected, expected in ((False, 1), (True, 0)):
        claim = Claim(what="seconds", value=86400, source="x.txt", projected=projected)
        before = found(shipped_audit(), "duration", "sst2-oelm")
        audit = audit_published(
            changed(shipped(), "sst2-oelm", claims=[*experiment.published.claims, claim]), census=counted
        )
        assert len(found(audit, "duration", "sst2-oelm")) == len(before) + expected
