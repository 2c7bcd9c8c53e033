"""train.compile: code for one shape where all steps have it, the same numbers, and no compiler during evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from oelm_core.training.compiling import as_written, compile_layers
from tests.small_models import experiment, loss_of, prepared, tokens


class Compiler:
    """A backend that keeps what it is given to compile, and runs it as it is: no C++ compiler is needed."""

    def __init__(self) -> None:
        self.sizes_known: list[bool] = []
        self.modes: set[str | None] = set()

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any], mode: str | None = None) -> Callable[..., Any]:
        self.sizes_known.append(not any(isinstance(one, torch.SymInt) for one in inputs))
        self.modes.add(mode)
        return graph.forward


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    torch.compiler.reset()
    backend, compile_module = Compiler(), nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **asked: compile_module(self, backend=backend, **asked))
    yield backend
    torch.compiler.reset()


def gradients(model: nn.Module, rows: int) -> list[torch.Tensor]:
    model.zero_grad()
    loss_of(model, tokens(rows)).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_a_gpt_is_compiled_for_the_sizes_of_its_steps_and_trains_as_without(compiler: Compiler) -> None:
    (model, _), (plain, _) = prepared(experiment("gpt")), prepared(experiment("gpt"))
    compile_layers(model, fixed_shapes=True)
    for rows in (4, 4, 3, 4, 3):  # the last batch of an epoch is smaller
        for ours, other in zip(gradients(model, rows), gradients(plain, rows), strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-6)
    assert compiler.sizes_known == [True, True]  # once for each size, and all layers share it


def test_where_batches_change_their_size_one_code_serves_all(compiler: Compiler) -> None:
    model, _ = prepared(experiment("bert"))
    compile_layers(model, fixed_shapes=False)
    for rows in (4, 3, 5, 6):
        gradients(model, rows)
    assert compiler.sizes_known == [False]


@pytest.mark.parametrize(("fixed_shapes", "mode"), [(True, "reduce-overhead"), (False, None)])
def test_graphs_are_asked_for_where_all_steps_have_one_size(
    compiler: Compiler, fixed_shapes: bool, mode: str | None
) -> None:
    model, _ = prepared(experiment("bert"))
    compile_layers(model, fixed_shapes=fixed_shapes, graphs=True)
    gradients(model, 4)
    assert compiler.modes == {mode}


def test_an_evaluation_of_other_sizes_waits_for_no_compiler(compiler: Compiler) -> None:
    model, _ = prepared(experiment("gpt"))
    compile_layers(model, fixed_shapes=True)
    gradients(model, 4)
    for rows in (5, 6):
        with as_written(fixed_shapes=True), torch.no_grad():
            model.eval()(input_ids=tokens(rows))
    gradients(model.train(), 4)
    assert len(compiler.sizes_known) == 1
