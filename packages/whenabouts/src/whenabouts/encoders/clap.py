"""Encoders of sounds and sentences in one space: CLAP and similar models of `transformers`.

A family of encoders, loaded by name in `encoders/__init__.py`, for any model that `AutoModel` opens and that
has `get_text_features` and `get_audio_features`. Sounds go through the model's feature extractor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders._dual import TextSide
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    SoundEncoder,
    check_sounds,
)
from whenabouts.intake.hub import ModelCard, is_name

if TYPE_CHECKING:
    import torch

PREFIX = "clap"
ORDER = 80
_NEEDS = ("torch", "transformers")
MODELS = (ModelCard("laion/clap-htsat-unfused", "sounds"),)
"""Entries of `whenabouts models list`; other CLAP models work by name as well."""


def recognises(name: str) -> bool:
    """True for a hub name and for every folder; a model without a sound side is refused when opened."""
    return weight_files.local_folder(name) is not None or is_name(name)


def open_sound(name: str, settings: EncoderSettings) -> SoundEncoder:
    """The encoder of that hub name or folder. Raises EncoderUnavailable with a remedy."""
    weight_files.require(name, _NEEDS, "vision")
    folder = weight_files.locate(name)
    with weight_files.loading(name, "vision"):
        return ClapEncoder(folder, settings)


def status() -> EncoderStatus:
    """Whether the packages are installed; a model needs its weights as well."""
    detail = "any CLAP model by name or by path"
    return weight_files.status("CLAP models", ("sound", "text"), _NEEDS, "vision", detail)


class ClapEncoder(TextSide):
    """A dual encoder of `transformers` with its tokenizer and its feature extractor."""

    batches = (8, 64)

    def __init__(self, folder: weight_files.ModelFolder, settings: EncoderSettings) -> None:
        from transformers import AutoFeatureExtractor, AutoTokenizer

        super().__init__(folder.name, settings)
        self._folder = folder.path
        with on_torch.quiet_transformers():
            self._model = _load(folder, self._dtype).to(self._device).eval()
            self._tokenizer = weight_files.pretrained(AutoTokenizer, folder)
            self._extractor = weight_files.pretrained(AutoFeatureExtractor, folder)
        self.sampling_rate = int(self._extractor.sampling_rate)
        self.longest_seconds = float(self._extractor.max_length_s)
        text = self._model.config.text_config
        # RoBERTa does not use the positions from 0 to the padding token's id.
        self._tokens = int(text.max_position_embeddings) - int(text.pad_token_id or 0) - 1
        self.dimension = int(self._model.config.projection_dim)

    @cached_property
    def fingerprint(self) -> str:
        return weight_files.model_fingerprint(
            "clap",
            self._model,
            self._folder,
            dimension=self.dimension,
            pooling="own",
            normalisation="l2",
            dtype="float32",
            rate=self.sampling_rate,
        )

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """(N, D) unit vectors of mono samples at `sampling_rate`; long sounds are truncated."""
        check_sounds(sounds)
        return self._in_batches(sounds, self._sound_features)

    def _text_features(self, texts: list[str]) -> torch.Tensor:
        import torch

        tokens = on_torch.tokenized(self._tokenizer, texts, "longest", self._tokens)
        with torch.inference_mode():
            return on_torch.pooled(self._model.get_text_features(**tokens.to(self._device)))

    def _sound_features(self, sounds: Sequence[NDArray[np.float32]]) -> torch.Tensor:
        import torch

        # Truncated here: the extractor would take a random part.
        longest = int(self.longest_seconds * self.sampling_rate)
        inputs = self._extractor(
            [np.asarray(samples[:longest], np.float64) for samples in sounds],
            sampling_rate=self.sampling_rate,
            return_tensors="np",
        )
        features = torch.from_numpy(np.asarray(inputs["input_features"], np.float32))
        # No sound is longer than the model's input. The extractor would still mark a random one of each
        # batch, as in training, so that a vector would depend on the batch.
        is_longer = torch.zeros(len(sounds), 1, dtype=torch.bool)
        return on_torch.pooled(
            self._model.get_audio_features(
                input_features=features.to(self._device, self._dtype), is_longer=is_longer.to(self._device)
            )
        )


def _load(folder: weight_files.ModelFolder, dtype: torch.dtype) -> Any:
    """The model of a folder. Raises EncoderUnavailable for a model of another kind."""
    config = weight_files.model_config(folder.path) or {}
    if "audio_config" not in config:
        raise EncoderUnavailable(
            f"{folder.name}: a model of type {config.get('model_type', 'unknown')} hears nothing; "
            "give a CLAP model, such as laion/clap-htsat-unfused"
        )
    return weight_files.dual_model(folder, dtype, "audio", "give a CLAP model")
