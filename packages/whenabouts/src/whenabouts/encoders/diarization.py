"""Diarizers (who speaks when) from `transformers`: NeMo's streaming Sortformer (`Nemotron-3-Diarization`).

A family of encoders, loaded by name in `encoders/__init__.py`. The model numbers speakers by who spoke first
(Park et al., "Sortformer", 2024). A cache of the speakers' frames carries the numbers from chunk to chunk.
Chunks have the length that the model uses for a whole recording, so the answer is the same, but only one
chunk is in memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders.protocol import EncoderSettings, EncoderStatus, EncoderUnavailable
from whenabouts.video.voices import RATE, Diarized, Diarizer, Floats

PREFIX = "diarization"
ORDER = 80
MODEL_TYPE = "nemotron3_diarization"
_NEEDS = ("torch", "transformers")
# Threshold of the probability that a speaker speaks, as in the model's processor.
_SPEAKS = 0.5
_MODE = "whole recording"
# A longer gap between two pieces of sound is silence that the file does not store.
_PAUSE_SECONDS = 0.1


def recognises(name: str) -> bool:
    """True for a folder, or a hub name in the cache, whose model is of this type."""
    folder = weight_files.folder_at_hand(name)
    return folder is not None and (weight_files.model_config(folder) or {}).get("model_type") == MODEL_TYPE


def open_voices(name: str, settings: EncoderSettings) -> Diarizer:
    """The model of that hub name or folder. Raises EncoderUnavailable with a remedy."""
    weight_files.require(name, _NEEDS, "vision")
    folder = weight_files.locate(name)
    with weight_files.loading(name, "vision"):
        return SortformerDiarizer(folder, settings)


def status() -> EncoderStatus:
    """Whether the packages are installed; a model needs its weights as well."""
    detail = "who speaks when, by name or by path (nvidia/Nemotron-3-Diarization)"
    return weight_files.status("Sortformer models", ("voices",), _NEEDS, "vision", detail)


class _State(NamedTuple):
    """Sound that the model has not read, its first frame's number, the cache (None at first), its end (s)."""

    samples: Floats
    frame: int
    cache: Any
    end: float


class SortformerDiarizer(Diarizer):
    """A `Nemotron3DiarizationForAudioFrameClassification` and its processor."""

    def __init__(self, folder: weight_files.ModelFolder, settings: EncoderSettings) -> None:
        from transformers import AutoModelForAudioFrameClassification, AutoProcessor

        self.name = folder.name
        self._folder = folder.path
        self._device = on_torch.choose_device(settings)
        self._dtype = on_torch.choose_dtype(settings, self._device)
        with on_torch.quiet_transformers():
            model, missing = weight_files.opened_model(
                AutoModelForAudioFrameClassification, folder, self._dtype
            )
            weight_files.refuse_missing(folder, missing)
            self._model = model.to(self._device).eval()
            self._processor = weight_files.pretrained(AutoProcessor, folder)
        config, extractor = self._model.config, self._processor.feature_extractor
        if (rate := int(extractor.sampling_rate)) != RATE:
            raise EncoderUnavailable(f"{self.name}: hears {rate} samples a second, not {RATE}; give another")
        self._processor.streaming_modes = {_MODE: (config.chunk_length, config.chunk_right_context)}
        self._processor.set_streaming_mode(_MODE)
        self.frame_seconds = extractor.hop_length / RATE
        self._speakers = int(config.head_config.num_speakers)
        self._least = int(extractor.n_fft)
        self.rest(self.follow(np.random.default_rng(0).standard_normal(RATE, np.float32), 0.0, None))

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return weight_files.model_fingerprint("diarization", self._model, self._folder)

    def follow(self, samples: Floats, start: float, before: Diarized | None) -> Diarized:
        """See `Diarizer`. Raises EncoderUnavailable for weights that give non-finite numbers."""
        nothing, speaks = np.zeros(0, np.float32), [self._nobody()]
        state = before.state if before is not None else _State(nothing, 0, None, start)
        if (silence := start - state.end) > _PAUSE_SECONDS:
            now, cache = self._last_chunk(state)
            speaks += [now, np.zeros((round(silence / self.frame_seconds), self._speakers), np.bool_)]
            state = _State(nothing, 0, cache, start)
        waiting, frame, cache = np.concatenate([state.samples, samples]), state.frame, state.cache
        while len(waiting) > (length := self._chunk_samples(frame)):
            now, cache = self._chunk(waiting[:length], frame, cache, is_last=False)
            speaks.append(now)
            at, frame = self._begins(frame), frame + self._processor.num_mel_frames_per_step
            waiting = waiting[self._begins(frame) - at :]
        end = start + len(samples) / RATE
        return Diarized(start, np.concatenate(speaks), _State(waiting, frame, cache, end))

    def rest(self, last: Diarized) -> NDArray[np.bool_]:
        """See `Diarizer`. Sound shorter than a window of the spectrum gives no frames."""
        return self._last_chunk(last.state)[0]

    def _last_chunk(self, state: _State) -> tuple[NDArray[np.bool_], Any]:
        if len(state.samples) < self._least:
            return self._nobody(), state.cache
        return self._chunk(state.samples, state.frame, state.cache, is_last=True)

    def _nobody(self) -> NDArray[np.bool_]:
        return np.zeros((0, self._speakers), np.bool_)

    def _chunk_samples(self, frame: int) -> int:
        processor = self._processor
        return int(
            processor.num_samples_per_audio_chunk if frame else processor.num_samples_first_audio_chunk
        )

    def _begins(self, frame: int) -> int:
        """The first sample of the chunk that begins with a frame."""
        return int(self._processor.audio_chunk_start(frame)) if frame else 0

    def _chunk(
        self, samples: Floats, frame: int, cache: Any, *, is_last: bool
    ) -> tuple[NDArray[np.bool_], Any]:
        """Whether each speaker speaks in each frame of a chunk of sound, (T, S), and the cache after it."""
        import torch

        inputs = self._processor(
            samples,
            sampling_rate=RATE,
            is_streaming=True,
            is_first_audio_chunk=not frame,
            is_last_audio_chunk=is_last,
        )
        given = on_torch.moved(inputs, self._device, self._dtype)
        try:
            with torch.inference_mode():
                answer = self._model(**given, speaker_cache=cache or self._new_cache())
        except (MemoryError, RuntimeError) as error:
            if not weight_files.is_out_of_memory(error):
                raise
            remedy = f"take a smaller model than {self.name}, or a device with more memory"
            raise weight_files.out_of_memory(error, remedy) from error
        logits = answer.logits[0].float().cpu().numpy()
        if not np.isfinite(logits).all():
            raise EncoderUnavailable(
                f"{self.name}: gives numbers that are not finite for {len(samples) / RATE:g} s of sound; "
                "its weights may be damaged"
            )
        return 1 / (1 + np.exp(-logits)) > _SPEAKS, answer.speaker_cache

    def _new_cache(self) -> Any:
        """The cache for reading a whole recording."""
        from transformers.models.nemotron3_diarization import modeling_nemotron3_diarization as sortformer

        config = self._model.config
        return sortformer.Nemotron3DiarizationSpeakerCache(
            config.streaming_config,
            fifo_length=config.fifo_length,
            speaker_cache_update_period=config.speaker_cache_update_period,
        )
