"""Encoders of pictures, video clips and sentences in one space: multimodal sentence-transformers models.

A family of encoders, loaded by name in `encoders/__init__.py`, for Qwen3-VL-Embedding, embeddinggemma-2 and
other models saved by sentence-transformers 5.4 and later. The model's files, not its name, state its inputs.
The clip settings depend on its architecture (`_WATCHING`); their cost is in docs/streams.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders._dual import check_image, picture_of
from whenabouts.encoders.protocol import (
    ClipSettings,
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    ImageEncoder,
    VideoClip,
    check_clips,
)
from whenabouts.encoders.sentence_transformers import PREFIX, SentenceTransformersEncoder, load
from whenabouts.intake.hub import ModelCard

if TYPE_CHECKING:
    import torch

ORDER = 55
_NEEDS = ("sentence_transformers", "torchvision", "PIL")
MODELS = (ModelCard("Qwen/Qwen3-VL-Embedding-2B", "clips watched as video, pictures"),)
"""Entries of `whenabouts models list`; others in the form of sentence-transformers work as well."""
_BATCH_ON_CPU, _BATCH_ON_ACCELERATOR = 1, 8
_PICTURE_SIZE = 448
# `model_type` in config.json -> clip settings, and tokens of the language model per frame.
_WATCHING = {
    # Two frames share their tokens, one for each 32 x 32 pixels: 8 x 14 for two frames of 256 x 448.
    "qwen3_vl": (ClipSettings(frames=8, seconds=4.0, step_seconds=2.0, size=256), 56),
    "embedding_gemma2": (ClipSettings(frames=8, seconds=4.0, step_seconds=2.0, size=256), 70),
}
_OTHERS = (ClipSettings(frames=8, seconds=4.0, step_seconds=2.0, size=224), 64)
# Operations a second: measured for two cores (benchmarks/watching.py), guessed for graphics cards.
_OPERATIONS_A_SECOND = {"cpu": 1e11, "mps": 5e12, "cuda": 2e14}


def recognises(name: str) -> bool:
    """True for a folder, or a hub name in the cache, whose model takes pictures or video."""
    folder = weight_files.folder_at_hand(name)
    return folder is not None and not _modalities(folder).isdisjoint(("image", "video"))


def open_images(name: str, settings: EncoderSettings) -> ImageEncoder:
    """The encoder of that name or folder, a `ClipEncoder` if it takes video.

    Raises EncoderUnavailable with a remedy.
    """
    weight_files.require(name, _NEEDS, "video")
    model = weight_files.locate(name)
    seen = _modalities(model.path)
    if seen.isdisjoint(("image", "video")):
        taken = f"takes {', '.join(sorted(seen))}, but no" if seen else "its files do not say that it takes"
        raise EncoderUnavailable(
            f"{name}: {taken} pictures; give a model that does, such as a CLIP or Qwen3-VL-Embedding"
        )
    if weight_files.local_folder(name):  # another family may recognise the bare path
        model = replace(model, name=f"{PREFIX}:{model.name}")
    with weight_files.loading(name, "video"):
        return (_WatchingEncoder if "video" in seen else _SeeingEncoder)(model, settings)


def status() -> EncoderStatus:
    """Whether the packages are installed; a model needs its weights as well."""
    detail = "any model of sentence-transformers that takes pictures or video, by name or by path"
    return weight_files.status(
        "multimodal sentence-transformers models", ("images", "clips", "text"), _NEEDS, "video", detail
    )


def _modalities(folder: Path) -> set[str]:
    """The inputs ("text", "image", "video") that a model states; empty if it states none."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        first = folder / str(modules[0]["path"]) / "sentence_bert_config.json"
        return set(json.loads(first.read_text(encoding="utf-8")).get("modality_config", ("text",)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()


class _SeeingEncoder(SentenceTransformersEncoder):
    """A model of sentences and pictures in one space."""

    def __init__(self, model: weight_files.ModelFolder, settings: EncoderSettings) -> None:
        device = on_torch.choose_device(settings)
        loaded = load(model.path, device, on_torch.model_dtype(model.path, settings, device))
        default = _BATCH_ON_CPU if device.type == "cpu" else _BATCH_ON_ACCELERATOR
        super().__init__(model, loaded, settings.batch_size or default)
        self._device_type = device.type
        self.image_size = _PICTURE_SIZE

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        for place, image in enumerate(images):
            check_image(image, place)
        return self._in_batches([picture_of(image) for image in images])

    def _in_batches(self, items: Sequence[Any], first: str = "") -> NDArray[np.float32]:
        remedy = f"take {first}a smaller model than {self.name}, or a device with more memory"
        return on_torch.in_batches(self._features, items, self._batch_size, self.dimension, remedy=remedy)

    def _features(self, items: Sequence[Any]) -> torch.Tensor:
        with on_torch.quiet_transformers():
            features: torch.Tensor = self._model.encode_document(
                list(items),
                batch_size=len(items),
                convert_to_numpy=False,
                convert_to_tensor=True,
                show_progress_bar=False,
                # The processor must not drop frames.
                processing_kwargs={"video": {"do_sample_frames": False}},
            )
        return features


class _WatchingEncoder(_SeeingEncoder):
    """A model of sentences, pictures and video in one space."""

    def __init__(self, model: weight_files.ModelFolder, settings: EncoderSettings) -> None:
        super().__init__(model, settings)
        config = weight_files.model_config(model.path) or {}
        watching, tokens = _WATCHING.get(config.get("model_type", ""), _OTHERS)
        weights = sum(parameter.numel() for parameter in self._model.parameters())
        # A weight costs two operations a token. Doubled, to include the vision tower.
        operations = 4.0 * weights * tokens * watching.frames
        seconds = operations / _OPERATIONS_A_SECOND.get(self._device_type, 1e12)
        self.clip_settings = replace(watching, cost_seconds=seconds)

    def encode_clips(self, clips: Sequence[VideoClip]) -> NDArray[np.float32]:
        """(N, D) unit vectors of clips; frames are resized to the size of the clip's first frame."""
        check_clips(clips)
        return self._in_batches([_video(clip) for clip in clips], "fewer frames a clip (--clip-frames), ")


def _video(clip: VideoClip) -> dict[str, Any]:
    """A clip as sentence-transformers takes it: its frames and their timing."""
    first = clip.frames[0].shape[1::-1]
    frames = [
        np.asarray(picture if picture.size == first else picture.resize(first))
        for picture in map(picture_of, clip.frames)
    ]
    seconds = (clip.times[-1] - clip.times[0]) / max(1, len(frames) - 1) or 1.0
    metadata = {
        "fps": 1.0 / seconds,
        "total_num_frames": len(frames),
        "duration": len(frames) * seconds,
        "frames_indices": list(range(len(frames))),
    }
    return {"video": {"array": np.stack(frames), "video_metadata": metadata}}
