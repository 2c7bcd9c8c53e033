"""One search for everything, and a filter for whatever pane has the focus."""

from __future__ import annotations

import pytest
from textual.command import CommandPalette

from oelm_tui.help_topics import TOPICS
from oelm_tui.render.preset_rows import found_rows
from oelm_tui.screens.explained import setting_lines, topic_lines
from oelm_tui.search import find
from oelm_tui.snapshots.sampler import LabSampler
from tests.functional.tui_lab import catalogue, drive, press, run_id, settle, sources, text_of, wait_until


@pytest.fixture
def snapshot(lab):
    sampler = LabSampler(sources(lab))
    sampler.catalogue = catalogue()
    sampler.sample()
    return sampler.sample()


@pytest.mark.parametrize(
    ("query", "kind", "name"),
    [
        ("GPT-02", "preset", "GPT-02"),
        ("gpt-02 running", "run", run_id("GPT-02", 2)),
        ("deadline", "run", run_id("XNLI-02", 7)),
        ("gpt-tinystories", "study", "gpt-tinystories"),
        ("train.lr", "setting", "train.lr"),
        ("smoothing", "help", "Curves"),
        ("confounds", "help", "Grades of the audit"),
    ],
)
def test_the_first_that_is_found_is_what_was_meant(snapshot, query, kind, name):
    _, thing = find(query, snapshot)[0]
    assert (thing.kind, thing.name) == (kind, name)


def test_every_word_must_be_found_and_of_each_kind_only_some_are_shown(snapshot):
    assert find("gpt-02 sst2", snapshot) == []
    assert find("", snapshot) == []
    kinds = [thing.kind for _, thing in find("a", snapshot)]
    assert max(kinds.count(kind) for kind in kinds) <= 12
    assert {"preset", "study", "run", "setting", "help"} <= set(kinds)


async def choose(app, pilot, words: str) -> None:
    """Opens the search, types, and takes the first of what was found."""
    await pilot.press("ctrl+p")
    await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))
    await pilot.press(*words)
    await wait_until(pilot, lambda: f": {words.split()[0]}".lower() in text_of(app).lower())
    await pilot.pause(0.3)
    await pilot.press("enter")
    await settle(pilot)


def test_a_preset_is_found_and_gone_to_although_its_group_is_folded(lab):
    async def script(app, pilot):
        tree = app.screen.tree_of_presets
        tree.opened = set()
        await choose(app, pilot, "XNLI-02")
        assert tree.key == "arm/XNLI-02"
        assert app.focused is tree
        assert app.screen.card_key == "arm/XNLI-02"

    drive(lab, script)


def test_a_setting_is_explained_with_what_the_presets_set_it_to(lab):
    async def script(app, pilot):
        await choose(app, pilot, "train.lr")
        assert "What the presets set it to" in text_of(app)
        await press(pilot, "escape")
        assert app.screen.pane == "runs"

    drive(lab, script)
    text = "\n".join("".join(part for part, _ in line) for line in setting_lines("train.lr", catalogue(), 80))
    assert "2e-5" in text


def test_topics_have_words_that_fit(lab):
    for topic in TOPICS:
        assert topic_lines(topic.title, 60)


def test_the_filter_is_that_of_the_pane_with_the_focus(lab):
    async def script(app, pilot):
        tree, table = app.screen.tree_of_presets, app.screen.runs_table
        everything = list(tree.keys)
        await press(pilot, "1", "slash", *"xnli", "space", *"freeze")
        assert [key for key in tree.keys if key.startswith("arm/")] == ["arm/XNLI-02"]
        assert tree.key == "arm/XNLI-02"
        assert len(table.keys) == 7
        await press(pilot, "enter")
        assert app.focused is tree
        await press(pilot, "escape")
        assert tree.keys == everything
        await press(pilot, "2", "slash", *"failed", "escape")
        assert app.focused is table
        assert len(table.keys) == 7

    drive(lab, script)


def test_a_text_shows_only_the_lines_that_were_asked_for(lab):
    async def script(app, pilot):
        await press(pilot, "2", "right_square_bracket", "right_square_bracket", "3")
        assert app.screen.panel.tab == "config"
        text = app.screen.query_one("#text")
        whole = len(text.shown)
        await press(pilot, "slash", *"lr", "enter")
        assert 0 < len(text.shown) < whole
        assert app.focused is text
        await press(pilot, "escape")
        assert len(text.shown) == whole

    drive(lab, script)


def test_filtering_presets_keeps_groups_that_have_something():
    keys = [row.key for row in found_rows(catalogue(), (), "mnli")]
    assert keys == ["family/bert", "data/bert/mnli", "arm/mnli-baseline", "arm/mnli-oelm"]
    assert found_rows(catalogue(), (), "no such thing") == []
