"""Writes tokenizers of whole words: of numbers, where the id of "17" is 17, or of given words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_number_words(folder: Path, count: int) -> Path:
    """Write a tokenizer.json with a number of ids; returns the folder."""
    return write_words(folder, [str(number) for number in range(count)])


def write_words(folder: Path, words: Sequence[str]) -> Path:
    """Write a tokenizer.json of words, whose ids are their places; the fourth is for unknown words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    ids = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=words[3]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
