"""Short stories that can only be continued well by looking back: at who it is about, what was found, and where.

A name settles every later pronoun; the find, its colour and its place come back in the middle and at the end; and in
some stories a second find is offered and refused, so that the nearest one is not always the right one.
"""

from __future__ import annotations

from oelm_core.data.synthetic.dice import Dice

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


def words() -> set[str]:
    """Every word and sign a story can hold."""
    templates = " ".join((*OPENINGS, *REFUSALS, *CARES, *JOURNEYS, *ENDINGS))
    fixed = {token for token in templates.split() if "{" not in token}
    lists = (GIRLS, BOYS, COLOURS, FINDS, PLACES, ANIMALS, RELATIVES, PRONOUNS)
    told = {token for options in lists for option in options for token in option.split()}
    return fixed | told | {pronoun for forms in PRONOUNS.values() for pronoun in forms.values()}
