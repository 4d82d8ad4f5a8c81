"""Encoders of voices from `transformers`: speaker models with an X-vector head.

A family of encoders (found by `encoders/__init__.py`) for WavLM, Wav2Vec2, UniSpeechSat, Data2VecAudio and
others that `AutoModelForAudioXVector` opens. Windows of speech go through the model's feature extractor.
Corpora store fingerprint and `same_voice`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders.protocol import EncoderSettings, EncoderStatus, EncoderUnavailable
from whenabouts.intake.hub import is_name
from whenabouts.video.voices import LEAST_SECONDS, RATE, WINDOW_SECONDS, VoiceEncoder

if TYPE_CHECKING:
    import torch

PREFIX = "x-vector"
ORDER = 90
_NEEDS = ("torch", "transformers")
_BATCH_ON_CPU, _BATCH_ON_ACCELERATOR = 8, 64
# Prefixes of weights that only training uses.
_OF_TRAINING = ("objective.", "classifier.")
_GIVE = "give a speaker model with an X-vector head, such as a WavLM that was trained to verify speakers"


def recognises(name: str) -> bool:
    """True for a hub name and for every folder; one without an X-vector head is refused when opened."""
    return weight_files.local_folder(name) is not None or is_name(name)


def open_voices(name: str, settings: EncoderSettings) -> VoiceEncoder:
    """The model of that hub name or folder. Raises EncoderUnavailable with a remedy."""
    weight_files.require(name, _NEEDS, "vision")
    weight_files.require(name, ["faster_whisper"], "people")  # it finds the speech
    folder = weight_files.locate(name)
    with weight_files.loading(name, "vision"):
        return XVectorEncoder(folder, settings)


def status() -> EncoderStatus:
    """Whether the packages are installed; a model needs its weights as well."""
    detail = "speaker models with an X-vector head, by name or by path"
    return weight_files.status("X-vector models", ("voices",), _NEEDS, "vision", detail)


class XVectorEncoder(VoiceEncoder):
    """A model with an X-vector head (Snyder et al., ICASSP 2018) and its feature extractor."""

    # As in transformers' examples, which say "the optimal threshold is dataset-dependent".
    same_voice = 0.7

    def __init__(self, folder: weight_files.ModelFolder, settings: EncoderSettings) -> None:
        from transformers import AutoFeatureExtractor

        self.name = folder.name
        self._folder = folder.path
        self._device = on_torch.choose_device(settings)
        self._dtype = on_torch.choose_dtype(settings, self._device)
        default = _BATCH_ON_CPU if self._device.type == "cpu" else _BATCH_ON_ACCELERATOR
        self._batch_size = settings.batch_size or default
        with on_torch.quiet_transformers():
            self._model = _load(folder, self._dtype).to(self._device).eval()
            self._extractor = weight_files.pretrained(AutoFeatureExtractor, folder)
        self.dimension = int(self._model.config.xvector_output_dim)
        if (rate := int(self._extractor.sampling_rate)) != RATE:
            raise EncoderUnavailable(f"{self.name}: hears {rate} samples a second, not {RATE}; {_GIVE}")
        rng = np.random.default_rng(0)  # try the longest and the shortest window
        for seconds in (WINDOW_SECONDS, LEAST_SECONDS):
            self.embed([rng.standard_normal(int(seconds * RATE), np.float32)])

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return weight_files.model_fingerprint(
            "x-vector",
            self._model,
            self._folder,
            dimension=self.dimension,
            normalisation="l2",
            dtype="float32",  # of the vectors; the model may run in half precision
        )

    def embed(self, pieces: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """See `VoiceEncoder`. Raises EncoderUnavailable for weights that give non-finite numbers."""
        remedy = f"take a smaller model than {self.name}, or a device with more memory"
        vectors = on_torch.in_batches(
            self._embeddings, pieces, self._batch_size, self.dimension, remedy=remedy
        )
        if not np.isfinite(vectors).all():
            raise EncoderUnavailable(
                f"{self.name}: gives numbers that are not finite for {len(pieces[0]) / RATE:g} s of sound; "
                "its weights may be damaged"
            )
        return vectors

    def _embeddings(self, pieces: Sequence[NDArray[np.float32]]) -> torch.Tensor:
        inputs = self._extractor(list(pieces), sampling_rate=RATE, return_tensors="pt")
        given = on_torch.moved(inputs, self._device, self._dtype)
        embeddings: torch.Tensor = self._model(**given).embeddings
        return embeddings


def _load(folder: weight_files.ModelFolder, dtype: torch.dtype) -> Any:
    """The model of a folder. Raises EncoderUnavailable without the head or with missing weights."""
    from transformers import AutoModelForAudioXVector

    config = weight_files.model_config(folder.path) or {}
    kinds = [str(kind) for kind in config.get("architectures") or ()]
    if not any(kind.endswith("ForXVector") for kind in kinds):
        kind = ", ".join(kinds) or str(config.get("model_type", "unknown"))
        raise EncoderUnavailable(f"{folder.name}: a model of type {kind} cannot tell voices apart; {_GIVE}")
    model, lacking = weight_files.opened_model(AutoModelForAudioXVector, folder, dtype)
    weight_files.refuse_missing(folder, [key for key in lacking if not key.startswith(_OF_TRAINING)])
    return model
