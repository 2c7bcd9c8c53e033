"""The one registry of what keys do. Bindings, footer hints, help and command palette are all made from it.

A new key is a line in ACTIONS and a method `action_<name>` of the screen or widget whose BINDINGS name its place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode
from textual.screen import Screen

from oelm_tui import glyphs


@dataclass(frozen=True)
class Action:
    """`where` is the place (a screen, a kind of widget) that has the key; `writes` ones are refused in --readonly."""

    name: str
    keys: str
    title: str
    help: str
    where: str = "home"
    group: str = "Runs"
    writes: bool = False
    hint: int = 0
    """Place in the footer's order, 0 for not shown there; the lowest stay when it gets narrow."""
    palette: bool = True

    @property
    def id(self) -> str:
        return f"{self.where}.{self.name}"

    @property
    def first_key(self) -> str:
        return shown_key(self.keys.split(",")[0])

    @property
    def tab(self) -> tuple[str, str]:
        """Name and label (`^s Launch`) for a bar of tabs that do what the keys do."""
        return self.name, f"{self.first_key} {self.title}"


ACTIONS: tuple[Action, ...] = (
    Action("launch", "l", "Launch", "Start the preset under the cursor, or all marked ones", hint=1, writes=True),
    Action("demo", "d", "Demo", "Train the two-minute demo on the processor", writes=True),
    Action("compare", "c", "Compare", "Compare the marked runs, or the run's arm with its baseline", hint=2),
    Action("do('stop')", "s", "Stop", "Checkpoint and stop the run (or the marked ones)", hint=4, writes=True),
    Action("do('kill')", "K", "Kill", "End the run at once, without a checkpoint", writes=True),
    Action("do('resume')", "r", "Resume", "Continue from the newest complete checkpoint", hint=5, writes=True),
    Action("do('delete')", "delete,D", "Delete", "Delete the run's folder; never a live one", writes=True),
    Action("compare(True)", "e", "Export", "Write the comparison of what is marked to a file", hint=7),
    Action("filter", "slash", "Filter", "Filter the presets, the runs or the text that has the focus", hint=3),
    Action("sort", "o", "Sort", "Sort runs by the next column; a click on a heading does too"),
    Action("mark", "space", "Mark", "Mark or unmark; curves of marked runs are drawn together"),
    Action("unmark", "escape", "Clear", "Clear the filter and all marks; from a card back to the presets"),
    Action("note", "t", "Tag, note", "Name, tags and note of the run; tags of all marked ones", writes=True),
    Action("rename", "n", "Rename", "Give the run a name of its own; its folder keeps its id", writes=True),
    Action("columns", "O", "Columns", "Choose the columns of the runs table"),
    Action("copy_id", "y", "Copy id", "Copy the run's id through the terminal"),
    Action("copy_path", "p", "Copy path", "Show and copy the run's folder path"),
    Action("full_log", "f", "Full log", "The log over the whole screen; marked runs: theirs by time", hint=8),
    Action("seen", "a", "Seen", "Clear the run's attention mark"),
    Action("step_pane(1)", "tab", "Pane", "Next pane", group="Moving", hint=6),
    Action("step_pane(-1)", "shift+tab", "Back", "Previous pane", group="Moving"),
    Action("pane('presets')", "1", "Presets", "Go to the presets", group="Moving"),
    Action("pane('runs')", "2", "Runs", "Go to the runs", group="Moving"),
    Action("pane('run')", "3", "Run", "Go to the selected run's tabs", group="Moving"),
    Action("pane('devices')", "4", "Devices", "GPUs with their history and processes", group="Moving"),
    Action("step_tab(1)", "right_square_bracket", "Next tab", "Next tab of the run", group="Moving"),
    Action("step_tab(-1)", "left_square_bracket", "Previous tab", "Previous tab of the run", group="Moving"),
    Action("zoom_pane", "z", "Whole screen", "Give the pane the whole screen, and back", group="Moving"),
    Action("move(-1)", "up,k", "Up", "One line up in a list or text", where="lines", group="Moving", palette=False),
    Action("move(1)", "down,j", "Down", "One line down", where="lines", group="Moving", palette=False),
    Action("page(-1)", "pageup", "Page up", "One page up", where="lines", group="Moving", palette=False),
    Action("page(1)", "pagedown", "Page down", "One page down", where="lines", group="Moving", palette=False),
    Action("move(-1000000)", "home", "Top", "To the first line", where="lines", group="Moving", palette=False),
    Action("move(1000000)", "end,G", "End", "To the last line", where="lines", group="Moving", palette=False),
    Action("choose", "enter", "Open", "Open the run, the preset's card", where="table", group="Moving", palette=False),
    Action("fold", "left", "Fold", "Fold a group of presets", where="presets", group="Moving", palette=False),
    Action("unfold", "right", "Unfold", "Unfold a group of presets", where="presets", group="Moving", palette=False),
    Action("chart('quantity')", "v", "Next curve", "Four at once, then one after the other", group="Curves"),
    Action("chart('x')", "x", "x axis", "Step, time or tokens", group="Curves"),
    Action("chart('log')", "g", "Log scale", "Linear or logarithmic y", group="Curves"),
    Action("chart('smooth')", "m", "Smoothing", "What fits the points, off, 0.6, 0.9, 0.97, 0.99", group="Curves"),
    Action("chart('baseline')", "b", "Baseline", "Show the baseline's curve too", group="Curves"),
    Action("chart('cursor_left')", "left", "Cursor left", "Values further left", where="curves", group="Curves"),
    Action("chart('cursor_right')", "right", "Cursor right", "Values further right", where="curves", group="Curves"),
    Action("chart('zoom_in')", "plus,equals_sign", "Zoom in", "Around the cursor", where="curves", group="Curves"),
    Action("chart('zoom_out')", "minus", "Zoom out", "Wider", where="curves", group="Curves"),
    Action("chart('reset')", "0", "All", "The whole curve, no cursor", where="curves", group="Curves"),
    Action("end_process", "X", "End process", "End your process", where="devices", group="Devices", writes=True),
    Action("log('up')", "up,k", "Up", "One line up", where="log", group="Log", palette=False),
    Action("log('down')", "down,j", "Down", "One line down", where="log", group="Log", palette=False),
    Action("log('page_up')", "pageup,b", "Page up", "One page up", where="log", group="Log", palette=False),
    Action("log('page_down')", "pagedown", "Page down", "One page down", where="log", group="Log", palette=False),
    Action("log('top')", "home", "Top", "The beginning of the log", where="log", group="Log", palette=False),
    Action("log('end')", "end,G", "Follow", "The end of the log, following it", where="log", group="Log", hint=6),
    Action("log('left')", "left", "Left", "Back to the left in long lines", where="log", group="Log", palette=False),
    Action("log('right')", "right", "Right", "More of long lines", where="log", group="Log", palette=False),
    Action("log('search')", "slash", "Search", "Find text; lower case: any case", where="log", group="Log", hint=1),
    Action("close_search", "escape", "No search", "Leave the search field", where="search", group="Log", palette=False),
    Action("log('next')", "n", "Next hit", "Next line with the text", where="log", group="Log", hint=2),
    Action("log('previous')", "N", "Previous hit", "Previous line with the text", where="log", group="Log"),
    Action("log('only')", "F", "Hits only", "Show only lines with the text", where="log", group="Log", hint=3),
    Action("log('wrap')", "w", "Wrap", "Wrap long lines, or cut them", where="log", group="Log", hint=5),
    Action("log('colours')", "C", "Colours", "Keep or strip the log's own colours", where="log", group="Log"),
    Action(
        "log('error')",
        "E",
        "To the error",
        "To the newest error; again: the one before",
        where="log",
        group="Log",
        hint=4,
    ),
    Action("dismiss", "escape,q,f", "Back", "Back from the full log", where="full_log", group="Log", hint=7),
    Action("go", "ctrl+s,f5", "Launch", "Start what the right side shows", where="launch", group="Launch"),
    Action("copy", "ctrl+y", "Copy", "Copy the headless command", where="launch", group="Launch"),
    Action("choose_device", "space", "Device", "Choose the device; cards add up", where="launch", group="Launch"),
    Action("complete", "tab", "Complete", "Complete a setting's key or value", where="settings", group="Launch"),
    Action("dismiss", "escape,q", "Back", "Back, starting nothing", where="launch", group="Launch"),
    Action("turn(-1)", "left", "Previous", "Previous data set or model", where="compare", group="Compare", hint=1),
    Action("turn(1)", "right", "Next", "Next data set or model", where="compare", group="Compare", hint=2),
    Action("part(1)", "tab", "Next part", "Result, curves or fairness", where="compare", group="Compare", hint=3),
    Action("other_pair", "o", "Other arms", "Bring in the arms not shown", where="compare", group="Compare"),
    Action("baseline", "b", "Baseline", "Take the next arm as the baseline", where="compare", group="Compare"),
    Action("samples", "t", "Samples", "Generated text side by side", where="compare", group="Compare", hint=4),
    Action("export", "e", "Export", "Write what is on the screen to a file", where="compare", group="Compare", hint=5),
    Action("copy", "y", "Copy", "Copy the Markdown through the terminal", where="compare", group="Compare", hint=6),
    Action("chart('quantity')", "v", "Next curve", "Metric, loss, training loss", where="compare", group="Compare"),
    Action("chart('log')", "g", "Log scale", "Linear or logarithmic y", where="compare", group="Compare"),
    Action("dismiss", "escape,q", "Back", "Back to the home screen", where="compare", group="Compare", hint=7),
    Action("dismiss", "escape,q,t", "Back", "Back from the samples", where="samples", group="Compare"),
    Action("answer('y')", "y", "Yes", "Do what a question asks", where="question", group="Dialogs", palette=False),
    Action("answer('K')", "K", "Kill", "Yes, where it asks for K", where="question", group="Dialogs", palette=False),
    Action("answer('D')", "D", "Delete", "Yes, where it asks for D", where="question", group="Dialogs", palette=False),
    Action("answer('X')", "X", "End", "Yes, where it asks for X", where="question", group="Dialogs", palette=False),
    Action("answer('n')", "n", "No", "Change nothing", where="question", group="Dialogs", palette=False),
    Action("dismiss(False)", "escape", "Cancel", "Change nothing", where="question", group="Dialogs", palette=False),
    Action("dismiss", "escape", "Cancel", "Close a form, saving nothing", where="form", group="Dialogs", palette=False),
    Action(
        "choose_column", "space", "Choose", "Put a column in, or out", where="columns", group="Dialogs", palette=False
    ),
    Action("dismiss", "escape,q,O", "Close", "Close the columns", where="columns", group="Dialogs", palette=False),
    Action("dismiss", "escape,q,question_mark", "Close", "Close this", where="help", group="Dialogs", palette=False),
    Action("help", "question_mark", "Help", "All keys", where="app", group="Lab", hint=10),
    Action(
        "command_palette", "ctrl+p", "Find", "Anything by any word", where="app", group="Lab", hint=9, palette=False
    ),
    Action("next_theme", "T", "Theme", "Dark, light, 16 colours dark, 16 colours light", where="app", group="Lab"),
    Action("toggle_bell", "B", "Bell", "Ring when a run ends or needs a look", where="app", group="Lab"),
    Action("toggle_toasts", "M", "Messages", "Say when a run ends or needs a look", where="app", group="Lab"),
    Action("try_notify", "ctrl+n", "Try notify", "Run settings.yaml's command for this run", where="app", group="Lab"),
    Action("reload", "ctrl+r", "Reload presets", "Read the preset files again", where="app", group="Lab"),
    Action("suspend_process", "ctrl+z", "Suspend", "To the shell; fg comes back", where="app", group="Lab"),
    Action("quit", "q,ctrl+q", "Quit", "Leave; runs continue", where="app", group="Lab", hint=11),
)
BY_ID = {action.id: action for action in ACTIONS}


