"""Tokenizes queries and gives a system features of their words: precomputed ones or those of a DistilBERT.

Only a DistilBERT needs `transformers` (extra `vision`); tokenizers need only `tokenizers`. Checkpoints have
weights under `bert`, and other ids for a sentence would change the released results of MMN and HERO.

Shapes: Q queries, L tokens, D width.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from whenabouts.intake import hub
from whenabouts.lines import first_line
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.models.protocol import QueryBatch

SIZES: Mapping[str, int] = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "n_layers": 6,
    "n_heads": 12,
    "dim": 768,
    "hidden_dim": 3072,
}
"""The sizes of distilbert-base-uncased, by the names of its configuration."""
_EXTRA = 'it needs the package transformers: pip install "whenabouts[vision]"'

_BYTE_LEVEL, _CONTINUATION = "ByteLevel", "##"
_FILES = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))
"""The files of a tokenizer: the first of these groups that a folder has completely."""


class Words(nn.Module):
    """Features of the words of queries.

    With `sizes` (missing ones are as in `SIZES`), words are ids, and a DistilBERT of these sizes makes the
    features; `width` is ignored. With None, words are already features of `width` values.
    """

    def __init__(self, width: int, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.bert = None if sizes is None else _new_bert(sizes)
        self.width: int = width if sizes is None else {**SIZES, **sizes}["dim"]

    def begin(self, name: str) -> None:
        """Load pretrained weights (a folder, or a hub's repository) into the DistilBERT, if there is one."""
        if self.bert is not None:
            read_pretrained(self.bert, name)

    def forward(self, queries: QueryBatch) -> Tensor:
        """The features (Q, L, width) of words. Raises as `check_words` does."""
        check_words(queries, reads_ids=self.bert is not None)
        if self.bert is None:
            return queries.tokens
        ids = queries.tokens.masked_fill(~queries.mask, 0)
        states: Tensor = self.bert(input_ids=ids, attention_mask=queries.mask.long()).last_hidden_state
        return states


def check_words(queries: QueryBatch, *, reads_ids: bool) -> None:
    """Raise UsageError if a system that reads ids gets features, or one that reads features gets ids."""
    if (has_ids := queries.tokens.dim() == 2) != reads_ids:
        raise UsageError(
            "words are ids, but this system has no text encoder; name a feature file in [features] query"
            if has_ids
            else "words are features, but this system has a text encoder, which reads ids; "
            'set [features] query = "tokenizer:NAME"'
        )


def check_sizes(sizes: Mapping[str, int], system: str) -> None:
    """Raise UsageError, naming the system, for an unknown size, or heads that do not divide the width."""
    for name in sorted(set(sizes) - set(SIZES)):
        raise UsageError(f"{system}: text has no size {name!r}; it has {', '.join(SIZES)}")
    width, heads = ({**SIZES, **sizes}[name] for name in ("dim", "n_heads"))
    if width % heads:
        raise UsageError(f"{system}: text: dim = {width} is no multiple of n_heads = {heads}")


def mean_of_words(hidden: Tensor, mask: Tensor) -> Tensor:
    """(Q, D): the mean of `hidden` (Q, L, D) over the words in `mask` (Q, L); zeros without any."""
    real = mask[..., None]
    return hidden.masked_fill(~real, 0).sum(1) / real.sum(1).clamp(min=1)


def _new_bert(sizes: Mapping[str, int]) -> Any:
    """A DistilBERT of these sizes with new weights. Raises UsageError without `transformers`."""
    try:
        from transformers import DistilBertConfig, DistilBertModel
    except ImportError:
        raise UsageError(f"a text encoder inside the system: {_EXTRA}") from None
    return DistilBertModel(DistilBertConfig(**{**SIZES, **sizes}))


def read_pretrained(bert: Any, name: str) -> None:
    """Load the weights of a DistilBERT, given by a folder or a hub's repository, into `bert`.

    Raises UsageError if the sizes differ, WhenaboutsError if weights are missing or cannot be read.
    """
    from safetensors import SafetensorError
    from transformers import DistilBertModel

    try:
        place = Path(name).expanduser()
        if not place.is_dir():
            place = hub.folder_of(name, lambda folder: (folder / "config.json").is_file())
        with hub.nothing_downloaded():
            pretrained, report = DistilBertModel.from_pretrained(str(place), output_loading_info=True)
    except hub.HubError as error:
        raise WhenaboutsError(f"text encoder {error}") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise WhenaboutsError(f"text encoder {name!r} cannot be read: {first_line(error)}") from None
    # The library fills missing weights with random values; from a BERT all layers are missing.
    if missing := sorted(report["missing_keys"]):
        raise WhenaboutsError(
            f"text encoder {name!r} lacks {len(missing)} weights, such as {missing[0]}; name a DistilBERT"
        )
    for size in SIZES:
        if (given := getattr(pretrained.config, size)) != (expected := getattr(bert.config, size)):
            raise UsageError(
                f"text encoder {name!r} has {size} = {given}, but [model.text] says {expected}; "
                f"set it to {given}"
            )
    bert.load_state_dict(pretrained.state_dict())


class Tokens:
    """The tokenizer of a folder or a hub's repository, which turns sentences into ids.

    A folder has tokenizer.json, vocab.txt, or vocab.json with merges.txt (as for RoBERTa).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tokenizer = _open(name)
        # Truncation is part of the tokenizer's state, and the threads of a server share the tokenizer.
        self._lock = Lock()

    def batch(self, sentences: Sequence[str], most: int) -> QueryBatch:
        """(Q, L) ids with the tokenizer's special tokens (BERT: [CLS] and [SEP]), and their mask.

        Sentences are cut to `most` ids, special ones included. Raises UsageError for one without words.
        """
        # If the special tokens alone are more than `most`, the library cuts nothing.
        return self._padded(sentences, [encoding.ids[:most] for encoding in self._encoded(sentences, most)])

    def pieces(self, text: str, *, special: bool) -> list[str]:
        """The tokens of a text as strings, with or without `special` tokens, as in `protocol.WordPieces`."""
        text = _unicode(text)
        (encoding,) = self._encoded([text], special=special)
        if type(self._tokenizer.decoder).__name__ != _BYTE_LEVEL:
            return list(encoding.tokens)
        return _pieces_of_bytes(text, encoding)

    def words(self, sentences: Sequence[str], most: int) -> list[list[int]]:
        """At most `most` ids of each sentence, without special tokens; empty for a sentence without words.

        As in HERO's program, HTML entities become characters, and sentences in capitals become lower case.
        """
        plain = [html.unescape(text) for text in sentences]
        plain = [text.lower() if text.isupper() else text for text in plain]
        return [encoding.ids[:most] for encoding in self._encoded(plain, special=False)]

    def word_batch(self, sentences: Sequence[str], most: int) -> QueryBatch:
        """(Q, L) ids as `words` gives them, and their mask. Raises as `batch` does."""
        return self._padded(sentences, self.words(sentences, most))

    def lengths(self, sentences: Sequence[str]) -> list[int]:
        """The number of ids of each sentence, special tokens included, without truncation."""
        return [len(encoding.ids) for encoding in self._encoded(sentences)]

    def _encoded(
        self, sentences: Sequence[str], most: int | None = None, *, special: bool = True
    ) -> list[Any]:
        """The library's encodings, cut to `most` ids if given. UsageError for words that it cannot encode."""
        texts = list(map(_unicode, sentences))
        remedy = "use a tokenizer that has a token for unknown words"
        with self._lock, _refusals(f"tokenizer {self.name}: cannot encode a word", remedy):
            if most is None:
                self._tokenizer.no_truncation()
            else:
                self._tokenizer.enable_truncation(most)
            return list(self._tokenizer.encode_batch(texts, add_special_tokens=special))

    def _padded(self, sentences: Sequence[str], ids: Sequence[Sequence[int]]) -> QueryBatch:
        """(Q, L) ids padded with zeros, and their mask. Raises UsageError for a sentence without words."""
        for at, (text, row) in enumerate(zip(sentences, ids, strict=True)):
            if not text.strip() or not row:
                raise UsageError(f"sentence {at} is {text[:80]!r}; give words that {self.name} knows")
        lengths = torch.tensor([len(row) for row in ids], dtype=torch.int64)
        mask = torch.arange(max(map(len, ids), default=1)) < lengths[:, None]
        flat = torch.tensor([number for row in ids for number in row], dtype=torch.int64)
        return QueryBatch(torch.zeros(mask.shape, dtype=torch.int64).masked_scatter_(mask, flat), mask)

    @property
    def largest_id(self) -> int:
        """The largest id of a token; 0 without tokens."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)


def _pieces_of_bytes(text: str, encoding: Any) -> list[str]:
    """The characters of each byte-level token (RoBERTa), with "##" before a token that continues a word."""
    names: list[str] = []
    previous_offsets, after_space = (0, 0), False
    for token, offsets in zip(encoding.tokens, encoding.offsets, strict=True):
        start, end = offsets
        is_shared = offsets == previous_offsets  # a character of several bytes; only the first token shows it
        piece = "" if is_shared else text[start:end]
        # A token includes the space before its word; a token of a space alone begins the word that follows.
        is_inside = start > 0 and not any(sign.isspace() for sign in text[start - 1 : start] + piece[:1])
        continues = is_inside or is_shared or after_space
        names.append((_CONTINUATION if continues else "") + piece.strip() if end > start else token)
        previous_offsets, after_space = offsets, piece.isspace()
    return names


def _unicode(text: str) -> str:
    """The text with "?" for lone surrogates, which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=4)
