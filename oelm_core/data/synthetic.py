"""Demo data that needs no download: generated reviews and stories, the same bytes for a seed on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from oelm_core.data.files import SEPARATOR, new_folder
from oelm_core.errors import NotFound, did_you_mean, refusing

VERSION = 2
"""Part of the cache folder's name; raise it whenever a change to the grammars changes the text."""

T = TypeVar("T")
_MASK = (1 << 64) - 1


def write_sentiment(folder: Path, seed: int = 0, train: int = 16000, valid: int = 1000) -> None:
    """Writes train.tsv and valid.tsv (`sentence<TAB>label`) into a folder; no sentence is in both."""
    reviews = _different(review, seed, train + valid)
    lines = [f"{sentence}\t{label}" for sentence, label in reviews]
    _write(folder / "train.tsv", ["sentence\tlabel", *lines[:train]])
    _write(folder / "valid.tsv", ["sentence\tlabel", *lines[train:]])


def write_stories(folder: Path, seed: int = 0, train: int = 8000, valid: int = 400) -> None:
    """Writes train.txt and valid.txt, a story a line with `<|endoftext|>` between; no story is in both."""
    told = _different(story, seed, train + valid)
    for split, stories in (("train", told[:train]), ("valid", told[train:])):
        _write(folder / f"{split}.txt", (line for story in stories for line in (story, SEPARATOR)))


def vocabulary() -> list[str]:
    """Every word of both demo sets, sorted, without special tokens.

    Words and signs are separated by single spaces in the text, so splitting at spaces is the whole tokenizer.
    """
    return sorted(review_words() | story_words())


def ensure(name: str, cache: Path) -> Path:
    """The folder of a demo set inside `cache`, generated if it is not there yet."""
    writers = {"demo-sentiment": write_sentiment, "demo-stories": write_stories}
    if name not in writers:
        near = did_you_mean(name, writers) or f" Known: {', '.join(writers)}."
        raise NotFound(f"no demo data named '{name}'.{near}")
    folder = cache / f"{name}-v{VERSION}"
    if not folder.is_dir():
        with refusing(f"cannot write {name} to {cache}"), new_folder(folder) as draft:
            writers[name](draft)
    return folder


def _different(draw: Callable[[Dice], T], seed: int, count: int) -> list[T]:
    """`count` different draws in the order they came."""
    dice = Dice(seed)
    found: dict[T, None] = {}
    while len(found) < count:
        found[draw(dice)] = None
    return list(found)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


class Dice:
    """A random generator of our own, SplitMix64: a seed gives the same text on every platform and Python version.

    Whole numbers only, so neither float rounding nor changes to `random.choice` can reach the text.
    """

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """A whole number below 2**64."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        return self.next() % limit

    def percent(self, chance: int) -> bool:
        """True in `chance` of 100 throws."""
        return self.below(100) < chance

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def pick_several(self, options: Sequence[T], count: int) -> list[T]:
        """`count` different options in random order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(count)]


# Short reviews, liked or not, in which counting good and bad words does not give the answer: the label is the writer's
# own verdict on the work (a film, a song). Around it stand negations, verdicts on things that do not matter (the seats,
# the weather), other people's opinions, and concessions in which the main clause wins. So the answer depends on which
# word belongs to which noun, and on who says it.

WORKS = ("film", "novel", "song", "play", "show", "poem", "opera", "album")
ASIDES = ("coffee", "weather", "hotel", "traffic", "ticket", "coat", "soup", "garden")
GOOD = (
    *("lovely", "superb", "charming", "pleasant", "clever", "warm", "delightful", "fresh"),
    *("smooth", "splendid", "cosy", "graceful", "bright", "thrilling", "gentle", "perfect"),
)
BAD = (
    *("awful", "boring", "clumsy", "nasty", "dull", "stale", "noisy", "weak"),
    *("ugly", "shabby", "gloomy", "tedious", "bitter", "broken", "silly", "dreadful"),
)
PEOPLE = ("friend", "brother", "sister", "neighbour", "boss", "aunt", "teacher", "cousin")
DEGREES = ("", "", "", "rather ", "really ", "quite ")
DETAILS = ("", "", "", " of last week", " on monday", " near the station", " we all know", " in this town")

PLAIN = (
    "the {thing}{detail} was {degree}{word}",
    "i found the {thing}{detail} {degree}{word}",
    "to me the {thing}{detail} seemed {degree}{word}",
)
NEGATED = (
    "the {thing}{detail} was not {word}",
    "i never found the {thing}{detail} {word}",
    "the {thing}{detail} was far from {word}",
    "nothing about the {thing}{detail} seemed {word}",
)
HEARSAY = (
    "my {person} called the {thing}{detail} {degree}{word}",
    "people say the {thing}{detail} is {degree}{word}",
    "an advert promised a {word} {thing}{detail}",
)
DENIED_HEARSAY = (
    "my {person} said the {thing}{detail} was not {word}",
    "people deny that the {thing}{detail} is {word}",
)
JOINED = ("{own} , and {aside}", "{aside} , and {own}", "{own} , while {aside}", "{aside} , while {own}")
CONCEDED = ("{aside} , but {own}", "although {aside} , {own}", "{own} , although {aside}")


