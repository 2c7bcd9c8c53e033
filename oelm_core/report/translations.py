"""A report's headings and the CSV's columns in another language. What the audit says stays English."""

from __future__ import annotations

from pathlib import Path

from oelm_core.errors import BadInput

LANGUAGES = ("en", "zh")


class Translations:
    """`translate("Results")` in the chosen language; a heading without a translation stays as it is."""

    def __init__(self, lang: str = "en") -> None:
        if lang not in LANGUAGES:
            raise BadInput(f"--lang {lang}: write {' or '.join(LANGUAGES)}.")
        self._headings: dict[str, str] = {}
        self._columns: dict[str, str] = {}
        if lang != "en":
            import yaml

            known = yaml.safe_load(Path(__file__).with_name(f"{lang}.yaml").read_text("utf-8"))
            self._headings, self._columns = known["headings"], known["columns"]

    def __call__(self, text: str) -> str:
        return self._headings.get(text, text)

    def column(self, name: str) -> str:
        """A column of the CSV."""
        return self._columns.get(name) or self(name)
