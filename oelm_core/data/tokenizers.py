"""Tokenizers: loading one by hub name or folder, checking it fits the model, making one out of text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm_core.data import files
from oelm_core.errors import BadData, NotFound, Refused, first_line, refusing
from oelm_core.registry import FAMILIES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from oelm_core.config import Experiment

PADDED_VOCABULARY = 128  # models round their vocabulary up for speed; more than this is another vocabulary


def load_tokenizer(experiment: Experiment) -> PreTrainedTokenizerFast:
    """The experiment's tokenizer: data.tokenizer, else the model's own; the demo's has the generator's words."""
    model, usual = experiment.model, FAMILIES[experiment.family].tokenizer
    if experiment.data.tokenizer is not None:
        return load_named(experiment.data.tokenizer)
    if model.path is None and model.name.startswith("demo-"):
        return demo_tokenizer()
    return load_named(model.path or usual) if usual else load_named(model.path or model.name, "model.path")


def load_named(name: str, key: str = "data.tokenizer") -> PreTrainedTokenizerFast:
    """From a folder or the hub (its cache when offline). An empty vocabulary is refused: transformers can make one.

    `key` is the setting or option that named it, for the error.
    """
    from transformers import AutoTokenizer

    folder = Path(name).expanduser()
    if ("/" in name and name.startswith((".", "/", "~"))) and not folder.is_dir():
        raise BadData(f"{key} {name}: no such folder.")
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder) if folder.is_dir() else name)
    except (OSError, ValueError, KeyError) as error:
        why = first_line(error).split(". ")[0][:160]
        how = f"{key} " if key.startswith("--") else f"--set {key}="
        raise NotFound(
            f"no tokenizer '{name}' in the hub's cache or as a folder ({why}); give a folder with"
            f" {how}FOLDER, or set HF_HOME to a filled cache or HF_ENDPOINT to a mirror."
        ) from None
    if len(tokenizer) < 16:
        raise BadData(f"{key} {name}: it loads with only {len(tokenizer)} tokens; its files are incomplete.")
    if not getattr(tokenizer, "is_fast", False):
        raise BadData(f"{key} {name}: only tokenizers with a tokenizer.json (fast ones) can be used.")
    return tokenizer


def demo_tokenizer() -> PreTrainedTokenizerFast:
    """All words of both demo sets, so that the demo encoder and the demo GPT share one vocabulary."""
    from oelm_core.data import synthetic

    return word_tokenizer(synthetic.vocabulary())


def word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token per word, split at spaces, numbered in alphabetical order: equal words give equal tokenizers."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
    numbered = {word: number for number, word in enumerate([*specials, *sorted(set(words) - set(specials))])}
    inner = Tokenizer(models.WordLevel(numbered, unk_token="[UNK]"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        eos_token="<|endoftext|>",
    )
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


def bpe_tokenizer(documents: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of exactly `size` tokens, as GPT-2's but learnt from these documents; <|endoftext|> is token 0.

    The same documents give the same tokenizer, in whatever order and by however many threads they are counted.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    smallest = len(alphabet) + 1
    if size < smallest:
        raise BadData(f"a vocabulary of {size} is too small: {smallest - 1} bytes and the end token are {smallest}.")
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[files.SEPARATOR], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(documents, trainer)
    made = inner.get_vocab_size()
    if made < size:
        raise BadData(f"the text is too short for {size} tokens: it has only {made}; ask for fewer, or give more text.")
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=files.SEPARATOR)


def make_tokenizer(text: Path, size: int, folder: Path) -> Path:
    """Learns a tokenizer from a file, or from the training files of a folder, and saves it; one that is there stays."""
    _, found = files.find_split(text, (*files.TEXTS, *files.TABLES), "train", "--from")
    tokenizer = bpe_tokenizer(files.source_of(found, files.read_documents).read(), size)
    if folder.exists():
        kept = load_named(str(folder.resolve()), "-o") if (folder / "tokenizer.json").is_file() else None
        if kept is None or tokenizer_hash(kept) != tokenizer_hash(tokenizer):
            raise Refused(f"{folder} is there already and holds something else; name another folder, or delete it.")
        return folder
    with refusing(f"cannot write {folder}"), files.new_folder(folder) as draft:
        tokenizer.save_pretrained(str(draft))
    return folder


def check_vocabulary(tokenizer: PreTrainedTokenizerFast, model_vocabulary: int, experiment: Experiment) -> None:
    """Refuses a tokenizer whose size is not the model's (a model's may be padded up a little)."""
    size = len(tokenizer)
    if not size <= model_vocabulary < size + PADDED_VOCABULARY:
        where = experiment.data.tokenizer or experiment.model.path or experiment.model.name
        raise BadData(
            f"{experiment.id}: the tokenizer ({where}) has {size} tokens but the model has {model_vocabulary};"
            f" give the model's own with --set data.tokenizer=FOLDER"
            + (f" or build the model with --set model.shape.vocab={size}." if experiment.start == "scratch" else ".")
        )


def tokenizer_hash(tokenizer: PreTrainedTokenizerFast) -> str:
    """Names the tokenizer by what it does, not by where it lies or how long it was last asked to make things."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    for passing in ("truncation", "padding"):
        content.pop(passing, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
