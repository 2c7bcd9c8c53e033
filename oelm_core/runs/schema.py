"""Every record a run folder holds, as a type: what is written, what is read back, and which key does not fit.

msgspec does the work: typed like pydantic, but light enough for a hundred waiting runners (no pydantic in a runner).
Unknown keys are passed over, missing ones take their default: folders of older and newer versions stay readable.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any, ClassVar, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct, field

from oelm_core.devices.card import Card
from oelm_core.errors import one_line
from oelm_core.method.facts import Census, Orthogonality
from oelm_core.runs.recorded_config import check_config

SCHEMA = 1
"""Version of the records, kept in run.json and result.json."""

MetricKind = Literal["train", "eval", "system", "event"]


class Record(Struct):
    """A JSON file of a run folder. `FILE` is its name there; "" for a part of another record."""

    FILE: ClassVar[str] = ""
    RENAMED: ClassVar[dict[str, str]] = {}
    """Keys of older versions -> what they are called now."""


# -- who did it ------------------------------------------------------------------------------------------------------


class Worker(Struct):
    """One process: its pid, and when it started (epoch seconds), so that a reused pid is not taken for it."""

    pid: int
    started: float | None = None


class ProcessIdentity(Struct):
    """A process on a machine. `started` is exact together with `boot_time`, even when the clock is set."""

    host: str | None = None
    boot_id: str | None = None
    boot_time: float | None = None
    pid: int | None = None
    started: float | None = None


class Arrival(Struct):
    """When a run was asked for, in seconds since boot: its place in the queue."""

    boot_id: str
    at: float


class Origin(Struct):
    """Where an imported run comes from."""

    fingerprint: str
    path: str = field(name="from", default="")
    kind: str = ""
    notes: list[str] = []
    rates: list[float] = []
    """Learning rates of the runs imported with it that differ from it in nothing else, with its own: a sweep."""


# -- run.json --------------------------------------------------------------------------------------------------------


class Tuning(Struct, frozen=True):
    """Which tuning a run belongs to. A draw tries a point; the chosen point then runs on fresh seeds."""

    id: str
    role: Literal["draw", "chosen"]
    point: int
    """Its number among the points, which are the same for all arms; the first is 1."""
    settings: tuple[str, ...] = ()
    """The point, as texts of --set."""


def is_draw(tuning: Tuning | None) -> bool:
    """Whether a run with this only tries a point: no arm of a table."""
    return tuning is not None and tuning.role == "draw"


class RunRecord(Record, kw_only=True):
    """run.json: what was asked for. Written once, by the launcher or by an import."""

    FILE = "run.json"

    schema: int = SCHEMA
    id: str | None = None
    preset: str = ""
    study: str | None = None
    config: dict[str, Any]
    """The resolved preset, with the keys of `oelm_core.config`; an import has only those that it knows."""
    config_hash: str = ""
    hash: int = 1
    """Form of `config_hash`: 2 leaves out what cannot change a result. `oelm_core.recipe.recorded_hash` reads both."""
    seed: int | None = None
    command: list[str] | str | None = None
    cwd: str | None = None
    host: str | None = None
    devices_asked: str | None = "auto"
    """As on the command line: auto, cpu, or 2,3."""
    per_run: int = 1
    nodes: int | None = None
    """Asked for with --nodes; None leaves it to slurm.yaml."""
    after: str | None = None
    after_any: bool = False
    pause: float = 0.0
    beside: str | None = None
    """Id of the run on whose devices this one is to run."""
    launcher: str = "local"
    worker: str | None = None
    """Another worker than ours: a module, or the path of a script."""
    arrival: Arrival | None = None
    git_commit: str | None = None
    """`+changes` at its end: the package's files differed from it."""
    git_diff: str | None = None
    """Hash of what differed; None for a clean tree, or where it is not known."""
    versions: dict[str, str] = {}
    created: float = 0.0
    imported: Origin | None = None
    tuning: Tuning | None = None
    report_to: list[str] = []
    """Where its curves go: names of `oelm_core.mirror.targets`."""

    def __post_init__(self) -> None:
        check_plain(self.config, "config")
        try:
            check_config(self.config)
        except msgspec.ValidationError as error:
            misfit = _misfit(error)
            raise Misfit(f"config.{misfit}", f"config.{misfit.key}") from None

    def setting(self, key: str, default: Any = None) -> Any:
        """A setting by its dotted key: `setting("train.lr")`."""
        return setting(self.config, key, default)


