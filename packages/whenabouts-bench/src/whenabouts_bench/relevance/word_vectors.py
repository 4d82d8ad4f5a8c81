"""Word vectors in an image-text model's space, which EMScore compares with frames.

CLIP projects the last token of a sentence into the joint space; EMScore projects every token. Models with
another pooling (SigLIP, open_clip's) have no token vectors: there, each word is encoded as a sentence, which
is a different score, and output files say so.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np

from whenabouts.encoders import EncoderUnavailable, ImageEncoder, open_image_encoder
from whenabouts.encoders.on_torch import quiet_transformers
from whenabouts.encoders.weight_files import locate
from whenabouts.types import Query
from whenabouts_bench.relevance.emscore import Floats, Indices, Words, words_of
from whenabouts_bench.relevance.units import distinct_captions, encoded

_TEXTS_AT_ONCE = 64
_WORD = re.compile(r"\w+")


class WordVectors(Protocol):
    """Words in a model's image space. `kind` describes how they are made."""

    name: str
    fingerprint: str
    width: int
    kind: str

    def encode(self, texts: Sequence[str]) -> Iterable[tuple[Indices, Floats]]:
        """(ids, (L, D) vectors) of each text."""

    def whole(self, texts: Sequence[str]) -> Floats | None:
        """(N, D) unit vectors of whole texts; None if the last word's vector represents the text."""


def open_words(name: str) -> WordVectors:
    """The words of an image-text model by hub name or folder: token vectors, else single words.

    Raises EncoderUnavailable if it is not such a model, or packages are missing.
    """
    try:
        return ClipWords(name)
    except EncoderUnavailable:
        return SingleWords(open_image_encoder(name))


class SingleWords:
    """Each word encoded as a sentence, by any image-text model."""

    kind = "single words"

    def __init__(self, encoder: ImageEncoder) -> None:
        self._encoder = encoder
        self.name, self.fingerprint, self.width = encoder.name, encoder.fingerprint, encoder.dimension

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[Indices, Floats]]:
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

    `fingerprint` is the model's, as in features and corpora. Raises EncoderUnavailable if it is not a CLIP
    model, or packages are missing.
    """

    kind = "tokens"

    def __init__(self, name: str) -> None:
        encoder = open_image_encoder(name)
        self.name, self.fingerprint, self.width = encoder.name, encoder.fingerprint, encoder.dimension
        if importlib.util.find_spec("transformers") is None:
            raise EncoderUnavailable(f"{name}: EMScore reads CLIP's words through the package transformers")
        from transformers import AutoConfig, AutoTokenizer, CLIPModel

        folder = str(locate(name.removeprefix("clip:")).path)
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        kind = AutoConfig.from_pretrained(folder, **options).model_type
        if kind != "clip":
            raise EncoderUnavailable(
                f"{name}: a {kind} model has no vectors of single words in the space of its pictures, which "
                "EMScore needs; give a CLIP model"
            )
        with quiet_transformers():
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            model = CLIPModel.from_pretrained(folder, use_safetensors=True, **options).eval()
        self._text, self._projection = model.text_model, model.text_projection  # drops the image side
        self._longest = int(model.config.text_config.max_position_embeddings)

    def whole(self, texts: Sequence[str]) -> None:
        """None: the end token's vector represents the text."""

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[Indices, Floats]]:
        """(ids, (L, D) unnormalised vectors) of each text, start and end tokens included."""
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
    """(words of the distinct texts, (Q,) each query's text)."""
    captions, caption_of = distinct_captions(queries)
    times = np.bincount(caption_of, minlength=len(captions))
    words = words_of(captions, model.encode, model.fingerprint, times, model.whole(captions))
    return words, caption_of.astype(np.int64)
