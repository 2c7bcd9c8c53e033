"""Presets that nobody should write: each ends in one sentence about its own file, and hides no other preset."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from oelm_core.config import as_dict, config_hash
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.config.limits import planned_steps
from oelm_core.config.plain_yaml import read_yaml_documents
from oelm_core.published.audit import audit_published
from oelm_tui import cli
from oelm_tui.commands.presets import in_reading_order
from tests.hostile_lab import with_raw

MUTATIONS = 300
GOOD = """
id: good
title: A preset that is in order
family: gpt
model: {name: small, shape: {layers: 2, d_model: 64, heads: 4, d_ff: 128, vocab: 500, positions: 64}}
data: {name: tinystories, max_length: 64}
method: {name: baseline}
train: {max_steps: 10, batch_size: 4, lr: 1.0e-3}
"""
ARM = """
id: bad
title: TITLE
extends: good
baseline: good
model: {shape: {layers: LAYERS, d_model: WIDTH, vocab: VOCAB}}
method: {name: oelm, init: head-qr, from: gaussian, freeze: [query, key], unfreeze: UNFREEZE, layers: WHICH}
train: {lr: RATE, max_steps: STEPS}
seed: SEED
KEY: 1
"""
SIZES = {"LAYERS": "2", "WIDTH": "64", "VOCAB": "500"}
RECIPE = {"UNFREEZE": "null", "WHICH": "all", "RATE": "1.0e-3", "STEPS": "10", "SEED": "42"}
PLAIN = {**SIZES, **RECIPE, "TITLE": "An arm", "KEY: 1\n": ""}


def arm(**changes: str) -> str:
    """The arm with raw YAML in some places."""
    text = ARM
    for place, plain in PLAIN.items():
        text = text.replace(place, changes.get(place.partition(":")[0], plain))
    return text


def chain(length: int) -> str:
    links = [f"part: link-{n}\nextends: link-{n + 1}\n" for n in range(length)]
    return "---\n".join([arm().replace("extends: good", "extends: link-0"), *links, f"part: link-{length}\n"])


BAD = {
    "a float by its tag": arm(RATE="!!float abc"),
    "an integer by its tag": arm(STEPS="!!int abc"),
    "a truth by its tag": arm(RATE="!!bool zz"),
    "a time by its tag": arm(RATE="!!timestamp x"),
    "a set by its tag": arm(UNFREEZE="!!set {a, b}"),
    "a python object": arm(RATE="!!python/object/apply:os.system ['true']"),
    "a tag of its own": arm(RATE="!mine 3"),
    "binary": arm(TITLE="!!binary aGVsbG8="),
    "a list as a key": arm(KEY="? [a, b]\n: 1\n"),
    "a map as a key": arm(KEY="? {a: b}\n: 1\n"),
    "a list as a key in flow": arm(UNFREEZE="{[1, 2]: 3}"),
    "an alias of itself": arm(UNFREEZE="&a [*a]"),
    "a merge": arm(UNFREEZE="{<<: {at: 1}}"),
    "a merge of an anchor": arm(UNFREEZE="&x {at: 5}", KEY="more: {<<: *x}\n"),
    "nested lists": arm(UNFREEZE="[" * 10_000 + "]" * 10_000),
    "nested maps": arm(UNFREEZE="{a: " * 10_000 + "1" + "}" * 10_000),
    "nested and never closed": arm(UNFREEZE="[" * 10_000),
    "an integer of 5,000 digits": arm(STEPS="9" * 5_000),
    "a float of 5,000 digits": arm(RATE="0." + "9" * 5_000),
    "a huge exponent": arm(RATE="1e999999999999999999"),
    "a billion layers": arm(LAYERS="1000000000"),
    "a huge vocabulary": arm(VOCAB=str(2**63)),
    "a huge width": arm(WIDTH="1e18"),
    "endless unfreezing": arm(UNFREEZE=".inf"),
    "unfreezing at infinity": arm(UNFREEZE="{at: .inf}"),
    "unfreezing every infinity": arm(UNFREEZE="{at: 1, order: top-down, every: .inf}"),
    "unfreezing at no number": arm(UNFREEZE="{at: .nan}"),
    "an infinite rate": arm(RATE=".inf"),
    "a huge seed": arm(SEED=str(10**30)),
    "layers up to a billion": arm(WHICH="0-999999999"),
    "the first 5,000 digits of layers": arm(WHICH="first:" + "9" * 5_000),
    "a layer beyond counting": arm(WHICH="[" + "9" * 30 + "]"),
    "a title of two lines": arm(TITLE='"one\\ntwo"'),
    "a title that colours": arm(TITLE='"\\e[31mred"'),
    "a title that is a list": arm(TITLE="[a, b]"),
    "a key of two lines": arm(KEY='"one\\ntwo": 1\n'),
    "a control character": arm(TITLE="a\x07b"),
    "a chain of extends": chain(2_000),
    "a circle of extends": arm().replace("extends: good", "extends: bad"),
    "extends that is a map": arm().replace("extends: good", "extends: {a: b}"),
    "extends of lists": arm().replace("extends: good", "extends: [[good]]"),
    "a baseline that is not there": arm().replace("baseline: good", 'baseline: "no\\nsuch"'),
    "a title a megabyte long": arm(TITLE="x" * 2_000_000),
    "settings as run that are no map": arm(KEY="published: {source: x, as_run: {train: 5}}\n"),
    "a rate as run that is a word": arm(KEY="published: {source: x, as_run: {train: {lr: fast}}}\n"),
    "a claim of settings that are none": arm(
        KEY="published: {source: x, claims: [{what: loss, value: 1, source: x, settings: {train: 3}}]}\n"
    ),
    "not a map": "bad\n",
    "a list": "- id: bad\n",
    "torn": arm()[:150],
}


def load(folder: Path, text: str | bytes) -> Catalogue:
    """A catalogue of two files: one in order, and this."""
    experiments = folder / "experiments"
    if not experiments.exists():
        experiments.mkdir(parents=True)
        (experiments / "good.yaml").write_text(GOOD)
    (experiments / "bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return load_folders([folder])


def check(catalogue: Catalogue) -> None:
    """What holds whatever was in the bad file."""
    assert "good" in catalogue.experiments
    for warning in catalogue.warnings:
        assert len(warning.splitlines()) == 1, warning
        assert warning.isprintable(), warning
        assert "cannot be used (" not in warning, warning  # the net below what is foreseen
        assert "bad.yaml" in warning
        assert len(warning) < 2_100
    for experiment in in_reading_order(catalogue):
        config = as_dict(experiment)
        json.dumps(config, allow_nan=False)
        config_hash(config)
        planned_steps(experiment.train, experiment.data)
    for finding in audit_published(catalogue, census=None):
        assert finding.sentence.isprintable()


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_preset_is_one_sentence_and_hides_no_other(tmp_path, kind):
    catalogue = load(tmp_path, BAD[kind])
    check(catalogue)
    assert "bad" not in catalogue.experiments
    assert len(catalogue.warnings) >= 1


def test_the_arm_is_sound_where_nothing_is_done_to_it(tmp_path):
    catalogue = load(tmp_path, arm())
    check(catalogue)
    assert catalogue.warnings == []
    assert set(catalogue.experiments) == {"good", "bad"}


def test_short_chains_of_extends_are_followed_in_any_order(tmp_path):
    catalogue = load(tmp_path, chain(5).replace("part: link-5\n", "part: link-5\nextends: good\n"))
    assert catalogue.warnings == []


def test_extending_many_times_over_is_read_at_once(tmp_path):
    doubled = [f"part: twice-{n}\nextends: [twice-{n + 1}, twice-{n + 1}]\n" for n in range(17)]
    text = "---\n".join(
        [arm().replace("extends: good", "extends: twice-0"), *doubled, "part: twice-17\nextends: good\n"]
    )
    check(load(tmp_path, text))  # 2^17 joins would take a minute


@pytest.mark.parametrize("kind", ["a float by its tag", "nested lists", "a chain of extends", "a title of two lines"])
def test_a_command_that_names_it_exits_2_and_the_list_is_whole(tmp_path, monkeypatch, capsys, kind):
    (tmp_path / "presets" / "experiments").mkdir(parents=True)
    (tmp_path / "presets" / "experiments" / "bad.yaml").write_text(BAD[kind].replace("good", "GPT-01"))
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["oelm", "presets", "show", "bad"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr().err
    assert (end.value.code, len(said.splitlines())) == (2, 1)
    assert "bad.yaml" in said
    monkeypatch.setattr("sys.argv", ["oelm", "presets", "--json"])
    cli.main()
    listed = {row["id"] for row in json.loads(capsys.readouterr().out)}
    assert listed >= {"GPT-01", "sst2-oelm", "demo"}


@pytest.mark.parametrize("title", ["[/nope]", "[bold]loud[/]", "[link=x", "\\[", "back\\", "[@click=app.quit]go[/]"])
def test_markup_in_a_title_is_shown_as_it_is_written(tmp_path, monkeypatch, capsys, title):
    (tmp_path / "presets" / "experiments").mkdir(parents=True)
    (tmp_path / "presets" / "studies").mkdir(parents=True)
    (tmp_path / "presets" / "experiments" / "good.yaml").write_text(
        GOOD.replace("A preset that is in order", json.dumps(title))
    )
    study = {"id": "titled", "title": title, "question": title, "arms": ["good"]}
    (tmp_path / "presets" / "studies" / "titled.yaml").write_text(json.dumps(study))
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    for command in (["presets"], ["presets", "show", "titled"]):
        monkeypatch.setattr("sys.argv", ["oelm", *command])
        cli.main()
        assert title in capsys.readouterr().out


@pytest.mark.parametrize("seed", [str(-(2**63) - 1), str(2**63), "9" * 30])
def test_a_seed_out_of_bounds_starts_nothing(tmp_path, monkeypatch, capsys, seed):
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["oelm", "run", "demo-gpt-oelm", f"--seed={seed}"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, list(tmp_path.iterdir())) == (2, [])
    assert "out of bounds; it should be a number of 64 bits" in capsys.readouterr().err


# -- mutations ---------------------------------------------------------------------------------------------------------

RAW = (
    *("null", "''", "~", "[]", "{}", "[[]]", "{a: 1}", "true", "-1", "0", "1e18", "1e400", ".inf", "-.inf", ".nan"),
    *("9223372036854775808", "9" * 40, "9" * 400, "!!float abc", "!!int x", "&a 1", "*a", "{[1]: 2}", "? [1]", "<<: 1"),
    *("all", "first:99999999", "3-1", "[0, 99999999999]", "'[/nope]'", '"a\\nb"', '"\\0"', '"\\ud800"', "|\n  a\n  b"),
    *("[query, key, query]", "'%s'", "{{}}", "2026-01-01", "0o17", "1_0", "\t", "---", "...", "%YAML 1.1", "é" * 300),
)


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every value inside."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return (
        [path, *(place for key, value in inner for place in places(value, (*path, key)))]
        if path
        else [place for key, value in inner for place in places(value, (key,))]
    )


def mutated(draw: random.Random, texts: list[str]) -> str | bytes:
    """A shipped file, or one of its presets, with something done to it."""
    text = draw.choice(texts)
    kind = draw.randrange(5)
    if kind <= 1:
        content = draw.choice([one for one in read_yaml_documents(text) if one])
        return with_raw(content, draw.choice(places(content)), draw.choice(RAW))
    at = draw.randrange(len(text))
    if kind == 2:
        return text[:at] + draw.choice(RAW) + text[at:]
    if kind == 3:
        return text[:at] + text[at + draw.randrange(1, 40) :]
    torn = bytearray(text.encode())
    for _ in range(draw.randrange(1, 4)):
        torn[draw.randrange(len(torn))] = draw.randrange(256)
    return bytes(torn)


@pytest.mark.parametrize("block", range(6))
def test_no_mutation_of_a_preset_is_unexpected(tmp_path, block):
    files = sorted((SHIPPED / "experiments").glob("*.yaml"))
    shared = (SHIPPED / "experiments" / "_shared.yaml").read_text()
    texts = [
        file.read_text() if file.name == "_shared.yaml" else f"{shared}\n---\n{file.read_text()}" for file in files
    ]
    texts += [file.read_text() for file in sorted((SHIPPED / "studies").glob("*.yaml"))]
    draw = random.Random(f"presets {block}")
    for _ in range(MUTATIONS // 6):
        text = mutated(draw, texts)
        try:
            check(load(tmp_path, text))
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\nof {text!r}") from error
