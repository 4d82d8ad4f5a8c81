"""Sentence encoders of sentence-transformers by hub name or path, with PyTorch and the model's prompts.

A family of encoders, loaded by name in `encoders/__init__.py`. A model without `modules.json` does not state
its pooling; sentence-transformers then takes the mean of its tokens. SimCSE (Gao et al., EMNLP 2021) is such
a model and needs the first token: after its pooling layer if it was trained on labelled pairs
("sup-simcse-…"), before that layer otherwise ("unsup-simcse-…"). The hub name or the folder's name decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders.plain_text import plain_texts, special_tokens
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    TextEncoder,
    check_texts,
    fingerprint,
    unit_length,
)
from whenabouts.encoders.weight_files import E5_PROMPTS
from whenabouts.intake.hub import ModelCard, is_name
from whenabouts.intake.opening import regular_name

if TYPE_CHECKING:
    import torch

PREFIX = "sentence-transformers"
ORDER = 50
_BATCH = 32
MODELS = (ModelCard("intfloat/multilingual-e5-small", "words in 100 languages"),)
"""Entries of `whenabouts models list`; other sentence-transformers models work as well."""


def recognises(name: str) -> bool:
    """True for a hub name, and for a folder that holds a text model."""
    folder = weight_files.local_folder(name)
    if folder is None:
        return is_name(name)
    if (folder / "modules.json").is_file():
        return True
    config = weight_files.model_config(folder)
    return config is not None and "vision_config" not in config


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The encoder of that name or folder. Raises EncoderUnavailable with a remedy."""
    weight_files.require(name, ("sentence_transformers",), "sentence-transformers")
    model = weight_files.locate(name)
    if weight_files.local_folder(name):  # another family may recognise the bare path
        model = replace(model, name=f"{PREFIX}:{model.name}")
    known_as = weight_files.known_as(model.path)
    with weight_files.loading(name, "sentence-transformers"):
        device = on_torch.choose_device(settings)
        loaded = load(model.path, device, on_torch.choose_dtype(settings, device))
        if not (model.path / "modules.json").is_file() and "simcse" in known_as:
            loaded = _of_first_token(loaded, model.path, supervised="unsup" not in known_as)
    carried = [prompt for prompt in (loaded.prompts or {}).values() if prompt]
    prompts = () if carried or not weight_files.needs_e5_prompts(model.path) else E5_PROMPTS
    if prompts:
        loaded.prompts = dict(zip(("query", "document"), prompts, strict=True))
    return SentenceTransformersEncoder(model, loaded, settings.batch_size or _BATCH, prompts)


def load(folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """The model in a folder; its weights are safetensors, and none of its code runs."""
    import sentence_transformers

    # Many files lack the pooler, the layer after the tokens' vectors, which only classifiers use.
    model = weight_files.ModelFolder(folder, folder.name)
    with on_torch.quiet_transformers(), weight_files.whole_models(model, unused="pooler."):
        return sentence_transformers.SentenceTransformer(
            str(folder),
            device=str(device),
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True, "dtype": dtype},
        )


def _of_first_token(loaded: Any, folder: Path, *, supervised: bool) -> Any:
    """The model with the first token's vector as the sentence's; `supervised`: after the pooling layer.

    A pooling layer that the weights lack is left out: transformers would initialise it at random.
    """
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    words = loaded[0]
    width = int(words.get_embedding_dimension())
    modules = [words, Pooling(width, "cls")]
    weights: dict[str, Any] = {}
    for file in weight_files.safetensors_files(folder):
        with regular_name(file) as name, safe_open(name, "pt") as stored:
            named = [key for key in stored.keys() if "pooler.dense." in key]  # noqa: SIM118
            weights |= {key.rpartition("pooler.")[2]: stored.get_tensor(key) for key in named}
    if supervised and weights.keys() >= {"dense.weight", "dense.bias"}:
        dense = Dense(width, width, init_weight=weights["dense.weight"], init_bias=weights["dense.bias"])
        modules.append(dense.to(loaded.dtype))
    return SentenceTransformer(modules=modules, device=str(loaded.device))


def status() -> EncoderStatus:
    """Whether the package is installed; a model needs its weights as well."""
    detail = "any model by name (`whenabouts models get`) or by path"
    modules, extra = ("sentence_transformers",), "sentence-transformers"
    return weight_files.status("sentence-transformers models", ("text",), modules, extra, detail)


class SentenceTransformersEncoder:
    """A sentence-transformers model; vectors are normalised if the model does not."""

    def __init__(
        self, model: weight_files.ModelFolder, loaded: Any, batch_size: int, prompts: Sequence[str] = ()
    ) -> None:
        self.name = model.name
        self.dimension = int(loaded.get_embedding_dimension())
        self._folder = model.path
        self._added = {"prompts": "e5"} if prompts else {}
        self._model = loaded
        # A text-only model never reads a text as a picture's path, so its texts stay as they are.
        is_text_only = {"image", "video", "audio"}.isdisjoint(loaded.modalities)
        self._special = None if is_text_only else special_tokens(loaded)
        self._batch_size = batch_size

    @cached_property
    def fingerprint(self) -> str:
        """See `TextEncoder`; pooling and prompts are covered by the hash of the configuration files."""
        settings = [
            "modules.json",
            "config_sentence_transformers.json",
            "sentence_bert_config.json",
            "tokenizer.json",
        ]
        modules = sorted(self._folder.glob("*_*/config.json"))
        weights = [
            *weight_files.safetensors_files(self._folder),
            *sorted(self._folder.glob("*/model*.safetensors")),
        ]
        pooling = [getattr(module, "pooling_mode", None) for module in self._model]
        return fingerprint(
            "sentence-transformers",
            model="+".join(type(module).__name__ for module in self._model),
            weights=weight_files.weights_hash(weights),
            inputs=weight_files.content_mark([*(self._folder / name for name in settings), *modules]),
            dimension=self.dimension,
            pooling=next((str(mode) for mode in pooling if mode), "own"),
            normalisation="l2",
            dtype="float32",
            tokens=self._model.max_seq_length,
            **self._added,
        )

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(self._model.encode_query, texts)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(self._model.encode_document, texts)

    def encode_tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """See `TokenEncoder`: for each query (L, D) of the transformer, before any pooling."""
        check_texts(texts)
        if not texts:
            return []
        rows = self._model.encode_query(
            self._as_words(texts),
            output_value="token_embeddings",
            batch_size=self._batch_size,
            convert_to_numpy=False,
            show_progress_bar=False,
        )
        return [row.detach().float().cpu().numpy().copy() for row in rows]

    def word_pieces(self, texts: Sequence[str]) -> list[list[str]]:
        check_texts(texts)
        prompt = (self._model.prompts or {}).get("query") or ""
        tokenizer = self._model.tokenizer
        limit = self._model.max_seq_length
        rows = (
            tokenizer(prompt + text, truncation=limit is not None, max_length=limit)["input_ids"]
            for text in texts
        )
        return [list(tokenizer.convert_ids_to_tokens(ids)) for ids in rows]

    def _encode(self, way: Callable[..., Any], texts: Sequence[str]) -> NDArray[np.float32]:
        check_texts(texts)
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        vectors = way(
            self._as_words(texts),
            batch_size=self._batch_size,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return unit_length(vectors)

    def _as_words(self, texts: Sequence[str]) -> list[str]:
        return list(texts) if self._special is None else plain_texts(texts, self._special)
