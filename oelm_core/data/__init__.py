"""From text to arrays: named sets, the user's own files, tokenizers, prepared token files."""

from oelm_core.data.sets import SETS, NamedSet, available, find_set, how_to_get, known_set

__all__ = ["SETS", "NamedSet", "available", "find_set", "how_to_get", "known_set"]
