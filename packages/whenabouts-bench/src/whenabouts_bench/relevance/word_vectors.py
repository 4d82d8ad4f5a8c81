"""Words of sentences as vectors in the space of a model's pictures: what EMScore compares frames with.

CLIP projects the last token of a sentence into the space of pictures; EMScore projects every token the same
way. Models whose text side pools otherwise (SigLIP, open_clip's) have no such vectors: there each word is
encoded as a sentence of its own, which is another score; what is written says so.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np

from whenabouts.encoders import EncoderUnavailable, ImageEncoder, open_image_encoder
from whenabouts.encoders._torch import quiet_transformers
from whenabouts.encoders._weights import locate
from whenabouts.types import Query
from whenabouts_bench.relevance.emscore import Floats, Indices, Words, words_of
from whenabouts_bench.relevance.units import distinct_captions, encoded

_TEXTS_AT_ONCE = 64
_WORD = re.compile(r"\w+")


class WordVectors(Protocol):
    """Words in the space of a model's pictures. `kind` says how they are made, for people."""

    name: str
    fingerprint: str
    width: int
    kind: str

    def encode(self, texts: Sequence[str]) -> Iterable[tuple[Indices, Floats]]:
        """(ids, (L, D) vectors) of each text."""

    def whole(self, texts: Sequence[str]) -> Floats | None:
        """(N, D) unit vectors of whole texts; None where the last word's stands for the text."""


def open_words(name: str) -> WordVectors:
    """The words of an image-text model by hub name or folder: its tokens' vectors, else single words.

    Raises EncoderUnavailable for what is no such model, or whose packages are missing.
    """
    try:
        return ClipWords(name)
    except EncoderUnavailable:
        return SingleWords(open_image_encoder(name))


class SingleWords:
    """Each word encoded as a sentence of its own, by any model of pictures and sentences."""

    kind = "single words"

    def __init__(self, encoder: ImageEncoder) -> None:
        self._encoder = encoder
        self.name, self.fingerprint, self.width = encoder.name, encoder.fingerprint, encoder.dimension

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[Indices, Floats]]:
        """(ids, (L, D) vectors) of each text; a text without a word is one word."""
        split = [_WORD.findall(text.lower()) or [text] for text in texts]
        numbers = {word: place for place, word in enumerate(dict.fromkeys(chain.from_iterable(split)))}
        vectors = encoded(list(numbers), self._encoder)
        for words in split:
            ids = np.array([numbers[word] for word in words], np.int64)
            yield ids, vectors[ids]

    def whole(self, texts: Sequence[str]) -> Floats:
        """(N, D) unit vectors of the sentences."""
        return encoded(texts, self._encoder)


class ClipWords:
    """The words of a CLIP model of `transformers`, by hub name or folder.

    `fingerprint` is the model's own, as features and corpora have it. Raises EncoderUnavailable for what is
    no such model, or whose packages are missing.
    """

    kind = "tokens"

    def __init__(self, name: str) -> None:
        encoder = open_image_encoder(name)
        self.name, self.fingerprint, self.width = encoder.name, encoder.fingerprint, encoder.dimension
        if importlib.util.find_spec("transformers") is None:
            raise EncoderUnavailable(f"{name}: EMScore reads CLIP's words through the package transformers")
        from transformers import AutoConfig, AutoTokenizer, CLIPModel

        folder = str(locate(name.removeprefix("clip:")).path)
        own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        kind = AutoConfig.from_pretrained(folder, **own).model_type
        if kind != "clip":
            raise EncoderUnavailable(
                f"{name}: a {kind} model has no vectors of single words in the space of its pictures, which "
                "EMScore needs; give a CLIP model"
            )
        with quiet_transformers():
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **own)
            model = CLIPModel.from_pretrained(folder, use_safetensors=True, **own).eval()
        self._text, self._projection = model.text_model, model.text_projection  # the pictures' side is let go
        self._longest = int(model.config.text_config.max_position_embeddings)

    def whole(self, texts: Sequence[str]) -> None:
        """The end token's vector is the text's."""

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[Indices, Floats]]:
        """(ids, (L, D) vectors) of each text, start and end tokens included; not of unit length."""
        import torch

        for begin in range(0, len(texts), _TEXTS_AT_ONCE):
            part = list(texts[begin : begin + _TEXTS_AT_ONCE])
            tokens = self._tokenizer(
                part, padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
            )
            with torch.inference_mode():
                hidden = self._text(**tokens).last_hidden_state
                vectors = self._projection(hidden).float().numpy()
            ids, lengths = tokens["input_ids"].numpy(), tokens["attention_mask"].sum(1).tolist()
            for row, length in enumerate(lengths):
                yield ids[row, :length].astype(np.int64), vectors[row, :length]


def query_words(queries: Sequence[Query], model: WordVectors) -> tuple[Words, Indices]:
    """(words of the distinct texts, (Q,) the text of each query)."""
    captions, caption_of = distinct_captions(queries)
    times = np.bincount(caption_of, minlength=len(captions))
    words = words_of(captions, model.encode, model.fingerprint, times, model.whole(captions))
    return words, caption_of.astype(np.int64)
