"""TensorBoard: one event file a run, appended to by the byte, so that nothing is there twice whoever dies when.

Written by hand, for TensorBoard's own writers start a new file each time and stamp it with the present.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.mirror.card import RunCard, RunEnd, Value
from oelm_core.mirror.points import Point
from oelm_core.runs.schema import Mirrored

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary


class TensorBoard:
    keeps_at_close = False

    def __init__(self, folder: Path | None, home: Path) -> None:
        self._folder = (folder or home / "tensorboard").absolute()
        self._descriptor: int | None = None

    @property
    def place(self) -> str:
        return str(self._folder)

    def is_there(self, kept: Mirrored) -> bool:
        return (self._folder / kept.run).is_file()

    def open(self, card: RunCard, kept: Mirrored) -> bool:
        kept.run = f"{card.id}/events.out.tfevents.{int(card.created):010d}.oelm"
        path = self._folder / kept.run
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        there = os.fstat(self._descriptor).st_size
        if 0 < kept.size <= there:
            os.truncate(self._descriptor, kept.size)  # what came after was written by a bridge that died of it
            os.lseek(self._descriptor, 0, os.SEEK_END)
            return True
        os.truncate(self._descriptor, 0)
        kept.size = 0
        from tensorboard.compat.proto.event_pb2 import Event

        self._append([Event(wall_time=card.created, file_version="brain.Event:2")], kept)
        return False

    def tell(self, card: RunCard, kept: Mirrored) -> None:
        from tensorboard.plugins.hparams import summary_v2

        words = {**card.facts, "tags": ", ".join(card.tags)}
        summaries = [_text("run", _table(words)), _text("config", _table(card.config))]
        summaries.append(summary_v2.hparams_pb(card.config, trial_id=card.id, start_time_secs=card.created))
        share = card.facts.get("parameters.frozen_share")
        if isinstance(share, float) and not kept.card:  # a scalar: the first time only
            summaries.append(_scalar("parameters/frozen_share", share))
        self._append([_event(0, card.created, one) for one in summaries], kept)

    def write(self, points: Sequence[Point], kept: Mirrored) -> None:
        self._append([event for point in points for event in _events(point)], kept)

    def end(self, end: RunEnd, kept: Mirrored) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        states = {"finished": api_pb2.STATUS_SUCCESS, "stopped": api_pb2.STATUS_UNKNOWN}
        status = states.get(end.state, api_pb2.STATUS_FAILURE)
        info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=end.t)
        data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
        about = metadata.create_summary_metadata(data)
        ended = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=about, tensor=metadata.NULL_TENSOR)
        summaries = [_scalar(name, value) for name, value in end.figures.items()]
        summaries += [_text("end", f"{end.words} {end.message}".strip()), Summary(value=[ended])]
        self._append([_event(end.step, end.t, one) for one in summaries], kept)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, events: Sequence[Event], kept: Mirrored) -> None:
        import io

        from tensorboard.summary.writer.record_writer import RecordWriter

        assert self._descriptor is not None
        content = io.BytesIO()
        writer = RecordWriter(content)
        for event in events:
            writer.write(event.SerializeToString())
        left = memoryview(content.getvalue())
        while left:
            left = left[os.write(self._descriptor, left) :]
        kept.size = os.lseek(self._descriptor, 0, os.SEEK_CUR)


def _events(point: Point) -> list[Event]:
    summaries = [_scalar(name, value) for name, value in point.values.items()]
    if point.what or point.message:
        summaries.append(_text(f"event/{point.what}", point.message))
    return [_event(point.step, point.t, one) for one in summaries]


def _event(step: int, t: float, summary: Summary) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(step=step, wall_time=t, summary=summary)


def _scalar(name: str, value: float) -> Summary:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=name, simple_value=value)])


def _text(name: str, text: str) -> Summary:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    content = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=shape)
    about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary(value=[Summary.Value(tag=name, metadata=about, tensor=content)])


def _table(values: dict[str, Value]) -> str:
    """Markdown, as TensorBoard shows texts."""
    rows = [f"| {key} | {str(value).replace('|', chr(92) + '|')} |" for key, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])
