"""The terminal lab: owns the threads that read, the screens that show, and nothing else."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import events
from textual.filter import LineFilter
from textual.reactive import var
from textual.scrollbar import ScrollBar, ScrollBarRender

from oelm_core.errors import LabError
from oelm_core.home import home as lab_home
from oelm_core.home import runs_dir
from oelm_core.runs.store import Run
from oelm_tui import clipboard, glyphs
from oelm_tui.actions import ActionPalette, bindings
from oelm_tui.messages import DetailRead, Sampled
from oelm_tui.palette import DARK, LIGHT, Colourless
from oelm_tui.settings import Settings
from oelm_tui.snapshots.background import BackgroundThread, key_pressed
from oelm_tui.snapshots.cards import Machine, remote_cards
from oelm_tui.snapshots.detail import Detail, DetailReader, DetailRequest
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSampler, LabSnapshot, Sources, newest_runs, slurm_silence, write_notes
from oelm_tui.textual_private import HookedApp

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.devices.sampler import DeviceSampler

THEMES = ("oelm-dark", "oelm-light", "ansi-dark", "ansi-light")
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
    COMMANDS = {ActionPalette}
    snapshot: var[LabSnapshot | None] = var(None, always_update=True)
    detail: var[Detail | None] = var(None, always_update=True)

    def __init__(
        self,
        presets: Path | None = None,
        readonly: bool = False,
        sources: Sources | None = None,
        load: Callable[[], Catalogue] | None = None,
        every: float = 1.0,
    ) -> None:
        """`sources`, `load` and `every` are for tests: their own clock, runs, devices and catalogue."""
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
        self._sampled_at = time.monotonic()
        self.threads: dict[str, BackgroundThread[Any, Any]] = {
            name: BackgroundThread(name, work, deliver, pause, self.report_error)
            for name, work, deliver, pause in (
                ("lab", lambda _: self.sampler.sample(), lambda new: self.post_message(Sampled(new)), every),
                ("detail", DetailReader().read, lambda new: self.post_message(DetailRead(new)), 2 * every),
                ("catalogue", self._read_catalogue, self._take_catalogue, None),
            )
        }

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            key_pressed()
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
        self.notify(words, severity="error" if bad else "information", timeout=8 if bad else 4, markup=False)

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

    def open_log(self, view: RunView) -> None:
        from oelm_tui.screens.full_log import FullLog

        self.push_screen(FullLog(view))

    # Actions of the app

    def action_help(self) -> None:
        from oelm_tui.screens.dialogs import Help

        self.push_screen(Help())

    def action_command_palette(self) -> None:
        from textual.command import CommandPalette

        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="Find an action", id="--command-palette"))

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
    app.run()
    if app.return_code:
        where = f"; the details are in {app.crash_file}" if app.crash_file else ""
        print(f"The screen stopped on an error of its own{where}. The runs continue.", file=sys.stderr)
        raise SystemExit(app.return_code)
