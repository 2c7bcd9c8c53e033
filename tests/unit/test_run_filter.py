"""The runs filter: every field, every operator, and half-typed text that must never raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oelm_tui.run_filter import parse

RUN = {
    "text": "GPT-02-s42 TinyStories, OELM-Freeze tinystories",
    "state": "running",
    "family": "gpt",
    "method": "oelm-freeze",
    "dataset": "tinystories",
    "seed": 42,
    "lr": 1e-3,
    "train.lr": 1e-3,
    "tag": ["keep", "paper"],
    "reason": None,
    "step": 61_200,
}


@pytest.mark.parametrize(
    "query",
    [
        "",
        'state:running family:gpt method:oelm lr>=1e-3 "tiny"',
        "state:failed,running",
        "-state:failed",
        "state!=failed",
        "seed:42 seed<43",
        "train.lr=0.001",
        "tag:paper",
        "data:tiny",
        "step>60k",
        'tiny oelm "stories, oelm"',
        "reason:none",
        "STATE:Running",
    ],
)
def test_a_query_that_describes_the_run_finds_it(query):
    assert parse(query).matches(RUN)


@pytest.mark.parametrize(
    "query",
    ["state:failed", "lr>1e-3", "seed:4", "-tag:keep", "bert", "unknown:1", "step<1m -family:gpt", "state!=running"],
)
def test_a_query_that_does_not_describe_the_run_leaves_it_out(query):
    assert not parse(query).matches(RUN)


def test_a_number_that_is_not_one_is_said_and_filters_nothing():
    query = parse("lr>=abc state:running")
    assert query.problem == "lr>= needs a number"
    assert query.matches(RUN)


@pytest.mark.parametrize("half", ["state:", 'state:running "ti', "lr>=", "-", '"', "- "])
def test_a_half_typed_query_already_filters_by_what_is_clear(half):
    assert parse(half).matches(RUN)


@given(st.text(max_size=40))
def test_no_text_makes_the_query_raise(text):
    parse(text).matches(RUN)
