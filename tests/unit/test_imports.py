"""Import contracts see only what is written as an import: nothing goes around them by naming a module in a string."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BY_NAME = {
    "oelm_core/__init__.py": "the public names, loaded with torch when first asked for",
    "oelm_core/mirror/targets.py": "a bridge, named by its table: none is loaded unless asked for",
    "oelm_core/proof/__main__.py": "a check, named by its table",
    "oelm_core/models/__init__.py": "a family's module, named by the registry",
    "oelm_core/report/__init__.py": "a format's renderer, named by the registry",
    "oelm_tui/cli.py": "a command's module, so that `oelm --help` pays for none",
}


def test_modules_are_imported_by_name_only_where_a_table_says_so() -> None:
    pattern = re.compile(r"import_module|resolve_name|__import__\(|spec_from_file_location")
    found = {
        str(file.relative_to(ROOT))
        for package in ("oelm_core", "oelm_tui")
        for file in (ROOT / package).rglob("*.py")
        if pattern.search(file.read_text())
    }
    assert found == set(BY_NAME)
