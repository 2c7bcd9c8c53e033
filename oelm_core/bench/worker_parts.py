"""Variants made of parts of the worker: writing records, choosing a precision, generating, validating."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from oelm_core.bench.sizes import Sizes
from oelm_core.bench.stepping import About, device, token_batch


class Calls:
    """A variant that makes `steps` calls of a function."""

    def __init__(self, call: Any, steps: int = 1, keep: Any = None) -> None:
        self.call, self.steps, self.keep = call, steps, keep
        self.about: dict[str, Any] = {}

    def __call__(self) -> None:
        for _ in range(self.steps):
            self.call()


def record_writing(megabytes: int) -> Calls:
    """What the loop writes at a log interval, into a folder whose metrics already have so many megabytes."""
    from oelm_core.runs.folder import RunFolder
    from oelm_core.training.records import Records

    kept = tempfile.TemporaryDirectory(prefix="oelm-bench-")
    folder = RunFolder(Path(kept.name))
    line = b'{"t": 1.0, "step": 1, "kind": "train", "loss": 3.14159, "lr": 0.0001, "grad_norm": 1.0}\n'
    with open(folder.metrics, "wb") as metrics:
        for _ in range(megabytes):
            metrics.write(line * (1_000_000 // len(line)))
    records = Records(folder, total=1000)
    values = dict.fromkeys(("loss", "lr", "grad_norm", "step_time", "tokens_per_s", "examples_per_s", "data_wait"), 1.0)

    def write() -> None:
        records.train(1, 1.0, **values)
        records.progress(1)

    return Calls(write, 2000, kept)


def precision() -> About:
    """What amp takes here, and the seconds a product takes in each format."""
    from oelm_core.training.precision import choose

    place = device()
    chosen = choose("amp", place)
    formats = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if place.type == "cuda":
        formats["fp16"] = torch.float16
    products = {}
    for name, dtype in formats.items():
        a, b = (torch.randn(512, 512, device=place).to(dtype) for _ in range(2))
        times = [_product_seconds(a, b) for _ in range(3)]
        products[name] = min(times[1:])
    return About({"chosen": chosen.name, "said": chosen.note or "", "products": products})


def _product_seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.is_cuda:
        torch.cuda.synchronize()
    began = time.process_time() if not a.is_cuda else time.perf_counter()
    a @ b
    if a.is_cuda:
        torch.cuda.synchronize()
    return (time.process_time() if not a.is_cuda else time.perf_counter()) - began


def generation(*, cache: bool, tokens: int, sizes: dict[str, Any]) -> Calls:
    model, inputs, _ = _model(sizes)
    prompt = inputs[:1, : max(4, inputs.shape[1] // 4)]

    def call() -> None:
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            use_cache=cache,
            pad_token_id=0,
        )

    return Calls(call)


def evaluation(*, gradients: bool, sizes: dict[str, Any]) -> Calls:
    model, inputs, targets = _model(sizes)

    def call() -> None:
        with torch.set_grad_enabled(gradients):
            model.token_losses(inputs, targets)

    return Calls(call)


def _model(sizes: dict[str, Any]) -> tuple[Any, torch.Tensor, torch.Tensor]:
    from oelm_core.bench.ours import gpt_config
    from oelm_core.models.gpt import OelmGPTForCausalLM

    wanted = Sizes(**sizes)
    torch.manual_seed(0)
    model: Any = OelmGPTForCausalLM(gpt_config(wanted))
    model.to(device()).eval()
    return model, *token_batch(wanted.vocab, wanted.batch, wanted.length)
