"""CLAP and its like from `transformers`: sounds and sentences in one space.

Whatever `AutoModel` opens and has `get_text_features` and `get_audio_features` works; no model's name is
looked at. Sounds go through the model's own feature extractor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import _torch, _weights
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    SoundEncoder,
    check_sounds,
    check_texts,
    fingerprint,
)
from whenabouts.intake.hub import ModelCard

if TYPE_CHECKING:
    import torch

PREFIX = "clap"
ORDER = 80
_NEEDS = ("torch", "transformers")
MODELS = (ModelCard("laion/clap-htsat-unfused", "sounds"),)
"""What `whenabouts models list` shows of these; any other CLAP works by name as well."""
_BATCH_ON_CPU, _BATCH_ON_ACCELERATOR = 8, 64


def recognises(name: str) -> bool:
    """True for a hub name and for every folder: that a model hears nothing is said when it is opened."""
    return _weights.local_folder(name) is not None or _weights.is_hub_name(name)


def open_sound(name: str, settings: EncoderSettings) -> SoundEncoder:
    """The encoder of that hub name or folder; EncoderUnavailable says what to install, fetch or give."""
    _weights.require(name, _NEEDS, "vision")
    folder = _weights.locate(name)
    with _weights.loading(name, "vision"):
        return ClapEncoder(folder, settings)


def status() -> EncoderStatus:
    """Whether the packages are here; a model needs its weights as well."""
    detail = "any CLAP model by name or by path"
    return _weights.status("CLAP models", ("sound", "text"), _NEEDS, "vision", detail)


class ClapEncoder:
    """A dual encoder of `transformers` with its tokenizer and its feature extractor."""

    def __init__(self, folder: _weights.ModelFolder, settings: EncoderSettings) -> None:
        from transformers import AutoFeatureExtractor, AutoTokenizer

        self.name = folder.name
        self._folder = folder.path
        self._device = _torch.choose_device(settings)
        self._dtype = _torch.choose_dtype(settings, self._device)
        default = _BATCH_ON_CPU if self._device.type == "cpu" else _BATCH_ON_ACCELERATOR
        self._batch_size = settings.batch_size or default
        with _torch.quiet_transformers():
            self._model = _load(folder, self._dtype).to(self._device).eval()
            own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            self._tokenizer = AutoTokenizer.from_pretrained(str(folder.path), **own)
            self._extractor = AutoFeatureExtractor.from_pretrained(str(folder.path), **own)
        self.sampling_rate = int(self._extractor.sampling_rate)
        self.longest_seconds = float(self._extractor.max_length_s)
        text = self._model.config.text_config
        # The first positions of a RoBERTa, up to that of the padding, are never used.
        self._tokens = int(text.max_position_embeddings) - int(text.pad_token_id or 0) - 1
        self.dimension = int(self._model.config.projection_dim)

    @cached_property
    def fingerprint(self) -> str:
        """See `TextEncoder`; half precision moves vectors by about 0.001, so it is no part of it."""
        return fingerprint(
            "clap",
            model=type(self._model).__name__,
            weights=_weights.weights_hash(_weights.safetensors_files(self._folder)),
            inputs=_weights.inputs_mark(self._folder),
            dimension=self.dimension,
            pooling="own",
            normalisation="l2",
            dtype="float32",
            rate=self.sampling_rate,
        )

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors; texts beyond the model's length are cut there."""
        check_texts(texts)
        return self._in_batches(lambda part: self._text_features(list(part)), texts)

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """(N, D) unit vectors of mono samples at `sampling_rate`; what is too long is cut at its end."""
        check_sounds(sounds)
        return self._in_batches(self._sound_features, sounds)

    def _in_batches(self, encode: Any, items: Sequence[Any]) -> NDArray[np.float32]:
        remedy = f"take a smaller model than {self.name}, or a device with more memory"
        return _torch.in_batches(encode, items, self._batch_size, self.dimension, remedy=remedy)

    def _text_features(self, texts: list[str]) -> torch.Tensor:
        import torch

        tokens = _torch.tokenized(self._tokenizer, texts, "longest", self._tokens)
        with torch.inference_mode():
            return _torch.pooled(self._model.get_text_features(**tokens.to(self._device)))

    def _sound_features(self, sounds: Sequence[NDArray[np.float32]]) -> torch.Tensor:
        import torch

        # Cut here: the extractor would take a part by chance.
        longest = int(self.longest_seconds * self.sampling_rate)
        inputs = self._extractor(
            [np.asarray(samples[:longest], np.float64) for samples in sounds],
            sampling_rate=self.sampling_rate,
            return_tensors="np",
        )
        features = torch.from_numpy(np.asarray(inputs["input_features"], np.float32))
        # None is longer than the model hears. The extractor marks one of each batch by chance all the same,
        # which training needed, and which would let what is beside a sound decide about its vector.
        is_longer = torch.zeros(len(sounds), 1, dtype=torch.bool)
        return _torch.pooled(
            self._model.get_audio_features(
                input_features=features.to(self._device, self._dtype), is_longer=is_longer.to(self._device)
            )
        )


def _load(folder: _weights.ModelFolder, dtype: torch.dtype) -> Any:
    """The model. Raises EncoderUnavailable for a model of another kind."""
    config = _weights.model_config(folder.path) or {}
    if "audio_config" not in config:
        raise EncoderUnavailable(
            f"{folder.name}: a model of type {config.get('model_type', 'unknown')} hears nothing; "
            "give a CLAP model, such as laion/clap-htsat-unfused"
        )
    return _weights.dual_model(folder, dtype, "audio", "give a CLAP model")
