"""All runs as tidy tables, for pandas, polars and R: `oelm export --format parquet` and `oelm_core.load_runs()`.

Three tables: `runs` has a row a run, with its settings as dotted columns; `metrics` a row a number, by run, step and
name; `pairs` a row for each arm against its baseline, as `oelm compare` has it. pandas and pyarrow come with datasets.
"""

from __future__ import annotations

import datetime
import functools
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from oelm_core.errors import BadInput, NotFound
from oelm_core.home import runs_dir
from oelm_core.metric import METRICS, metric_named
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.store import Run, find_run, list_runs

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from oelm_core.compare.comparison import Group, Pair
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.report.document import Report

TableName = Literal["runs", "metrics", "pairs"]
TABLES: tuple[TableName, ...] = get_args(TableName)
SECTIONS = ("model", "data", "method", "train")
"""Parts of a configuration whose settings are columns of their own."""

Row = dict[str, Any]

_RUN: dict[str, str] = {
    **dict.fromkeys(("run", "preset", "study", "family", "model", "dataset", "method"), "string"),
    "seed": "int64",
    **dict.fromkeys(("state", "reason"), "string"),
    "created": "time",
    **dict.fromkeys(("host", "devices"), "string"),
    "imported": "bool",
    "tuning": "string",
    **dict.fromkeys(("metric", "direction"), "string"),
    **dict.fromkeys(("value", "final", *METRICS), "double"),
    "test": "double",
    "test_examples": "int64",
    "test_source": "string",
    **dict.fromkeys(("best_step", "final_step", "steps", "validations", "effective_batch"), "int64"),
    **dict.fromkeys(("train_examples", "eval_examples", "total", "trainable", "frozen"), "int64"),
    **dict.fromkeys(("step_time", "step_time_std", "step_time_median", "step_time_p95", "tokens_per_s"), "double"),
    **dict.fromkeys(("seconds", "training_seconds", "validation_seconds"), "double"),
    **dict.fromkeys(("memory", "checkpoint_bytes"), "int64"),
    **dict.fromkeys(("qk_untouched", "frozen_unchanged"), "bool"),
    **dict.fromkeys(("precision", "device", "torch", "git_commit", "config_hash", "folder"), "string"),
}
"""Columns of `runs` before the settings, and their types: the same in every export. Fractions, seconds and bytes."""
_METRIC: dict[str, str] = {
    **dict.fromkeys(("run", "kind"), "string"),
    "step": "int64",
    "time": "time",
    "name": "string",
    "value": "double",
}
_PAIR: dict[str, str] = {
    **dict.fromkeys(("family", "dataset", "model", "metric", "direction", "basis", "arm", "baseline"), "string"),
    "contrast": "bool",
    "delta_kind": "string",
    **dict.fromkeys(("delta", "interval_low", "interval_high", "p", "p_adjusted"), "double"),
    **dict.fromkeys(("arm_mean", "arm_std", "baseline_mean", "baseline_std"), "double"),
    **dict.fromkeys(("arm_seeds", "baseline_seeds", "shared_seeds", "failed"), "int64"),
    "verdict": "string",
    "seeds_needed": "int64",
    **dict.fromkeys(("retention", "parameter_saving", "step_time_delta"), "double"),
    **dict.fromkeys(("breaks", "confounds"), "int64"),
    "words": "string",
}