def actions_of(where: str, readonly: bool = False) -> Iterator[Action]:
    return (action for action in ACTIONS if action.where == where and not (readonly and action.writes))


def bindings(*places: str) -> list[BindingType]:
    """For the BINDINGS of a screen or widget. What writes is refused in --readonly when pressed, with a word why."""
    return [
        Binding(action.keys, action.name, action.title, show=False, id=action.id)
        for place in places
        for action in actions_of(place)
    ]


def hints(*places: str, readonly: bool = False) -> list[Action]:
    """What the footer shows, most important first; not what a key would do, had an earlier place not taken it."""
    taken: set[str] = set()
    shown: list[Action] = []
    for place in places:
        here = list(actions_of(place, readonly))
        shown += [action for action in here if action.hint and action.keys.split(",")[0] not in taken]
        taken.update(key for action in here for key in action.keys.split(","))
    return sorted(shown, key=lambda action: action.hint)


def bound_to(node: DOMNode) -> Iterator[Action]:
    """The actions whose keys a screen or widget answers to, by the BINDINGS of its class."""
    for owner in type(node).__mro__:
        for binding in vars(owner).get("BINDINGS", ()):
            if isinstance(binding, Binding) and binding.id in BY_ID:
                yield BY_ID[binding.id]


def owner_of(screen: Screen[object], action: Action) -> DOMNode | None:
    """Who on a screen answers to an action's key: the app, the screen, or a widget on it."""
    nodes = (screen.app, screen, *screen.walk_children())
    return next((node for node in nodes if action in bound_to(node)), None)


