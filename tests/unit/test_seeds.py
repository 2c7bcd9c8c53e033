"""Seeds as people write them."""

from __future__ import annotations

import pytest

from oelm_core.config.seeds import parse_seeds
from oelm_core.errors import BadInput


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1", (42,)),
        ("3", (42, 43, 44)),
        ("42-44", (42, 43, 44)),
        ("42,77", (42, 77)),
        ("42 43", (42, 43)),
        ("7,", (7,)),
        ("7-7", (7,)),
        ("1, 3-5,4", (1, 3, 4, 5)),
    ],
)
def test_a_count_a_range_and_a_list_are_read(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--seeds : write a count (3), a range (42-44), or seeds with commas between (42,77)."),
        ("abc", "--seeds abc: write a count (3)"),
        ("-3", "--seeds -3: write a count (3)"),
        ("4.5", "--seeds 4.5: write a count (3)"),
        ("0", "--seeds 0: at least one seed is needed."),
        ("44-42", "--seeds 44-42: 44-42 runs backwards; write 42-44."),
        ("42", "--seeds 42: a number alone is a count; for this one seed write '42,', for so many 42-83."),
        ("0-5000000000", "--seeds 0-5000000000: that is more than 1000 seeds."),
    ],
)
def test_nonsense_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_seeds(text)
    assert str(refused.value).startswith(sentence)
