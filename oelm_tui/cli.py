"""The `oelm` command: which subcommands there are. Each is imported only when it is called."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from oelm_core.report import FORMATS
from oelm_tui import streams

*_most, _last = (one.title for one in FORMATS.values())
# name -> (module under oelm_tui.commands, its line in --help). Kept here so that --help imports none of them.
COMMANDS = {
    "demo": ("run", "Train the demo study on the CPU and print its comparison."),
    "presets": ("presets", "List the experiments and studies; `presets show ID` explains one."),
    "run": ("run", "Start runs in the background and print their ids."),
    "study": ("run", "Start every arm and seed of a study, interleaved."),
    "tune": ("tune", "Tune every arm of a study alike, then run each arm's best on fresh seeds."),
    "runs": ("runs", "List the runs and how they are doing."),
    "logs": ("runs", "Show a run's log."),
    "stop": ("runs", "Stop a run after a checkpoint."),
    "resume": ("runs", "Continue from a run's newest checkpoint."),
    "delete": ("runs", "Delete a run's folder."),
    "evaluate": ("evaluate", "Score a finished run's best checkpoint on other text."),
    "generate": ("generate", "Continue a text with the language models of runs."),
    "publish": ("publish", "Write a finished run's model for others, with its model card."),
    "compare": ("compare", "Compare arms with their baseline: table, verdicts, fairness."),
    "export": ("compare", f"Write a comparison as {', '.join(_most)} or {_last}."),
    "mirror": ("mirror", "Bring the curves of runs to TensorBoard, W&B, Trackio or MLflow."),
    "calibrate": ("calibrate", "Compare a preset with itself: false alarms, and how its seeds spread."),
    "import": ("runs", "Turn outputs of the author, a Trainer, TensorBoard, W&B or MLflow into read-only runs."),
    "gpus": ("machine", "Show the GPUs, who is on them, and the machine's load."),
    "data": ("data", "List datasets; `data prepare NAME` tokenises one, `data tokenizer` makes a tokenizer."),
    "doctor": ("machine", "Check the machine, and say how to fix what is missing."),
    "estimate": ("estimate", "Estimate what a preset would take on a card: time, memory, several cards."),
    "bench": ("bench", "Measure how fast training is on this machine, and which settings pay."),
}


class LazyCommands(TyperGroup):
    """A group whose commands are found in COMMANDS and imported on use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"oelm_tui.commands.{COMMANDS[cmd_name][0]}")
        app: typer.Typer = module.apps[cmd_name]
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from oelm_core.errors import BadInput, did_you_mean

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise BadInput(f"no command '{args[0]}'.{did_you_mean(args[0], COMMANDS) or ' See: oelm --help.'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


# rich_markup_mode=None: rich's help pages would double the time of --help
app = typer.Typer(cls=LazyCommands, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def oelm(
    ctx: typer.Context,
    presets: Annotated[Path | None, typer.Option(help="A folder of your own presets.", metavar="DIR")] = None,
    readonly: Annotated[bool, typer.Option("--readonly", help="Look, but start and stop nothing.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A terminal lab for Transformers whose query and key weights are orthogonal and frozen.

    Without a command it opens the screen.
    """
    ctx.obj = presets
    if version:
        from oelm_core import __version__

        print(f"oelm {__version__}")
    elif ctx.invoked_subcommand is None:
        if not streams.at_a_terminal():
            print(ctx.get_help())
            return
        if streams.is_dumb():
            from oelm_core.errors import Refused

            raise Refused(
                f"the screen needs a terminal that can move its cursor, and TERM is '{os.environ.get('TERM', '')}'; "
                "set TERM, for example to xterm-256color, or use the commands: oelm --help."
            )
        from oelm_tui.app import run_app

        run_app(presets=presets, readonly=readonly)


def main() -> None:
    """Runs the command; an error for the user is one sentence on stderr and its exit code."""
    gc.set_threshold(50_000)  # what a command loads stays: it need not be searched for garbage so often
    streams.prepare()
    with streams.to_the_last_word():
        _run_command()


def _run_command() -> None:
    from oelm_core.errors import LabError

    try:
        code = app(standalone_mode=False)  # what a command exits with: 130 after Ctrl-C
        sys.stdout.flush()
        if isinstance(code, int) and code:
            sys.exit(code)
    except BrokenPipeError:
        raise
    except LabError as error:
        fail(str(error), error.exit_code)
    except Exception as error:
        exit_code = getattr(error, "exit_code", None)  # click's own errors: usage, bad option
        if isinstance(error.__cause__, KeyboardInterrupt):  # as older versions of typer hand it on
            sys.exit(130)
        if exit_code is None and streams.is_full(error):
            streams.forget_output()
            fail(f"cannot write: {getattr(error, 'strerror', error)}.", 4)
        elif exit_code is None:
            _unexpected(error)
        elif exit_code:
            fail(error.format_message() if hasattr(error, "format_message") else str(error), exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def fail(sentence: str, code: int) -> None:
    from oelm_core.errors import one_line

    print(f"oelm: {one_line(sentence)}", file=sys.stderr)
    sys.exit(code)


def _unexpected(error: Exception) -> None:
    """A bug of ours: the traceback goes to a file, a sentence to the user."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="oelm-crash-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    fail(f"unexpected {type(error).__name__}: {error}. The details are in {file.name}.", 1)
