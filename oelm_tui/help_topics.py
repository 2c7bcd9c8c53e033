"""Short explanations of what the screen shows, for the search: what a sign, a state, a word or a language means."""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    title: str
    text: str
    """Paragraphs; a line that is indented is an example."""

    @property
    def words(self) -> str:
        return f"{self.title} {self.text}".lower()


TOPICS = (
    Topic(
        "Filtering runs",
        "Words are looked for in id, name, title, method, data, changed settings, tags and note. key:value "
        "asks about one thing, with several values for any of them; numbers take >, >=, <, <=; a minus in "
        "front means not.\n"
        "  state:running,waiting\n"
        "  family:gpt method:oelm\n"
        "  lr>=1e-3 step>10k seed:42\n"
        "  -tag:old reason!=oom\n"
        '  "tiny stories"',
    ),
    Topic(
        "States of a run",
        "queued: its folder is there and its runner is not up yet, or Slurm has it pending. waiting: for a "
        "card or another run. starting: the worker is up, no step yet. running, stopping. finished, failed "
        "and stopped are final. lost: its processes are gone without a word. unknown: another host whose "
        "heartbeat is old.",
    ),
    Topic(
        "The attention mark",
        "A run that failed, stalled or lost its numbers since somebody looked has a mark, even if it "
        "recovered by itself. It goes when you have turned to the run; a takes it away at once. B and M turn "
        "bell and messages off and on.",
    ),
    Topic(
        "Marks of presets",
        "A hollow circle was never run, a half one runs or is partly done, a full one is done. Then come the "
        "number of seeds, our mean over seeds and the published value.",
    ),
    Topic(
        "A preset's card",
        "Enter on a preset opens it: the question, the recipe and what it changes from its baseline, exact "
        "parameter counts, published figures with what speaks against them, our runs, the cost here, the "
        "command and every setting.",
    ),
    Topic(
        "Grades of the audit",
        "breaks: the gap or the figure does not stand. confounds: something else than the method may explain "
        "it, and a control would settle that. note: worth knowing. The audit looks at our runs and at the "
        "published figures alike.",
    ),
    Topic(
        "Verdicts and significance",
        "An arm is judged over seeds: met, missed or not decided against its target, with an interval of the "
        "gap. One seed cannot tell a method from luck; the comparison says how many would.",
    ),
    Topic(
        "Costs in the launch form",
        "Time by the pace of earlier runs of the same model, data and batch on the same kind of device; else "
        "a bound by the work of the nearest earlier run; else reckoned from the data sheet of the card or the "
        "measured speed of the processor, as `oelm estimate` does. Memory by such runs, else counted from the sizes.",
    ),
    Topic(
        "Curves",
        "v next quantity, x step, time or tokens, g linear or logarithmic, m smoothing, b the baseline. With "
        "the chart in focus left and right read values, plus and minus zoom, 0 shows everything.",
    ),
    Topic(
        "Searching a log",
        "f opens it over the whole screen. / searches, lower case finds any case; n and N go to the next and "
        "the previous hit, F shows only lines with the text, E jumps to the newest error, w wraps, end "
        "follows.",
    ),
    Topic(
        "Columns of the runs table",
        "O chooses them and the choice is kept. Columns without content take no room; where it is narrow the "
        "least important go first. o sorts by the next one, a click on a heading by that one.",
    ),
    Topic(
        "Tags, notes and names",
        "t writes name, tags and note of a run, or the tags of all marked ones: -old takes a tag away. n "
        "renames. All of it is in notes.json of the run's folder; the folder keeps its id.",
    ),
    Topic(
        "Where things are kept",
        "Runs are folders under $OELM_HOME/runs. OELM_HOME is the variable, else ./.oelm if it exists, else "
        "~/.oelm. What this screen prefers is in tui.json there, tracebacks of a crash in crashes.",
    ),
    Topic(
        "Colours, ASCII, copying",
        "T goes through the themes. NO_COLOR=1 draws without colour, OELM_ASCII=1 without anything but ASCII."
        " Copying goes through the terminal (OSC 52), in tmux through its buffer too.",
    ),
    Topic(
        "Looking without touching",
        "oelm --readonly shows everything and changes nothing: no launch, no stop, no notes. Leaving the "
        "screen stops no run.",
    ),
)
