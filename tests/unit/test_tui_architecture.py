"""What holds the screen's parts together: one registry of keys, Textual's private API in one module."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode

import oelm_tui
from benchmarks.screen_keys import with_keys
from oelm_tui.actions import ACTIONS, BY_ID, bindings
from oelm_tui.textual_private import BELOW, FIRST, is_known

ROOT = Path(oelm_tui.__file__).parents[1]
PRIVATE = "oelm_tui.textual_private"


@lru_cache(maxsize=1)
def modules() -> list[ModuleType]:
    names = [found.name for found in pkgutil.walk_packages(oelm_tui.__path__, "oelm_tui.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


@lru_cache(maxsize=1)
def screens_and_widgets() -> list[type[DOMNode]]:
    return [
        found
        for module in modules()
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, DOMNode) and found.__module__ == module.__name__
    ]


def own_bindings(node: type[DOMNode]) -> list[Binding]:
    return list(vars(node).get("BINDINGS", ()))


def test_every_key_of_every_screen_and_widget_comes_from_the_registry():
    known = bindings(*{action.where for action in ACTIONS})
    strays = [(node.__name__, key) for node in screens_and_widgets() for key in own_bindings(node) if key not in known]
    assert strays == []
    assert {key.id for node in screens_and_widgets() for key in own_bindings(node)} == set(BY_ID)


def test_no_module_makes_a_binding_or_looks_at_a_key_besides_the_registry():
    """A field hands keys on in the order they came; it has none of its own."""
    own = re.compile(r"\bBinding\(|def on_key|def key_\w+\(self")
    found = [module.__name__ for module in modules() if own.search(source_of(module))]
    assert found == ["oelm_tui.actions", "oelm_tui.widgets.field"]


def test_every_action_has_the_method_that_does_it():
    for node in screens_and_widgets():
        for key in own_bindings(node):
            assert callable(getattr(node, "action_" + key.action.partition("(")[0])), (node, key.action)


def test_textuals_private_api_is_touched_in_one_module_only():
    assert [use for module in modules() if module.__name__ != PRIVATE for use in private_uses(module)] == []


def private_uses(module: ModuleType) -> Iterator[str]:
    """Private modules of Textual, private attributes of other objects, names that a base class of Textual has too."""
    source = source_of(module)
    if "textual" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("textual._"):
            yield f"{module.__name__}: {node.module}"
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) != "self":
            yield f"{module.__name__}: {ast.unparse(node)}"
    for node in screens_and_widgets():
        if node.__module__ == module.__name__:
            theirs = [private_names(base) for base in node.__mro__ if base.__module__.startswith("textual")]
            yield from (f"{node.__name__}: {name}" for name in private_names(node) & set().union(*theirs))


@lru_cache
def private_names(owner: type) -> frozenset[str]:
    """Attributes and methods with a leading underscore that a class's source defines or speaks of."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(owner)))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(name for name in found if is_private(name))


def is_private(name: str) -> bool:
    return len(name) > 1 and name[0] == "_" != name[1]


def source_of(module: ModuleType) -> str:
    return Path(module.__file__ or "").read_text(encoding="utf-8")


def test_the_private_names_we_use_are_there_in_the_installed_version():
    assert is_known()
    assert {"_handle_exception", "_print_error_renderables"} <= set(vars(App))
    assert {"_driver", "_exit_renderables"} <= private_names(App)


def test_the_versions_tried_are_those_that_can_be_installed():
    bounds = f'"textual>={".".join(map(str, FIRST))},<{BELOW[0]}"'
    assert bounds in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert is_known("8.2.10")
    assert is_known("8.3.0rc1")
    assert not is_known("nightly")
    assert not is_known("8.2.4")
    assert not is_known("9.0.0")


def test_the_documentation_has_every_key_as_the_help_has_it():
    page = (ROOT / "docs/tui.md").read_text(encoding="utf-8")
    assert page == with_keys(page), "make pictures writes the tables"
