"""Continues a prompt with the networks of runs, in a process of its own: `python -m oelm_core.training.generate`.

Each line on stdout is a `GeneratedPiece`; the light side is `oelm_core/launch/generate.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm_core.errors import BadInput
from oelm_core.runs.evaluations import GeneratedPiece
from oelm_core.runs.folder import RunFolder
from oelm_core.training.answering import answer, send

if TYPE_CHECKING:
    from transformers import TextStreamer


USUAL = 100
"""Tokens that are written where nobody says how many."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="oelm_core.training.generate", description="Continues a prompt.")
    parser.add_argument("--run-folder", required=True, type=Path, action="append")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--length", type=int)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--seed", type=int, default=42)
    asked = parser.parse_args(arguments)
    folders = [RunFolder(path) for path in asked.run_folder]

    def write_all() -> None:
        for folder in folders:
            write(folder, asked.prompt, asked.length, asked.temperature, asked.top_k, asked.seed)

    return answer(folders, write_all)


def write(folder: RunFolder, prompt: str, length: int | None, temperature: float, top_k: int, seed: int) -> None:
    """Sends the prompt as the run reads it and what it writes behind it, word by word."""
    import torch

    from oelm_core.training.distributed import join
    from oelm_core.training.finished import load_finished
    from oelm_core.training.session import device_kind

    found = load_finished(folder)
    tokenizer: Any = found.tokenizer
    model: Any = found.network.to(join(device_kind()).device)
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids.long().to(model.device)
    end = tokenizer.eos_token_id
    if ids.shape[1] == 0:
        ids = torch.tensor([[end]], device=model.device)  # a text of its own begins behind the end of another
    positions = int(getattr(model.config, "max_position_embeddings", 0) or ids.shape[1] + (length or USUAL))
    if ids.shape[1] >= positions:
        raise BadInput(f"--prompt has {ids.shape[1]} tokens; {folder.id} can hold {positions} with its answer.")
    send(GeneratedPiece(run=folder.id, step=found.step, note=_note(tokenizer, ids, positions, length)))
    settings: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        settings = {"do_sample": True, "temperature": temperature, "top_k": top_k or int(model.config.vocab_size)}
    torch.manual_seed(seed)
    with torch.no_grad():
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=min(length or USUAL, positions - ids.shape[1]),
            eos_token_id=end,
            pad_token_id=end,
            streamer=_streamer(folder.id, tokenizer),
            **settings,
        )


def _note(tokenizer: Any, ids: Any, positions: int, length: int | None) -> str:
    notes = []
    unknown = int((ids == tokenizer.unk_token_id).sum()) if tokenizer.unk_token_id is not None else 0
    if unknown and tokenizer.unk_token != tokenizer.eos_token:
        notes.append(f"{unknown} of the prompt's {ids.shape[1]} tokens are unknown to it")
    if length is not None and length > (room := positions - int(ids.shape[1])):
        notes.append(f"it has room for {room} tokens behind the prompt")
    return "; ".join(notes)


def _streamer(run: str, tokenizer: Any) -> TextStreamer:
    from transformers import TextStreamer

    class Sender(TextStreamer):
        """Sends words as soon as they are whole."""

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            if text:
                send(GeneratedPiece(run=run, text=text))

    return Sender(tokenizer, skip_special_tokens=True)


if __name__ == "__main__":
    sys.exit(main())