class RunTables:
    """Runs as data frames, each made when it is first asked for."""

    def __init__(self, runs: Sequence[Run], catalogue: Catalogue) -> None:
        self._runs, self._catalogue = runs, catalogue

    @property
    def runs(self) -> pandas.DataFrame:
        """A row a run: what it is, what came of it, and its settings as `train.lr`, `method.init`, ..."""
        return self._frame("runs")

    @property
    def metrics(self) -> pandas.DataFrame:
        """A row a number of metrics.jsonl: run, kind (train, eval, system), step, time, name, value."""
        return self._frame("metrics")

    @property
    def pairs(self) -> pandas.DataFrame:
        """A row an arm against its baseline, with the interval and the verdict of `oelm compare`."""
        return self._frame("pairs")

    def arrow(self, table: TableName) -> pyarrow.Table:
        """One of the tables with its types, for polars and duckdb."""
        return self._made[table]

    def parquet(self, table: TableName = "runs") -> bytes:
        return parquet_bytes(self.arrow(table))

    def _frame(self, table: TableName) -> pandas.DataFrame:
        return self.arrow(table).to_pandas()

    @functools.cached_property
    def _made(self) -> Mapping[TableName, pyarrow.Table]:
        return _Made({"runs": self._run_table, "metrics": self._metric_table, "pairs": self._pair_table})

    def _run_table(self) -> pyarrow.Table:
        rows = [_run_row(run) for run in self._runs]
        settings = sorted({name for row in rows for name in row} - set(_RUN))
        return _table(rows, _RUN | {name: _kind([row.get(name) for row in rows]) for name in settings})

    def _metric_table(self) -> pyarrow.Table:
        return _table(
            (
                {"run": run.id, "kind": line.kind, "step": line.step, "time": line.t, "name": name, "value": value}
                for run in self._runs
                for line in read_metrics(run.folder.metrics, "train", "eval", "system")
                for name, value in line.values.items()
            ),
            _METRIC,
        )

    def _pair_table(self) -> pyarrow.Table:
        from oelm_core.compare import compare_runs

        runs = [run for run in self._runs if not run.is_draw]
        try:
            groups = compare_runs(runs, self._catalogue).groups if runs else ()
        except NotFound:  # nothing to compare: no pairs
            groups = ()
        pairs = [
            (group, pair, pair in group.contrasts) for group in groups for pair in (*group.pairs, *group.contrasts)
        ]
        return _table([_pair_row(*one) for one in pairs], _PAIR)


class _Made(dict[TableName, Any]):
    """Tables by name, made when first asked for."""

    def __init__(self, makers: Mapping[TableName, Any]) -> None:
        self._makers = makers

    def __missing__(self, name: TableName) -> Any:
        if name not in self._makers:
            raise BadInput(f"no table '{name}': write one of {', '.join(TABLES)}.")
        self[name] = self._makers[name]()
        return self[name]


def load_runs(*names: str, home: Path | str | None = None, presets: Path | str | None = None) -> RunTables:
    """Every run of a lab as data frames: `.runs`, `.metrics`, `.pairs`; or those of a study, or named by id or prefix.

    `home`: another lab than OELM_HOME's. `presets`: a folder of your own presets, as `oelm --presets` takes it.
    """
    from oelm_core.config.catalogue import load_catalogue

    root = Path(home).expanduser() / "runs" if home is not None else runs_dir()
    if home is not None and not Path(home).expanduser().is_dir():
        raise NotFound(f"{home}: there is no such folder; it should hold a folder `runs`.")
    return tables_of(names, load_catalogue(Path(presets) if presets else None), root)


def tables_of(names: Sequence[str], catalogue: Catalogue, root: Path | None = None) -> RunTables:
    """As `load_runs`, with the presets that are known. A study means all runs of its presets, however they ended."""
    every = list_runs(root)
    chosen: dict[str, Run] = {} if names else {run.id: run for run in every}
    for name in names:
        study = next((one for one in catalogue.studies.values() if one.id.lower() == name.lower()), None)
        of_study = [run for run in every if study and (run.study == study.id or run.preset in study.arms)]
        chosen |= {run.id: run for run in (of_study if study else [find_run(name, root)])}
    return RunTables(list(chosen.values()), catalogue)


def render_parquet(report: Report) -> bytes:
    """The runs of a comparison, a row each; of an audit its findings, for they are about no runs."""
    from oelm_core.config.catalogue import Catalogue

    ids = [run for row in report.rows for run in str(row.get("runs") or "").split()]
    if ids:
        return tables_of(ids, Catalogue()).parquet()
    rows = [dict(row) for row in report.rows]
    return parquet_bytes(_table(rows, {name: _kind([row[name] for row in rows]) for name in (rows or [{}])[0]}))


