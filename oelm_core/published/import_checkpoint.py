"""Sizes of the tensors in a checkpoint, read without torch and without running a line of what is pickled in it."""

from __future__ import annotations

import collections
import io
import json
import math
import pickle
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_BYTES = 64 * 2**20
"""A larger index than this is not a checkpoint's."""
FLOATS = {"FloatStorage", "HalfStorage", "BFloat16Storage", "DoubleStorage"}
SAFE_FLOATS = {"F64", "F32", "F16", "BF16"}


@dataclass(frozen=True)
class Tensor:
    """What the index says of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    storage: str
    """Which stored block it lies in: tied weights share one."""

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class CheckpointCounts:
    """Parameters of a checkpoint; trainable is None when there is no optimiser state to tell."""

    total: int
    trainable: int | None
    shapes: dict[str, tuple[int, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of the program that saved it, where it kept them."""


def count_checkpoint(path: Path) -> CheckpointCounts | None:
    """CheckpointCounts of a .pt (zip) or .safetensors file, or None when it cannot be read safely."""
    try:
        if path.suffix == ".safetensors":
            return _from_safetensors(path)
        return _from_zip(path)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, pickle.UnpicklingError, EOFError, TypeError):
        return None
    except (AttributeError, IndexError, RecursionError, MemoryError, struct.error, NotImplementedError):
        return None


def _from_safetensors(path: Path) -> CheckpointCounts | None:
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > MOST_BYTES:
            return None
        header = json.loads(file.read(length))
    shapes = {
        name: tuple(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__" and entry["dtype"] in SAFE_FLOATS
    }
    return CheckpointCounts(sum(math.prod(shape) for shape in shapes.values()), None, shapes)


def _from_zip(path: Path) -> CheckpointCounts | None:
    with zipfile.ZipFile(path) as archive:
        name = next((n for n in archive.namelist() if n.endswith("data.pkl")), None)
        if name is None or archive.getinfo(name).file_size > MOST_BYTES:
            return None
        content = _IndexReader(io.BytesIO(archive.read(name))).load()
    weights = _weights(content)
    if not weights:
        return None
    blocks = {tensor.storage: tensor.count for tensor in weights.values()}  # a tied weight is one block
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    return CheckpointCounts(sum(blocks.values()), _trained(content), shapes, _settings(content))


def _weights(content: Any) -> dict[str, Tensor]:
    """The model's floating tensors: the mapping of names that holds most of them, masks left out."""
    if not isinstance(content, Mapping):
        return {}
    for key in ("model_state_dict", "model", "state_dict"):
        if isinstance(content.get(key), Mapping):
            content = content[key]
            break
    return {
        str(name): tensor
        for name, tensor in content.items()
        if isinstance(tensor, Tensor) and tensor.dtype in FLOATS and not str(name).endswith("mask")
    }


def _settings(content: Mapping[Any, Any]) -> Mapping[str, Any]:
    for key in ("args", "config"):
        kept = content.get(key)
        if isinstance(kept, Mapping):
            return {str(name): value for name, value in kept.items() if isinstance(value, str | int | float)}
    return {}


def _trained(content: Mapping[Any, Any]) -> int | None:
    """Parameters the optimiser keeps a first moment of."""
    for key in ("optimizer_state_dict", "optimizer", "optim"):
        state = content.get(key)
        if isinstance(state, Mapping) and isinstance(state.get("state"), Mapping):
            moments = [entry.get("exp_avg") for entry in state["state"].values() if isinstance(entry, Mapping)]
            counts = [moment.count for moment in moments if isinstance(moment, Tensor)]
            return sum(counts) if counts else None
    return None


_NUMPY_SCALARS = {
    *(("numpy.core.multiarray", "scalar"), ("numpy._core.multiarray", "scalar"), ("numpy", "dtype")),
    ("_codecs", "encode"),
}


class _Unread:
    """Takes the place of what is of no use here."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


class _IndexReader(pickle.Unpickler):
    """Knows tensors and ordered dictionaries only; any other name ends the reading."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return _tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return _parameter
        if (module, name) in _NUMPY_SCALARS:
            return _Unread  # a score that was never made a plain float
        if module == "torch" and name.endswith("Storage"):
            return name
        if module == "torch" and name in ("float32", "float16", "bfloat16", "float64", "int64", "bool", "device"):
            return _constant(name)
        raise pickle.UnpicklingError(f"{module}.{name} is not read")

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, kind, key, *_ = pid
        return str(kind), str(key)


def _tensor(storage: tuple[str, str], offset: int, size: tuple[int, ...], *_: Any) -> Tensor:
    return Tensor(tuple(int(n) for n in size), storage[0], f"{storage[1]}+{offset}")


def _parameter(data: Tensor, *_: Any) -> Tensor:
    return data


def _constant(name: str) -> Any:
    return lambda *_: name
