"""Variants made of parts of the worker: writing records, choosing a precision, generating, validating."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oelm_core.bench.sizes import Sizes
from oelm_core.bench.stepping import Calls, device, token_batch


def record_writing(megabytes: int) -> Calls:
    """What the loop writes at a log interval; the folder's metrics and log already have so many megabytes each."""
    from oelm_core.runs.folder import RunFolder
    from oelm_core.training.recorder import Records

    kept = tempfile.TemporaryDirectory(prefix="oelm-bench-")
    folder = RunFolder(Path(kept.name))
    line = b'{"t": 1.0, "step": 1, "kind": "train", "loss": 3.14159, "lr": 0.0001, "grad_norm": 1.0}\n'
    for path in (folder.metrics, folder.log):
        with open(path, "ab") as file:
            for _ in range(megabytes):
                file.write(line * (1_000_000 // len(line)))
            os.dup2(file.fileno(), sys.stdout.fileno())  # the log comes last: it is the worker's standard output
    records = Records(folder, total=1000)
    values = dict.fromkeys(("loss", "lr", "grad_norm", "step_time", "tokens_per_s", "examples_per_s", "data_wait"), 1.0)

    def write() -> None:
        records.train(1, 1.0, **values)
        records.progress(1)

    return Calls(write, 1000, kept)


def precision() -> dict[str, Any]:
    """What amp takes here, and the seconds a product takes in each format."""
    from oelm_core.training.precision import choose

    place = device()
    chosen = choose("amp", place)
    formats = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if place.type == "cuda":
        formats["fp16"] = torch.float16
    products = {}
    size = 4096 if place.type == "cuda" else 512
    for name, dtype in formats.items():
        a, b = (torch.randn(size, size, device=place).to(dtype) for _ in range(2))
        times = [_product_seconds(a, b) for _ in range(3)]
        products[name] = min(times[1:])
    return {"chosen": chosen.name, "said": chosen.note or "", "size": size, "products": products}


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


def forward_with_gradients(*, at_once: int, sizes: dict[str, Any]) -> Calls:
    """What validation would be if it did not switch them off."""
    model, inputs, targets = _model(sizes)

    def call() -> None:
        for part, wanted in zip(inputs.split(at_once), targets.split(at_once), strict=True):
            model.token_losses(part, wanted)

    return Calls(call)


def validation(*, at_once: int, fixed: bool, sizes: dict[str, Any]) -> Calls:
    """The trainer's own validation of a batch of sequences: so many at once, or from so many on what fits."""
    from oelm_core.bench.experiments import experiment
    from oelm_core.data.language import LanguageData
    from oelm_core.training import precision
    from oelm_core.training.distributed import Ranks
    from oelm_core.training.language_task import LanguageTask
    from oelm_core.training.signals import StopRequest

    model, inputs, _ = _model(sizes)
    text = inputs.flatten().cpu().numpy().astype(np.uint16)
    text = np.append(text, text[:1])  # every sequence has a next token
    wanted = Sizes(**sizes).but(batch=at_once)
    train = {"eval_batch_size": at_once} if fixed else {}
    language = experiment("gpt", wanted, data={"name": "bench"}, train=train)
    task = LanguageTask(language, LanguageData("bench", text, text, 0, ""), None)
    ranks, chosen, stop = Ranks(0, 1, device()), precision.choose("fp32", device()), StopRequest()
    return Calls(lambda: task.evaluate(model, ranks, chosen, stop))


def _model(sizes: dict[str, Any]) -> tuple[Any, torch.Tensor, torch.Tensor]:
    from oelm_core.bench.ours import gpt_config
    from oelm_core.models.gpt import OelmGPTForCausalLM

    wanted = Sizes(**sizes)
    torch.manual_seed(0)
    model: Any = OelmGPTForCausalLM(gpt_config(wanted))
    model.to(device()).eval()
    return model, *token_batch(wanted.vocab, wanted.batch, wanted.length)
