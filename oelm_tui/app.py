"""The terminal lab: owns the threads that read, the screens that show, and nothing else."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import events
from textual.filter import LineFilter
from textual.reactive import var
from textual.scrollbar import ScrollBar, ScrollBarRender

from oelm_core.errors import LabError
from oelm_core.home import home as lab_home
from oelm_core.home import runs_dir
from oelm_core.plain_text import visible
from oelm_core.runs.store import Run
from oelm_tui import clipboard, glyphs
from oelm_tui.actions import ActionPalette, bindings, groups_here
from oelm_tui.key_queue import KeyQueue
from oelm_tui.messages import CardRead, DetailRead, Sampled
from oelm_tui.palette import DARK, LIGHT, Colourless
from oelm_tui.render.run_rows import ended_words
from oelm_tui.search import LabSearch
from oelm_tui.settings import Settings
from oelm_tui.snapshots.background import BackgroundThread, key_pressed
from oelm_tui.snapshots.cards import Machine, remote_cards
from oelm_tui.snapshots.detail import Detail, DetailReader, DetailRequest
from oelm_tui.snapshots.preset_card import CardReader, CardRequest, FindFacts, ShownCard
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSampler, LabSnapshot, Sources, newest_runs, slurm_silence, write_notes
from oelm_tui.textual_private import HookedApp, command_palette

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.devices.sampler import DeviceSampler

THEMES = ("oelm-dark", "oelm-light", "ansi-dark", "ansi-light")
DEMO_SEED = 42
STALE = 5.0
"""Seconds without a snapshot after which the header says so: the disk hangs, the screen does not."""


class AsciiScrollBars(ScrollBarRender):
    """Ends at whole cells: parts of one need signs that are not ASCII."""

    VERTICAL_BARS = [" "] * 8
    HORIZONTAL_BARS = [" "] * 8


class OelmApp(HookedApp):
    CSS_PATH = "app.tcss"
    TITLE = "OELM"
    BINDINGS = bindings("app")
    COMMANDS = {LabSearch, ActionPalette}
    snapshot: var[LabSnapshot | None] = var(None, always_update=True)
    detail: var[Detail | None] = var(None, always_update=True)
    card: var[ShownCard | None] = var(None, always_update=True)

    def __init__(
        self,
        presets: Path | None = None,
        readonly: bool = False,
        sources: Sources | None = None,
        load: Callable[[], Catalogue] | None = None,
        every: float = 1.0,
        facts: FindFacts | None = None,
    ) -> None:
        """`sources`, `load`, `every` and `facts` are for tests: their own clock, runs, devices and catalogue."""
        super().__init__()
        ScrollBar.renderer = AsciiScrollBars if glyphs.signs.ascii_only else ScrollBarRender
        self.set_class(glyphs.signs.ascii_only, "-ascii")
        self.readonly = readonly
        self.settings = Settings.read(lab_home())
        self._settings_lock = threading.Lock()
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        # Before anything is styled: a theme set later styles everything twice.
        self.theme = self.settings.theme if self.settings.theme in THEMES else THEMES[0]
        if self.no_color:
            self.theme = "ansi-dark"  # the one whose cursors are reversed, not coloured
        self._presets = presets
        self._load = load
        self._devices: DeviceSampler | None = None
        self.sampler = LabSampler(sources or self._own_sources())
        self.crash_file: Path | None = None
        self._when_presets_come: Callable[[], object] | None = None
        self._presets_requested = False
        self._announced: set[tuple[str, str, float]] | None = None
        self._live: set[str] = set()
        self._sampled_at = time.monotonic()
        self.cards = CardReader(facts, keep=not readonly)
        self._card_request: CardRequest | None = None
        self.keys = KeyQueue(self, self._take_input)
        self.input_time = 0.0
        """When the key or click that is being answered was made."""
        self.threads: dict[str, BackgroundThread[Any, Any]] = {
            name: BackgroundThread(name, work, deliver, pause, self.report_error)
            for name, work, deliver, pause in (
                ("lab", lambda _: self.sampler.sample(), lambda new: self.post_message(Sampled(new)), every),
                ("detail", DetailReader().read, lambda new: self.post_message(DetailRead(new)), 2 * every),
                ("catalogue", self._read_catalogue, self._take_catalogue, None),
                ("card", self.cards.read, lambda new: self.post_message(CardRead(new)), None),
                ("facts", lambda wanted: self.cards.find_out(wanted, self._card_again), lambda _: None, None),
            )
        }

    def spare_collections(self) -> None:
        """What stays is taken out of the garbage collector's sight: going through thousands of runs stops all keys."""
        self.sampler.when_known = gc.freeze

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            key_pressed()
        if isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded:
            await self.keys.arrive(event)
        elif isinstance(event, events.MouseDown) and not event.is_forwarded:
            await self._take_input(event)
        else:
            await super().on_event(event)

    async def _take_input(self, event: events.Event) -> None:
        self.input_time = event.time
        await super().on_event(event)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [Colourless()] if self.no_color else super().get_line_filters()

    # Threads

    def _own_sources(self) -> Sources:
        def machine() -> Machine | None:
            if self.snapshot is None:  # looking at devices costs imports: after the first paint
                return None
            if self._devices is None:
                from oelm_core.devices.sampler import DeviceSampler

                self._devices = DeviceSampler(every=2.0).start()
            return Machine(self._devices.latest)

        def runs() -> Sequence[Run]:
            from oelm_core.launch import launcher

            return launcher.list_runs()

        return Sources(runs, lambda: newest_runs(runs_dir()), machine, remote=remote_cards, trouble=slurm_silence)

    def _read_catalogue(self, _: object) -> Catalogue:
        if self._load is not None:
            return self._load()
        from oelm_core.config.catalogue import load_catalogue

        return load_catalogue(self._presets)

    def _take_catalogue(self, catalogue: Catalogue) -> None:
        self.sampler.catalogue = catalogue
        self.threads["lab"].ask(None)

    def report_error(self, error: Exception) -> None:
        """From any thread: something went wrong in one; it continues. A mistake of ours says of what kind it is."""
        expected = isinstance(error, (LabError, OSError))
        words = str(error) if expected else f"this did not work: {type(error).__name__}: {error}"
        self.call_later(self.say, words, bad=True)

    def on_mount(self) -> None:
        from oelm_tui.screens.home import Home

        self.push_screen(Home())
        self.threads["lab"].ask(None)
        self.set_interval(1.0, self._watch_the_sampler)
        self.set_interval(1.0, self.keys.look_after)

    def on_sampled(self, event: Sampled) -> None:
        self._sampled_at = time.monotonic()
        self.snapshot = event.snapshot
        if event.snapshot.partial:
            self.threads["lab"].ask(None)
            return
        self._raise_attention(event.snapshot)
        if event.snapshot.catalogue is not None and self._when_presets_come is not None:
            then, self._when_presets_come = self._when_presets_come, None
            then()
        if not self._presets_requested:  # after the first paint: reading presets costs more than all before it
            self._presets_requested = True
            self.threads["catalogue"].ask(None)

    def on_detail_read(self, event: DetailRead) -> None:
        self.detail = event.detail
        if event.detail.loading:
            self.threads["detail"].ask(self._request)

    def _watch_the_sampler(self) -> None:
        """The clock keeps going while a disk hangs, and the header says how old the picture is."""
        silent = time.monotonic() - self._sampled_at
        if silent > STALE and self.snapshot is not None:
            from oelm_tui.widgets.bars import Header

            for header in self.screen.query(Header):
                header.problem = f"no update for {silent:.0f} s: the disk or the network is not responding"

    def look_at(self, view: RunView | None, others: Sequence[RunView]) -> None:
        """Which run's files the detail thread reads."""
        if view is not None:
            self._request = DetailRequest(view, tuple(others))
            self.threads["detail"].ask(self._request)

    def look_at_preset(self, key: str, on: str) -> None:
        """Has the card of an arm or a study made."""
        snapshot = self.snapshot
        if snapshot is not None and snapshot.catalogue is not None:
            request = CardRequest(key, snapshot.catalogue, snapshot.runs, on, self.presets_folder)
            self._card_request = request
            self.threads["card"].ask(request)
            self.threads["facts"].ask(request)

    def _card_again(self) -> None:
        """From the facts' thread: more is known than the card shows."""
        if self._card_request is not None:
            self.threads["card"].ask(self._card_request)

    def on_card_read(self, event: CardRead) -> None:
        self.card = event.shown

    def in_thread(self, work: Callable[[], object]) -> None:
        """Something slow, once; the next snapshot follows at once."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # said, whatever it was, or nobody would know that nothing was done
                self.report_error(error)
            self.threads["lab"].ask(None)

        self.run_worker(guarded, thread=True, exit_on_error=False)

    async def on_unmount(self) -> None:
        for thread in self.threads.values():
            thread.close()
        self.cards.close()
        if self._devices is not None:
            self._devices.stop()

    # Attention

    def _raise_attention(self, snapshot: LabSnapshot) -> None:
        """A toast and a bell for what went wrong since we look; what was there before only keeps its mark."""
        wrong = {(v.id, v.alarm.kind, v.alarm.since): v for v in snapshot.runs if v.needs_a_look and v.alarm}
        if self._announced is not None:
            for key in set(wrong) - self._announced:
                view = wrong[key]
                words = view.alarm.words if view.alarm else ""
                if self.settings.toasts:
                    self.say(f"{view.run.preset} s{view.run.seed} {key[1]}: {words}", bad=True)
                if self.settings.bell:
                    self.bell()
        self._announced = set(wrong) | (self._announced or set())
        self._say_what_ended(snapshot)

    def _say_what_ended(self, snapshot: LabSnapshot) -> None:
        """A toast with the result, and a bell, for runs that were live when we last looked."""
        over = [view for view in snapshot.runs if view.id in self._live and not view.is_live]
        self._live = {view.id for view in snapshot.runs if view.is_live}
        for view in over:
            if self.settings.toasts and not view.needs_a_look:  # what went wrong was said above
                self.say(ended_words(view))
            if self.settings.bell and view.run.state == "finished":
                self.bell()
            if view.run.state != "unknown":
                Thread(target=self._follow_notice, args=(view,), name="oelm-notice", daemon=True).start()

    def _follow_notice(self, view: RunView) -> None:
        """Shows how the user's own command for the end went; tells it where no runner lives to do so."""
        from oelm_core import notify
        from oelm_core.settings import settings_file

        folder = view.run.folder
        with contextlib.suppress(Exception):  # the app may be gone by now
            if view.run.state == "lost" and not self.readonly:
                notify.tell(folder)
            until = time.monotonic() + notify.SECONDS + 5
            while settings_file(folder.path.parent.parent).exists() and time.monotonic() < until:
                notice = notify.notice_of(folder)
                if notice is not None and notice.problem:
                    self.say_from_thread(f"{view.id}: {notice.problem}", True)
                if notice is not None:
                    return
                time.sleep(0.5)

    def mark_seen(self, views: Sequence[RunView]) -> None:
        now = self.sampler.sources.now()
        for view in views:
            if view.needs_a_look and self.readonly:  # seen here, by us; the lab's own marks stay
                self.sampler.seen[view.id] = now
                self.threads["lab"].ask(None)
            elif view.needs_a_look:
                self.in_thread(lambda view=view: write_notes(view.run, seen=now))  # type: ignore[misc]

    # Saying

    def say(self, words: str, bad: bool = False) -> None:
        self.notify(visible(words), severity="error" if bad else "information", timeout=8 if bad else 4, markup=False)

    def say_from_thread(self, words: str, bad: bool = False) -> None:
        self.call_from_thread(self.say, words, bad)

    def copy(self, text: str, what: str) -> None:
        self.copy_to_clipboard(text)
        self.say(f"{what} copied: {text}")

    def copy_to_clipboard(self, text: str) -> None:
        """Through the terminal, and through what stands between it and us."""
        super().copy_to_clipboard(text)
        if codes := clipboard.within_screen(text, os.environ):
            self.write_to_terminal(codes)
        if os.environ.get("TMUX") and not self.is_headless:
            self.run_worker(lambda: clipboard.give_to_tmux(text, os.environ), thread=True, exit_on_error=False)

    def refuse_writing(self) -> bool:
        """In --readonly: says so and returns True."""
        if self.readonly:
            self.say("read-only: started with --readonly", bad=True)
        return self.readonly

    # Screens

    def _has_presets(self, then: Callable[[], object]) -> bool:
        """Whether the presets are there; if not, what was asked for is done as soon as they are."""
        if self.snapshot is not None and self.snapshot.catalogue is not None:
            return True
        self._when_presets_come = then
        return False

    def open_launch(self, arms: Sequence[str], study: str | None) -> None:
        if self.refuse_writing():
            return
        if not self._has_presets(lambda: self.open_launch(arms, study)):
            return
        if not arms and study is None:
            self.say("choose a preset or a study first (1)")
        else:
            from oelm_tui.screens.launch import Launch

            self.push_screen(Launch(arms, study), self._launched)

    def _launched(self, yes: bool | None) -> None:
        """What was launched is no longer marked: the next launch is another one."""
        from oelm_tui.screens.home import Home

        for screen in self.screen_stack:
            if yes and isinstance(screen, Home):
                screen.tree_of_presets.clear_marks()

    def start_demo(self) -> None:
        """Asks, then starts what `oelm demo` does; the first of its runs is selected when it is there."""
        if self.refuse_writing() or not self._has_presets(self.start_demo):
            return
        from oelm_core.launch.request import LaunchRequest
        from oelm_tui.screens.dialogs import Confirm

        catalogue = self.snapshot.catalogue if self.snapshot else None
        if catalogue is None or "demo" not in catalogue.studies:
            self.say("these presets have no demo", bad=True)
            return
        request = LaunchRequest(study="demo", seeds=(DEMO_SEED,), device="cpu")

        def work() -> None:
            folders = request.start(catalogue, request.command(), lambda _: None)
            self.say_from_thread(f"started {len(folders)} runs of the demo; c on its study compares them")
            self.call_from_thread(self.show_run, folders[0].id)

        words = [
            f"{request.run_count(catalogue)} tiny models on generated text, on the processor: about two minutes.",
            "They show the lab at work; they are no evidence about OELM.",
        ]
        self.push_screen(Confirm("Train the demo?", words, "Train"), lambda yes: self.in_thread(work) if yes else None)

    def show_run(self, run_id: str) -> None:
        """Turns the home screen to a run, as soon as it is on it."""
        from oelm_tui.screens.home import Home

        for screen in self.screen_stack:
            if isinstance(screen, Home):
                screen.turn_to(run_id)

    @property
    def presets_folder(self) -> str:
        return str(self._presets) if self._presets else ""

    def open_compare(
        self,
        study: str | None = None,
        presets: Sequence[str] = (),
        runs: Sequence[str] = (),
        focus: str | None = None,
        export: bool = False,
    ) -> None:
        if not self._has_presets(lambda: self.open_compare(study, presets, runs, focus, export)):
            return
        from oelm_tui.screens.compare import Compare

        self.push_screen(Compare(study, tuple(presets), tuple(runs), focus, export))

    def open_log(self, views: Sequence[RunView]) -> None:
        from oelm_tui.screens.full_log import FullLog

        self.push_screen(FullLog(views))

    def open_found(self, kind: str, key: str) -> None:
        """What the search found: a preset, study or run on the home screen, a setting or a topic in a box."""
        if kind in ("setting", "help"):
            from oelm_tui.screens.explained import Explained, setting_lines, topic_lines

            catalogue = self.snapshot.catalogue if self.snapshot else None
            if kind == "help":
                self.push_screen(Explained(key, lambda width: topic_lines(key, width)))
            elif catalogue is not None:
                self.push_screen(Explained(key, lambda width: setting_lines(key, catalogue, width)))
            return
        from oelm_tui.screens.home import Home

        while not isinstance(self.screen, Home) and len(self.screen_stack) > 2:
            self.pop_screen()
        if isinstance(self.screen, Home) and kind == "run":
            self.screen.turn_to(key)
        elif isinstance(self.screen, Home):
            self.screen.turn_to_preset(key)

    # Actions of the app

    def action_help(self) -> None:
        from oelm_tui.screens.explained import Help

        self.push_screen(Help(groups_here(self.screen)))

    def action_command_palette(self) -> None:
        from textual.command import CommandPalette

        if not isinstance(self.screen, CommandPalette):
            self.push_screen(command_palette("Find a preset, run, study, setting, key or help"))

    def action_next_theme(self) -> None:
        place = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(place + 1) % len(THEMES)]
        self.keep(theme=self.theme)
        self.say(f"theme {self.theme}")

    def action_toggle_bell(self) -> None:
        self.keep(bell=not self.settings.bell)
        self.say(f"bell {'on' if self.settings.bell else 'off'}")

    def action_toggle_toasts(self) -> None:
        self.keep(toasts=not self.settings.toasts)
        words = "on" if self.settings.toasts else f"off; the {glyphs.signs.flag} mark stays"
        self.say(f"messages about runs that need a look: {words}")

    def action_try_notify(self) -> None:
        """Runs the user's command for the selected run; without one, leaves a template where it belongs."""
        from oelm_core import notify
        from oelm_core.settings import settings_file
        from oelm_tui.screens.home import Home

        home = next((screen for screen in self.screen_stack if isinstance(screen, Home)), None)
        view = home.selected if home else None
        if self.refuse_writing():
            return

        def work() -> None:
            file = settings_file(lab_home())
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(notify.TEMPLATE, encoding="utf-8")
            if notify.command_of(lab_home()) is None:
                self.say_from_thread(f"no notify in {file}: take the # off one of its lines, then try again", True)
            elif view is None:
                self.say_from_thread("select a run to try it with", True)
            else:
                problem = notify.attempt_to_tell(view.run, lab_home()).problem
                self.say_from_thread(problem or f"notify works: told of {view.id}", problem is not None)

        self.in_thread(work)

    def action_reload(self) -> None:
        self.threads["catalogue"].ask(None)

    def keep(self, **changes: Any) -> None:
        """Changes settings, and remembers them for the next time."""
        self.settings = replace(self.settings, **changes)

        def write() -> None:
            with self._settings_lock:  # two changes at once: the newer settings are written last
                self.settings.write(lab_home())

        if not self.readonly:
            self.in_thread(write)

    # Crashing

    def crashed(self, error: Exception) -> None:
        """The traceback goes to a file; the terminal is left clean with one line that names it."""
        self.crash_file = write_crash(error)


def write_crash(error: BaseException) -> Path | None:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    path = lab_home() / "crashes" / f"tui-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError:
        return None
    return path


def run_app(presets: Path | None, readonly: bool) -> None:
    """Opens the lab on this terminal; returns when it is left. A crash becomes one sentence that names a file."""
    sys.setswitchinterval(0.001)  # keys must not wait while a thread reads half a million records
    app = OelmApp(presets, readonly)
    app.spare_collections()
    app.run()
    if app.return_code:
        where = f"; the details are in {app.crash_file}" if app.crash_file else ""
        print(f"The screen stopped on an error of its own{where}. The runs continue.", file=sys.stderr)
        raise SystemExit(app.return_code)