def tokens_of(name: str) -> Tokens:
    """The tokenizer of a name; the last four are cached."""
    return Tokens(name)


def _open(name: str) -> Any:
    from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer, Tokenizer

    files = tokenizer_files(name)
    with _refusals(f"{files[0]}: damaged, or from another tokenizer", "fetch the tokenizer again"):
        if files[0].name == "tokenizer.json":
            tokenizer = Tokenizer.from_file(str(files[0]))
            tokenizer.no_padding()
            return tokenizer
        kind = BertWordPieceTokenizer if files[0].name == "vocab.txt" else ByteLevelBPETokenizer
        return kind(*map(str, files))._tokenizer


@contextmanager
def _refusals(what: str, remedy: str) -> Iterator[None]:
    """Turn the library's errors into UsageErrors; it raises bare `Exception` and TypeError."""
    try:
        yield
    except Exception as error:
        if type(error) not in (Exception, TypeError):
            raise
        raise UsageError(f"{what} ({error}); {remedy}") from None


def tokenizer_files(name: str) -> list[Path]:
    """The files of a tokenizer, given by a folder or by a hub's repository on this machine.

    Raises UsageError for a folder without such files, WhenaboutsError if neither is on this machine.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _folder_from_hub(name)
    for names in _FILES:
        files = [folder / file for file in names]
        if all(file.is_file() for file in files):
            return files
    raise UsageError(
        f"{folder}: has no tokenizer.json, no vocab.txt, and no vocab.json with merges.txt; give a "
        "tokenizer's folder"
    )


def same_tokenizer(name: str, other: str) -> bool:
    """Whether two tokenizers have files of equal content. Raises as `tokenizer_files` does."""
    if name == other:
        return True
    first, second = (list(map(_content, tokenizer_files(folder))) for folder in (name, other))
    return first == second


def _content(file: Path) -> tuple[str, str]:
    with file.open("rb") as stream:
        return file.name, hashlib.file_digest(stream, "sha256").hexdigest()


def _folder_from_hub(name: str) -> Path:
    def has_tokenizer(folder: Path) -> bool:
        return any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt", "merges.txt"))

    try:
        return hub.folder_of(name, has_tokenizer)
    except hub.HubError as error:
        why = str(error) if hub.is_name(name) else f"{name}: there is no such folder"
        raise WhenaboutsError(
            f"tokenizer {why}; a trained system names it in its config.json (inputs.tokenizer): correct that"
        ) from None