def groups_here(screen: Screen[object]) -> list[str]:
    """Titles of the keys' groups, those of what has the focus and of the screen first."""
    here: list[str] = []
    node: DOMNode | None = screen.focused or screen
    while node is not None:
        here += [action.group for action in bound_to(node) if action.group != "Moving"]
        node = node.parent
    return list(dict.fromkeys([*here, *(action.group for action in ACTIONS)]))


class ActionPalette(Provider):
    """The command palette: every action of the app, of the screen in front and of what is on it."""

    def _actions(self) -> Iterator[tuple[Action, DOMNode]]:
        owners: dict[Action, DOMNode] = {}
        for node in (self.app, self.screen, *self.screen.walk_children()):
            for action in bound_to(node):
                owners.setdefault(action, node)
        return ((action, owners[action]) for action in ACTIONS if action in owners and action.palette)

    async def discover(self) -> Hits:
        for action, owner in self._actions():
            yield DiscoveryHit(self._label(action), self._call(action, owner), help=action.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action, owner in self._actions():
            label = self._label(action)
            score = max(matcher.match(label), matcher.match(action.help) * 0.8)
            if score > 0:
                yield Hit(score, matcher.highlight(label), self._call(action, owner), help=action.help)

    def _call(self, action: Action, owner: DOMNode) -> Callable[[], Awaitable[bool]]:
        return partial(self.app.run_action, action.name, owner)

    @staticmethod
    def _label(action: Action) -> str:
        return f"{action.group}: {action.title} ({action.first_key})".replace("[", "\\[")


_KEY_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "delete": "del",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "escape": "esc",
}


_ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓"}


def shown_key(key: str) -> str:
    """A key as people write it: ^p, shift+tab, /. An arrow, lest `left Previous` be read as words."""
    if key.startswith("ctrl+"):
        return "^" + key[5:]
    if key in _ARROWS and not glyphs.signs.ascii_only:
        return _ARROWS[key]
    return _KEY_NAMES.get(key, key)
