"""Records in the files of TensorBoard and W&B, without their libraries: framing, and protobuf's wire format.

Both files are a sequence of framed protobuf messages. Field numbers never change in protobuf, so a few of them are all
that is needed. A file that breaks off in a record ends there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

WANDB_MAGIC = b":W&B"
_BLOCK = 32768
"""Of a LevelDB log, which .wandb files are: no record's piece crosses the end of a block."""


class BrokenRecord(ValueError):
    """Bytes that are no record."""


def tensorboard_records(content: bytes) -> Iterator[bytes]:
    """TFRecord: length, its checksum, the record, its checksum."""
    place = 0
    while place + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        end = place + 12 + size
        if end + 4 > len(content):
            return  # still being written
        yield content[place + 12 : end]
        place = end + 4


def wandb_records(content: bytes) -> Iterator[bytes]:
    """LevelDB's log: pieces of records in blocks, each with checksum, length and whether it is first or last."""
    if content[:4] != WANDB_MAGIC:
        raise BrokenRecord("it does not begin as a .wandb file does")
    place, pending = 7, b""
    while place + 7 <= len(content):
        rest = _BLOCK - place % _BLOCK
        if rest < 7:
            place += rest
            continue
        size, piece = struct.unpack_from("<HB", content, place + 4)
        begin, place = place + 7, place + 7 + size
        if place > len(content) or piece not in (1, 2, 3, 4):
            return
        pending = (b"" if piece in (1, 2) else pending) + content[begin:place]
        if piece in (1, 4):
            yield pending
            pending = b""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field: an int for a varint, else its bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(message, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise BrokenRecord("a field of an unknown kind")
        if place + size > len(message):
            raise BrokenRecord("a field that is longer than its record")
        yield number, message[place : place + size]
        place += size


def parts(message: bytes, number: int) -> list[bytes]:
    """The fields of one number that are bytes: texts and messages."""
    return [value for found, value in fields(message) if found == number and isinstance(value, bytes)]


def text(message: bytes, number: int) -> str:
    return next((value.decode("utf-8", "replace") for value in parts(message, number)), "")


def integer(message: bytes, number: int) -> int | None:
    """A varint of 64 bits, with its sign."""
    found = next((value for one, value in fields(message) if one == number and isinstance(value, int)), None)
    return found - 2**64 if found is not None and found >= 2**63 else found


def number(message: bytes, field: int) -> float | None:
    """A float or a double, by its size."""
    found = next(iter(parts(message, field)), None)
    if found is None or len(found) not in (4, 8):
        return None
    return float(struct.unpack("<f" if len(found) == 4 else "<d", found)[0])


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 70:
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), place
        shift += 7
    raise BrokenRecord("a number without an end")