def setting(config: dict[str, Any], key: str, default: Any = None) -> Any:
    """A setting of a recorded configuration by its dotted key; the default where it is missing, null or misplaced.

    >>> setting({"train": {"lr": 0.1}}, "train.lr"), setting({"train": 3}, "train.lr", 1.0)
    (0.1, 1.0)
    """
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return default if found is None else found


# -- state.json, stop.json, outcome.json, progress.json ---------------------------------------------------------------


class RunState(Record, kw_only=True):
    """state.json: where the run is. Written by the launcher first, then only by the runner."""

    FILE = "state.json"

    state: str
    reason: str | None = None
    message: str | None = None
    host: str | None = None
    boot_id: str | None = None
    boot_time: float | None = None
    pid: int | None = None
    """The runner; None before there is one."""
    started: float | None = None
    workers: list[Worker] = []
    devices: list[str] = []
    step: int = 0
    total: int | None = None
    heartbeat: float | None = None
    attempt: int = 0
    worker_started: float | None = None
    ended: float | None = None
    launcher: str | None = None
    """slurm while Slurm has it and no runner is expected here."""


class Stop(Record):
    """stop.json: somebody asked for the end."""

    FILE = "stop.json"

    who: str
    when: float
    now: bool = False
    attempt: int = 0


class Outcome(Record):
    """outcome.json, outcome-rankN.json of ranks but the first: how a worker itself says it ended, its last act."""

    FILE = "outcome.json"

    state: str
    reason: str | None = None
    message: str | None = None
    step: int = 0
    t: float | None = None
    """When it was said, epoch seconds."""
    consequence: bool = False
    """Whether it failed only because another rank was gone or did not answer."""


class WorkerProgress(Record):
    """progress.json: what the worker tells its runner twice a second."""

    FILE = "progress.json"

    step: int
    total: int | None = None
    t: float = 0.0
    phase: str = ""


# -- attempts/N.json, slurm/submission-N.json --------------------------------------------------------------------------


class SlurmJob(Struct):
    """The job an attempt ran in."""

    job: str
    restart: int = 0
    node: str | None = None
    nodes: int = 1


class BusyProcess(Struct):
    """A process of somebody else that used a noticeable part of a core."""

    pid: int
    uid: int | None = None
    name: str = ""
    cores: float = 0.0


class MachineState(Struct):
    """The machine around a run, so that timings can be judged later."""

    t: float | None = None
    load: list[float] | None = None
    memory_available: int | None = None
    temperature: float | None = None
    busy: list[BusyProcess] = []
    gpus: list[Card] | None = None


class MachineStates(Struct):
    """The machine before and after an attempt."""

    before: MachineState = field(default_factory=MachineState)
    after: MachineState | None = None


class Attempt(Record, kw_only=True):
    """attempts/N.json: one try at the run, from the claim to the last descendant's end."""

    attempt: int = 0
    host: str | None = None
    runner: ProcessIdentity | None = None
    devices: list[str] = []
    leases: list[str] = []
    slurm: SlurmJob | None = None
    threads: int | None = None
    world_size: int | None = None
    per_run: int | None = None
    """Devices on each of its nodes: as asked for at launch, or by the newest resume that asked for another number."""
    from_step: int | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    state: str | None = None
    reason: str | None = None
    machine: MachineStates | None = None
    deleted: float | None = None


