"""From text to batches: tokenising against `datasets.map`, and the cost of putting a batch together."""

from __future__ import annotations

import os
import random
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.calls import Calls
from benchmarks.claims import ClaimSection
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import like_sst2
from oelm_core.bench.turns import paired_ratio, take_turns
from oelm_core.data import packing
from oelm_core.data.files import Source
from oelm_core.data.language import sequence_count, sequences
from oelm_core.data.token_files import write_tokens
from oelm_core.formatting import count, measured_time

WORDS = 12_000


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("data", "From text to batches")
    _tokenising(section, effort)
    _batches(section, effort)
    return section


def _tokenising(section: ClaimSection, effort: Effort) -> None:
    documents = 400 if effort.quick else 6_000
    ours, theirs = "oelm data prepare", "datasets.map, batched"
    makes = {
        ours: partial(our_preparation, documents, effort.threads),
        theirs: partial(datasets_map, documents, effort.threads),
    }
    found = take_turns(makes, rounds=effort.rounds(6), threads=effort.threads)
    tokens = found[ours].about["tokens"]
    # By the wall: datasets works in processes of its own, which this process's CPU time does not count.
    faster = paired_ratio(found[theirs].wall, found[ours].wall)
    rows = [[name, measured_time(one.median_wall), count(tokens / one.median_wall)] for name, one in found.items()]
    note = (
        f"{documents:,} documents of about {tokens / documents:.0f} tokens, a byte-level BPE as GPT-2's (fast"
        f" tokenizer), {effort.threads} workers each, wall clock. Ours also writes the token files, checksums and"
        " journal; datasets.map starts its processes at every call and writes its cache."
    )
    section.tables.append(BenchTable("Tokenising", ["way", "time", "tokens/s"], rows, note))
    section.claim_ratio("tokenising against datasets.map", "at least as fast", faster, at_least=1.0)
    section.keep("tokenising", found)


def _batches(section: ClaimSection, effort: Effort) -> None:
    makes = {"32 sentences packed": packed_batches, "8 x 512 tokens": token_batches}
    found = take_turns(makes, rounds=effort.rounds(10), threads=effort.threads)
    rows = [[name, measured_time(one.median)] for name, one in found.items()]
    note = "Made in a thread beside the training step; the worker's table says what the step really waits for."
    section.tables.append(BenchTable("Putting a batch together", ["batch", "time"], rows, note))
    section.keep("batches", found)


# -- what is measured, made in a process of its own --------------------------------------------------------------------


def documents_of(count: int, seed: int = 0) -> list[str]:
    """Texts of 50 to 350 words from a vocabulary with the frequencies of a language (Zipf)."""
    draw = random.Random(seed)
    letters = "etaoinshrdlucmfw"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 10))) for _ in range(WORDS)]
    weights = [1 / rank for rank in range(1, WORDS + 1)]
    return [" ".join(draw.choices(words, weights, k=draw.randint(50, 350))) + "." for _ in range(count)]


def byte_level_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A fast tokenizer of GPT-2's kind, trained on some of the texts."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    inner.train_from_iterator(texts[:1000], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")


def our_preparation(documents: int, workers: int) -> Calls:
    """`oelm data prepare` on texts in memory, into token files."""
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    texts = documents_of(documents)
    tokenizer = byte_level_tokenizer(texts)
    kept = tempfile.TemporaryDirectory(prefix="oelm-bench-")
    source = Source("memory", "bench", lambda: texts, len(texts))
    number = iter(range(1_000_000))

    def call() -> None:
        write_tokens(Path(kept.name) / str(next(number)), "bench", {"train": source}, tokenizer)

    calls = Calls(call, keep=kept)
    ids = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    calls.about = {"tokens": sum(len(encoded.ids) for encoded in ids)}
    return calls


def datasets_map(documents: int, workers: int) -> Calls:
    """What a script does: `Dataset.map` with the fast tokenizer, batched, in as many processes."""
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    import datasets  # late: pandas comes with it

    datasets.disable_progress_bars()
    texts = documents_of(documents)
    tokenizer = byte_level_tokenizer(texts)
    kept = tempfile.TemporaryDirectory(prefix="oelm-bench-")
    table = datasets.Dataset.from_dict({"text": texts})
    number = iter(range(1_000_000))

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {"ids": tokenizer(batch["text"], add_special_tokens=False)["input_ids"]}

    def call() -> None:
        table.map(
            encode,
            batched=True,
            num_proc=workers if workers > 1 else None,
            remove_columns=["text"],
            cache_file_name=str(Path(kept.name) / f"{next(number)}.arrow"),
            load_from_cache_file=False,
        )

    return Calls(call, keep=kept)


def packed_batches() -> Calls:
    examples = like_sst2(3200, 30_000)
    chosen = np.random.default_rng(0).permutation(len(examples)).reshape(-1, 32)
    turn = iter(np.tile(chosen, (1000, 1)))
    return Calls(lambda: packing.pack(examples, next(turn), 0), 50)


def token_batches() -> Calls:
    tokens = np.random.default_rng(0).integers(0, 50_000, 4_000_000).astype(np.uint16)
    count = sequence_count(tokens, 512)
    chosen = np.random.default_rng(0).permutation(count)[: count // 8 * 8].reshape(-1, 8)
    turn = iter(np.tile(chosen, (1000, 1)))
    return Calls(lambda: sequences(tokens, next(turn), 512), 50)
