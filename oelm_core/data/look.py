"""What is at a `data.path`, by the names of its files: whether a run would find its text is said before a launch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.data.files import TABLES, TEXTS, find_splits
from oelm_core.errors import BadData

if TYPE_CHECKING:
    from oelm_core.config import Data


def words_on(data: Data) -> str:
    """The splits found and their files, "" where no path is given; BadData with one sentence where none is found."""
    if data.path is None:
        return ""
    path = Path(data.path).expanduser()
    if data.classes is None and (path / "manifest.json").is_file():
        return f"prepared tokens in {path.name}"
    splits = find_splits(path, TABLES if data.classes is not None else (*TEXTS, *TABLES))
    if "train" not in splits:
        raise BadData(f"data.path {path}: there is no training file beside {splits['validation'][0].name}.")
    if data.classes is not None and data.validation == "split" and not {"validation", "mismatched"} & set(splits):
        raise BadData(
            f"data.path {path}: there is no validation file beside {splits['train'][0].name};"
            " add one (validation.tsv) or set data.validation=random."
        )
    return ", ".join(
        f"{split} from {found[0].name}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
        for split, found in splits.items()
    )