class Notice(Record, kw_only=True):
    """notify-N.json: how the user's command for the end of attempt N went."""

    state: str
    """Of the run, as it was told."""
    t: float = 0.0
    command: str | None = None
    problem: str | None = None
    """Why it was not told, in a sentence."""


class Mirrored(Record, kw_only=True):
    """mirror/TARGET-PLACE.json: how far a run's curves went to where others look, and how they are found there."""

    target: str = ""
    place: str = ""
    """A folder or an address."""
    run: str = ""
    """The run's name or number there."""
    size: int = 0
    """Bytes of the file there that are known to be whole."""
    offset: int = 0
    """Bytes of metrics.jsonl that are there."""
    mark: str = ""
    """Hash of what stands before the offset: where it is another, the file was cut."""
    again: bool = False
    """Whether it was cut since, so that some steps come a second time."""
    steps: dict[str, int] = {}
    """The last step of each kind of line."""
    t: float = 0.0
    """The newest time stamp."""
    points: int = 0
    card: str = ""
    """Hash of the configuration and tags that were told."""
    end: str = ""
    """Hash of the end that was told."""
    problem: str | None = None
    """Why it went no further, in a sentence."""


class JobEnd(Struct):
    """How Slurm says a job ended, kept because Slurm forgets within minutes."""

    state: str
    reason: str | None = None
    message: str | None = None
    job_state: str = field(name="word", default="")
    """Slurm's own name for it: TIMEOUT."""
    at: float = 0.0


class Submission(Record, kw_only=True):
    """slurm/submission-N.json: the intent before sbatch is called, the job id after it, and how the job ended."""

    number: int = 0
    name: str
    """Unique among all jobs: a submission whose answer was lost is found again by it."""
    sent: float = field(name="asked", default=0.0)
    """When sbatch was about to be called, epoch seconds."""
    who: ProcessIdentity = field(default_factory=ProcessIdentity)
    job: str | None = None
    lane: int | None = None
    ended: JobEnd | None = None


# -- checks.json, result.json ------------------------------------------------------------------------------------------


class ModelFacts(Struct):
    name: str | None = None
    path: str | None = None
    fingerprint: str | None = None


class DataFacts(Struct, kw_only=True, omit_defaults=True):
    """What was read; the later keys are those of classification or of language modelling."""

    name: str | None = None
    fingerprint: str | None = None
    train_examples: int | None = None
    eval_examples: int | None = None
    train_tokens: int | None = None
    eval_tokens: int | None = None
    eval_splits: dict[str, int] | None = None
    classes: int | None = None
    tokens_mean: float | None = None
    tokens_max: int | None = None
    at_max_length: int | None = None
    batching: str | None = None


class FrozenWeights(Struct):
    """Which weights are frozen at the start, which of them thaw, and the hash that must stay."""

    names: list[str] = []
    thaws: dict[str, int] = {}
    """Weights that train later, each with its layer."""
    hash: str | None = None


class QkScale(Struct):
    mean_row_norm: float | None = None


class ChecksAtEnd(Struct):
    orthogonality: Orthogonality = field(default_factory=Orthogonality)
    frozen_hash: str | None = None


class Checks(Record, kw_only=True):
    """checks.json: proof of what was done to the weights. Written at the start, kept over resumes, completed last."""

    FILE = "checks.json"
    RENAMED = {"true_baseline": "qk_untouched"}

    orthogonality: Orthogonality = field(default_factory=Orthogonality)
    qk_scale: QkScale = field(default_factory=QkScale)
    qk_untouched: bool | None = None
    """Whether Q and K start as they were loaded or drawn: known by looking at the weights."""
    model: ModelFacts = field(default_factory=ModelFacts)
    data: DataFacts = field(default_factory=DataFacts)
    census: Census = field(default_factory=Census)
    frozen: FrozenWeights | None = None
    end: ChecksAtEnd | None = None


class Headline(Struct):
    """The metric a run is judged by."""

    name: str
    value: float | None = None
    direction: Literal["higher", "lower"] | None = None


class Reached(Struct):
    """When an accuracy was first reached."""

    step: int
    seconds: float | None = None


