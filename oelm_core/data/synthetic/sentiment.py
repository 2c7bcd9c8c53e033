"""Short reviews, liked or not, in which counting good and bad words does not give the answer.

The label is the writer's own verdict on the work (a film, a song). Around it stand negations, verdicts on things that
do not matter (the seats, the weather), other people's opinions, and concessions in which the main clause wins: the
answer depends on which word belongs to which noun, and on who says it.
"""

from __future__ import annotations

from oelm_core.data.synthetic.dice import Dice

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


def words() -> set[str]:
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