def review(dice: Dice) -> tuple[str, int]:
    """One review and its label: 1 when the writer liked the work, else 0."""
    label, work = dice.below(2), dice.pick(WORKS)
    own = _opinion(dice, PLAIN, NEGATED, work, label)
    kind, against = dice.below(10), dice.percent(60)
    other = 1 - label if against else label
    if kind < 2:
        return f"{own} .", label
    if kind < 5:
        aside = _opinion(dice, PLAIN, NEGATED, dice.pick(ASIDES), other)
    elif kind < 8:
        aside = _opinion(dice, HEARSAY, DENIED_HEARSAY, work, other)
    else:  # two verdicts of the writer: the concession loses, so they must differ
        aside, against = _opinion(dice, PLAIN, NEGATED, work, 1 - label), True
    conceded = against and (kind >= 8 or dice.percent(50))
    return dice.pick(CONCEDED if conceded else JOINED).format(own=own, aside=aside) + " .", label


def review_words() -> set[str]:
    """Every word and sign a review can hold."""
    templates = (*PLAIN, *NEGATED, *HEARSAY, *DENIED_HEARSAY, *JOINED, *CONCEDED, *DETAILS, *DEGREES)
    fixed = {token for template in templates for token in template.split() if "{" not in token}
    return fixed | {*WORKS, *ASIDES, *GOOD, *BAD, *PEOPLE, "."}


def _opinion(dice: Dice, plain: tuple[str, ...], negated: tuple[str, ...], thing: str, liked: int) -> str:
    """An opinion on a thing, in a quarter of the cases said by denying the opposite."""
    denied = dice.percent(25)
    word = dice.pick(GOOD if liked != denied else BAD)
    template, person = dice.pick(negated if denied else plain), dice.pick(PEOPLE)
    return template.format(thing=thing, word=word, person=person, degree=dice.pick(DEGREES), detail=dice.pick(DETAILS))


# Short stories that can only be continued well by looking back. A name settles every later pronoun; the find, its
# colour and its place come back in the middle and at the end; and in some stories a second find is offered and refused,
# so that the nearest one is not always the right one.

GIRLS = ("mia", "anna", "clara", "lena", "rosa", "vera")
BOYS = ("tom", "ben", "paul", "oscar", "hugo", "max")
PRONOUNS = {
    "girl": {"they": "she", "them": "her", "their": "her"},
    "boy": {"they": "he", "them": "him", "their": "his"},
}
COLOURS = ("red", "blue", "green", "yellow", "white", "black")
FINDS = ("key", "ring", "shell", "coin", "feather", "bell", "stone", "ribbon")
PLACES = ("bridge", "mill", "river", "forest", "barn", "lake")
ANIMALS = ("fox", "crow", "goat", "cat", "hare", "duck")
RELATIVES = ("mother", "father", "grandmother", "uncle")

OPENINGS = (
    "a {kind} named {name} found a {colour} {find} near the {place} .",
    "near the {place} a {kind} named {name} saw a {colour} {find} .",
    "{name} was a curious {kind} . {they} found a {colour} {find} near the {place} .",
)
REFUSALS = (
    "a {animal} offered {them} a {colour2} {find2} , but {name} kept the {colour} {find} .",
    "a {animal} had a {colour2} {find2} , but {they} liked the {colour} {find} more .",
)
CARES = (
    "{name} put the {colour} {find} into {their} pocket .",
    "{they} hid the {colour} {find} from a {animal} .",
    "{name} cleaned the {colour} {find} with {their} sleeve .",
    "{they} dropped the {colour} {find} and {name} picked it up .",
)
JOURNEYS = (
    "{name} walked away from the {place} .",
    "a {animal} followed {name} from the {place} .",
)
ENDINGS = (
    '" what is it ? " asked {their} {relative} . " a {colour} {find} from the {place} , " said {name} .',
    "at home {name} told {their} {relative} about the {colour} {find} near the {place} .",
    "{name} gave the {colour} {find} to {their} {relative} and went back to the {place} .",
)


def story(dice: Dice) -> str:
    """One story on one line, its words and signs separated by spaces."""
    kind = dice.pick(("girl", "boy"))
    find, find2 = dice.pick_several(FINDS, 2)
    colour, colour2 = dice.pick_several(COLOURS, 2)
    facts = {
        "kind": kind,
        "name": dice.pick(GIRLS if kind == "girl" else BOYS),
        **PRONOUNS[kind],
        "find": find,
        "find2": find2,
        "colour": colour,
        "colour2": colour2,
        "place": dice.pick(PLACES),
        "relative": dice.pick(RELATIVES),
    }
    middle = [*dice.pick_several(CARES, 2), dice.pick(JOURNEYS)]
    if dice.percent(30):
        middle[0] = dice.pick(REFUSALS)
    parts = [dice.pick(OPENINGS), *dice.pick_several(middle, len(middle)), dice.pick(ENDINGS)]
    return " ".join(part.format(animal=dice.pick(ANIMALS), **facts) for part in parts)


def story_words() -> set[str]:
    """Every word and sign a story can hold."""
    templates = " ".join((*OPENINGS, *REFUSALS, *CARES, *JOURNEYS, *ENDINGS))
    fixed = {token for token in templates.split() if "{" not in token}
    lists = (GIRLS, BOYS, COLOURS, FINDS, PLACES, ANIMALS, RELATIVES, PRONOUNS)
    listed = {token for options in lists for option in options for token in option.split()}
    return fixed | listed | {pronoun for forms in PRONOUNS.values() for pronoun in forms.values()}