class StepTiming(Struct, kw_only=True):
    """Seconds per optimiser step by the timing protocol; None where nothing was measured."""

    step_time_mean: float | None = None
    step_time_std: float | None = None
    step_time_median: float | None = None
    step_time_p95: float | None = None
    step_time_p99: float | None = None
    step_time_min: float | None = None
    step_time_max: float | None = None
    steps_measured: int | None = None
    outliers_dropped: int | None = None
    tokens_per_s: float | None = None
    examples_per_s: float | None = None
    data_wait_share: float | None = None


class Seconds(Struct):
    total: float | None = None
    training: float | None = None
    validation: float | None = None


class PeakMemory(Struct):
    """Bytes; None without a card."""

    device_peak: int | None = None
    host_peak: int | None = None


class FrozenProof(Struct):
    hash_before: str | None = None
    hash_after: str | None = None
    unchanged: bool | None = None


class DeviceFacts(Struct, omit_defaults=True):
    kind: str | None = None
    name: str | None = None
    uuids: list[str] = []
    """Of the cards, those of the first node."""
    driver: str | None = None
    proven: float | None = None
    """When `oelm doctor --gpu` had proven these cards with this driver and torch; None where it had not by then."""


Evaluated = dict[str, int | float | None]
"""One evaluation: step, seconds, loss and the metrics by name; None for what was not finite."""


class TestScore(Struct, kw_only=True):
    """How a run's best checkpoint did on text that chose nothing. Its details are in test/."""

    __test__ = False  # pytest: not a class of tests

    values: Evaluated
    """Loss and the metrics by name."""
    step: int
    """Of the checkpoint that was scored."""
    examples: int
    """Examples, or sequences of a language model."""
    source: str
    """A split's name, `held-out 0.1`, or the path of a file."""
    fingerprint: str
    """Names what was scored: equal only for equal tokens and labels in equal order."""
    note: str | None = None
    """What a reader must know, such as a best checkpoint that is no longer there."""


class Result(Record, kw_only=True):
    """result.json: the final summary. The headline is the best validation."""

    FILE = "result.json"
    RENAMED = {"true_baseline": "qk_untouched"}

    schema: int = SCHEMA
    imported: bool = False
    metric: Headline | None = None
    best: Evaluated | None = None
    final: Evaluated | None = None
    test: TestScore | None = None
    """Of `data.test`, scored once, when training had ended."""
    reached: dict[str, Reached | None] = {}
    parameters: Census = field(default_factory=Census)
    timing: StepTiming = field(default_factory=StepTiming)
    seconds: Seconds = field(default_factory=Seconds)
    memory: PeakMemory = field(default_factory=PeakMemory)
    checkpoint_bytes: int | None = None
    qk_untouched: bool | None = None
    frozen: FrozenProof = field(default_factory=FrozenProof)
    data: DataFacts = field(default_factory=DataFacts)
    model: ModelFacts = field(default_factory=ModelFacts)
    effective_batch: int | None = None
    steps: int | None = None
    skipped_steps: int | None = None
    """Of them, those whose gradients overflowed and changed nothing; None where the format has no loss scaling."""
    precision: str | None = None
    device: DeviceFacts = field(default_factory=DeviceFacts)
    threads: int | None = None
    world_size: int | None = None
    versions: dict[str, str] = {}


# -- what grows or is kept by step ---------------------------------------------------------------------------------


UNFROZEN = "unfrozen"
"""The kind of event at the first step that trains layers which were frozen until then."""


class MetricLine(Struct):
    """One line of metrics.jsonl: what happened at a step, and its numbers by name."""

    step: int
    kind: MetricKind
    t: float = 0.0
    values: dict[str, float] = {}
    what: str = ""
    """Of an event: its kind."""
    message: str = ""


class Sample(Struct, kw_only=True):
    """One line of samples.jsonl: a generated text."""

    t: float = 0.0
    step: int = 0
    prompt: str = ""
    text: str


