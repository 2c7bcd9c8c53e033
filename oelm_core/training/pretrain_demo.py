"""The demo's pretrained encoder: a tiny BERT taught to fill in missing words of the demo generator's sentences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from oelm_core.config import Shape
from oelm_core.data import files, packing, synthetic
from oelm_core.data.classification import Examples, encode
from oelm_core.data.tokenizers import demo_tokenizer
from oelm_core.errors import refusing
from oelm_core.models import seeded
from oelm_core.shared_files import share_weights
from oelm_core.training.schedule import BatchPlan

DEFAULT_SHAPE = Shape(layers=3, d_model=96, heads=4, d_ff=256, vocab=320, positions=64)
STEPS = 500
BATCH = 64
LR = 3e-3
MASKED = 0.2
SEED = 7
INIT = 0.1  # BERT's usual 0.02 is for wide models: here logits would stay near zero and attention be learnt late


def ensure_demo_encoder(cache: Path, shape: Shape | None = None, say: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of the demo encoder in transformers' format, pretrained now if it is not there yet.

    Deterministic; runs started at once wait for the one that makes it.
    """
    shape = shape or DEFAULT_SHAPE
    recipe = [shape.model_dump(), STEPS, BATCH, LR, MASKED, SEED, INIT, synthetic.VERSION]
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:8]
    folder = cache / f"demo-bert-{key}"
    if (folder / "config.json").is_file():
        return folder
    with refusing(f"cannot write the demo encoder to {cache}"):
        cache.mkdir(parents=True, exist_ok=True)
        with files.exclusive(cache / f".demo-bert-{key}.lock"):
            if not (folder / "config.json").is_file():
                say(f"pretraining the demo encoder for {STEPS} steps, once")
                model, tokenizer = pretrain(shape, synthetic.ensure("demo-sentiment", cache), say, STEPS)
                with files.new_folder(folder) as draft:
                    model.save_pretrained(draft)
                    tokenizer.save_pretrained(draft)
                    share_weights(Path(draft))
    return folder


def pretrain(shape: Shape, data: Path, say: Callable[[str], None], steps: int) -> tuple[Any, Any]:
    """Masked language modelling over the training sentences, from scratch, packed. Returns (model, tokenizer)."""
    from transformers import BertForMaskedLM

    from oelm_core.models.bert import encoder_config

    tokenizer = demo_tokenizer()
    sentences = _sentences(data, tokenizer, shape.positions)
    plan = BatchPlan(len(sentences), BATCH, 1, SEED)
    config = encoder_config(shape, "bert", 2, 0.0)
    config.initializer_range = INIT
    with seeded(SEED):
        model: Any = BertForMaskedLM(config)
        optimiser = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01, fused=True)
        model.train()
        for step in range(1, steps + 1):
            warm, decay = min(1.0, step / (0.1 * steps)), 1.0 - (step - 1) / steps
            for group in optimiser.param_groups:
                group["lr"] = LR * min(warm, decay)
            loss = _loss(model, packing.pack(sentences, plan.step(step), tokenizer.pad_token_id), tokenizer)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            if step % 100 == 0:
                say(f"pretraining step {step}/{steps}  loss {loss.item():.3f}")
    return model, tokenizer


def _sentences(data: Path, tokenizer: Any, longest: int) -> Examples:
    table = files.find_splits(data, files.TABLES)["train"][0]
    texts = [str(row["sentence"]) for row in files.read_rows(table)]
    return encode(texts, [0] * len(texts), longest, tokenizer)


def _loss(model: Any, batch: packing.Batch, tokenizer: Any) -> torch.Tensor:
    """How well words replaced by [MASK] are guessed; only their features go through the head."""
    special = torch.tensor(sorted({tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id}))
    chosen = (torch.rand(batch.tokens.shape) < MASKED) & ~torch.isin(batch.tokens, special)
    inputs = batch.tokens.masked_fill(chosen, tokenizer.mask_token_id)
    features = model.bert(inputs, attention_mask=batch.mask, position_ids=batch.positions).last_hidden_state
    return F.cross_entropy(model.cls(features[chosen]), batch.tokens[chosen])