def parquet_bytes(table: pyarrow.Table) -> bytes:
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


# -- rows --------------------------------------------------------------------------------------------------------------


def _run_row(run: Run) -> Row:
    from oelm_core.compare.evidence import gather

    e = gather(run)
    result, record, test = e.result, e.record, e.result.test
    return {
        **{name: value for name, value in e.values.items() if name in _RUN},
        **{f"{part}.{name}": value for part in SECTIONS for name, value in _flat(record.config.get(part))},
        "run": run.id,
        "preset": run.preset,
        "study": run.study,
        "family": run.family,
        "model": record.setting("model.name"),
        "dataset": run.dataset,
        "method": run.method,
        "seed": record.seed,
        "state": run.state,
        "reason": run.reason,
        "created": run.created,
        "host": run.host,
        "devices": " ".join(run.devices),
        "imported": run.imported,
        "tuning": f"{run.tuning.id} {run.tuning.role} {run.tuning.point}" if run.tuning else None,
        "metric": e.metric,
        "direction": metric_named(e.metric).direction,
        "value": e.values.get("metric"),
        "test": test.values.get(e.metric) if test else None,
        "test_examples": test.examples if test else None,
        "test_source": test.source if test else None,
        "qk_untouched": e.qk_untouched,
        "frozen_unchanged": result.frozen.unchanged,
        "precision": result.precision,
        "device": result.device.name or result.device.kind,
        "torch": e.versions.get("torch"),
        "git_commit": record.git_commit,
        "config_hash": run.config_hash,
        "folder": run.path,
    }


def _pair_row(group: Group, pair: Pair, contrast: bool) -> Row:
    arms = {arm.id: arm for arm in group.arms}
    scores = {side: arms[name].metric for side, name in (("arm", pair.arm), ("baseline", pair.baseline))}
    low, high = pair.interval or (None, None)
    grades = [finding.grade for finding in group.findings_about(pair.arm)]
    return {
        **{name: getattr(group, name) for name in ("family", "dataset", "model", "basis")},
        **{name: getattr(pair, name) for name in _PAIR if hasattr(pair, name)},
        "contrast": contrast,
        "delta_kind": pair.kind,
        "interval_low": low,
        "interval_high": high,
        **{f"{side}_mean": score.mean if score else None for side, score in scores.items()},
        **{f"{side}_std": score.std if score else None for side, score in scores.items()},
        "arm_seeds": pair.seeds.arm,
        "baseline_seeds": pair.seeds.baseline,
        "shared_seeds": pair.seeds.shared,
        "failed": pair.seeds.failed,
        "breaks": grades.count("breaks"),
        "confounds": grades.count("confounds"),
    }


def _flat(settings: object, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Dotted names and values; a list is its JSON, for a column has one kind of value."""
    for name, value in (settings if isinstance(settings, dict) else {}).items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", json.dumps(value) if isinstance(value, list) else value


def _kind(values: Sequence[Any]) -> str:
    """The one type that holds all of them; text where they are of several, as `method.scale` is: unit, keep, 0.02."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64"
    return "double" if kinds and kinds <= {int, float} else "string"


def _table(rows: Iterable[Row], columns: Mapping[str, str]) -> pyarrow.Table:
    import pyarrow

    kinds = {name: pyarrow.timestamp("ms", tz="UTC") if kind == "time" else kind for name, kind in columns.items()}
    schema = pyarrow.schema(list(kinds.items()))
    kept: dict[str, list[Any]] = {name: [] for name in columns}
    for row in rows:
        for name, kind in columns.items():
            kept[name].append(_cell(row.get(name), kind))
    return pyarrow.Table.from_pydict(kept, schema=schema)


def _cell(value: Any, kind: str) -> Any:
    if value is None or (kind == "int64" and value != value):
        return None
    if kind == "time":
        return datetime.datetime.fromtimestamp(value, datetime.timezone.utc) if value else None
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    return {"int64": int, "double": float, "bool": bool}[kind](value)