class Predictions(Struct, omit_defaults=True):
    """predictions/step-N.json: what was predicted for each validation example, in the order of the file."""

    labels: list[int]
    predictions: list[int]
    step: int = 0
    mismatched: Predictions | None = None
    """Of MNLI's second half."""


class DocumentLosses(Struct):
    """Summed loss and number of predicted tokens of each document, in the order of the text."""

    losses: list[float]
    tokens: list[int]


class Losses(Struct, omit_defaults=True):
    """losses/step-N.json: summed loss and number of tokens of each validation sequence."""

    losses: list[float]
    tokens: list[int]
    step: int = 0
    documents: DocumentLosses | None = None
    """The same losses by document, for tokens of one document are not independent; None where no ends are marked."""


class AttentionLook(Struct, kw_only=True, omit_defaults=True):
    """attention/step-N.json: what each head looked at on a fixed batch, `[layers][heads]`."""

    entropy: list[list[float]]
    """In nats, the mean over queries."""
    distance: list[list[float]]
    """Tokens between a query and what it looks at."""
    from_baseline: list[list[float]] | None = None
    """Total variation to the baseline's patterns, 0 to 1; None where no baseline had run before."""


class LaterScore(Struct, kw_only=True, omit_defaults=True):
    """evaluations/NAME.json: the best checkpoint of a finished run on other text, as `oelm evaluate` scored it."""

    score: TestScore
    metric: str
    """The run's headline metric."""
    looked: list[float] = []
    """When this run was scored on it, epoch seconds."""
    predictions: Predictions | None = None
    losses: Losses | None = None


class Notes(Record, kw_only=True):
    """notes.json: what readers write. A name, tags, a note, and until when the run's troubles have been seen."""

    FILE = "notes.json"

    name: str = ""
    """What people call the run; its folder keeps its own."""
    tags: list[str] = []
    note: str = ""
    seen: float = 0.0


# -- reading and writing -------------------------------------------------------------------------------------------

R = TypeVar("R")


class Misfit(ValueError):
    """Content that is not what a record should be; `key` says where, "" for the file as a whole."""

    def __init__(self, why: str, key: str = "") -> None:
        super().__init__(one_line(why))  # keys are text of somebody's file too
        self.key = key


def decode(content: bytes, kind: type[R]) -> R:
    """The record in a file's bytes. Misfit names the key that does not fit and what it should have been."""
    renamed: dict[str, str] = getattr(kind, "RENAMED", {})
    if _is_struct(kind) and not _LONG.search(content) and not any(f'"{old}"'.encode() in content for old in renamed):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            return msgspec.json.decode(content, type=kind)
    return convert(_plain(content), kind)  # version 0.1 wrote NaN and Infinity bare, as json.dumps does


def convert(content: Any, kind: type[R]) -> R:
    """A record from plain content; Misfit as for `decode`. A null counts as missing, so that it takes its default."""
    renamed: dict[str, str] | None = getattr(kind, "RENAMED", None)
    if isinstance(content, dict) and renamed is not None:
        named = {renamed.get(key, key): finite_or_null(value) for key, value in content.items()}
        content = {key: value for key, value in named.items() if value is not None}
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise _misfit(error) from None


MOST_DEEP = 32
"""Lists and maps inside one another: more than any record has."""
_LONG = re.compile(rb"-[0-9]{19}|[0-9]{20}")
"""What may be a whole number beyond 64 bits. Times in nanoseconds have 19 digits, and are none."""
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character: no Unicode text has one, and none can be written."""


def check_plain(content: Any, key: str = "") -> None:
    """Misfit for what JSON can say but nothing here expects: endless nesting, huge numbers, halves of characters."""
    waiting = [(content, key, 0)]
    while waiting:
        value, key, depth = waiting.pop()
        if depth > MOST_DEEP:
            top = re.split(r"[.[]", key)[0]
            raise Misfit(f"{top}: lists and maps are more than {MOST_DEEP} deep".removeprefix(": "), top)
        if isinstance(value, str):
            if not value.isascii() and _HALF.search(value):
                raise _misplaced(key, "text that is not Unicode")
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**64:
                raise _misplaced(key, "a number beyond 64 bits")
        elif isinstance(value, dict):
            for name, inner in value.items():
                if not name.isascii() and _HALF.search(name):
                    raise _misplaced(key, "a name that is not Unicode")
                waiting.append((inner, f"{key}.{name}" if key else name, depth + 1))
        elif isinstance(value, list):
            waiting.extend((inner, f"{key}[{place}]", depth + 1) for place, inner in enumerate(value))


def _misplaced(key: str, why: str) -> Misfit:
    return Misfit(f"{key}: {why}" if key else why, key)


def _is_struct(kind: type[object]) -> bool:
    """Whether msgspec alone keeps out what `check_plain` looks for, but for long numbers."""
    return isinstance(kind, type) and issubclass(kind, Struct)


def encode(record: Any) -> bytes:
    """One line of JSON. Numbers that are not finite become null, for JSON has no word for them."""
    return msgspec.json.encode(record)


def encode_file(record: Any) -> bytes:
    """As `encode`, indented for people."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode_metric(line: bytes) -> MetricLine | None:
    """One line of metrics.jsonl; None for a torn or foreign one. A null is a number that was not finite: NaN.

    Values that are no numbers are left out.
    """
    try:
        found = _METRIC.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        try:
            found = _plain(line)
        except Misfit:
            return None
    if not isinstance(found, dict):
        return None
    step, kind, t = found.pop("step", None), found.pop("kind", None), found.pop("t", 0.0)
    if type(step) is not int or abs(step) > LAST_STEP or kind not in _METRIC_KINDS:
        return None
    what = found.pop("what") if "what" in found else ""
    message = found.pop("message") if "message" in found else ""
    if not _NUMBERS.issuperset(map(type, found.values())):  # seldom: files have half a million lines
        found = {
            name: math.nan if value is None else value
            for name, value in found.items()
            if value is None or type(value) in _NUMBERS
        }
    when = t if type(t) is float else float(t) if isinstance(t, int) and abs(t) <= LAST_STEP else 0.0
    return MetricLine(step, kind, when, found, str(what), str(message))


def encode_metric(line: MetricLine) -> bytes:
    """The flat form of the file: `{"t", "step", "kind", ...values}` and a line break."""
    flat: dict[str, Any] = {"t": line.t, "step": line.step, "kind": line.kind, **line.values}
    if line.what or line.message:
        flat |= {"what": line.what, "message": line.message}
    return msgspec.json.encode(flat) + b"\n"


_METRIC = msgspec.json.Decoder(dict[str, Any])
LAST_STEP = 2**53
"""Past it, neighbours are one number to a chart."""
_METRIC_KINDS = get_args(MetricKind)
_NUMBERS = frozenset((float, int))


def _plain(content: bytes) -> Any:
    import json  # late: only old files need it, and a waiting runner does without

    try:
        found = json.loads(content, parse_int=_whole)
    except (ValueError, RecursionError, MemoryError):
        raise Misfit("it is not JSON") from None
    check_plain(found)
    return found


def _whole(digits: str) -> int:
    return int(digits) if len(digits) < 30 else 10**30  # Python itself refuses more than 4,300


def finite_or_null(content: Any) -> Any:
    """NaN and infinities as null, as `encode` writes them."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: finite_or_null(value) for key, value in content.items()}
    return [finite_or_null(value) for value in content] if isinstance(content, (list, tuple)) else content


def _misfit(error: msgspec.ValidationError) -> Misfit:
    """msgspec's "Expected `int`, got `float` - at `$.workers[0].pid`" as a key and a sentence."""
    words, _, where = str(error).partition(" - at `")
    key = where.rstrip("`").removeprefix("$").removeprefix(".")
    why = words[:1].lower() + words[1:]
    return _misplaced(key, why)
