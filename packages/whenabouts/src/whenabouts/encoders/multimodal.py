"""Models of sentence-transformers that see: pictures, clips watched as video, and sentences in one space.

Qwen3-VL-Embedding, embeddinggemma-2 and their like, as sentence-transformers 5.4 and later save them. What a
model takes is read from its own files; no model's name is looked at. How a model watches depends on its
architecture (`_WATCHING`): what these numbers cost stands in docs/streams.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import _torch, _weights
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
"""What `whenabouts models list` shows of these; any other in the form of sentence-transformers works."""
_BATCH_ON_CPU, _BATCH_ON_ACCELERATOR = 1, 8
_PICTURE_SIZE = 448
# By architecture; and how many tokens of the language model a frame of that size becomes.
_WATCHING = {
    # Two frames are one step in time; each 32 x 32 pixels of it a token: 8 x 14 of them for 256 x 448.
    "qwen3_vl": (ClipSettings(frames=8, seconds=4.0, step_seconds=2.0, size=256), 56),
    "embedding_gemma2": (ClipSettings(frames=8, seconds=4.0, step_seconds=2.0, size=256), 70),
}
_OTHERS = (ClipSettings(frames=8, seconds=4.0, step_seconds=2.0, size=224), 64)
# Operations a second: of two cores as measured (benchmarks/watching.py); of graphics cards by guess.
_OPERATIONS_A_SECOND = {"cpu": 1e11, "mps": 5e12, "cuda": 2e14}


def recognises(name: str) -> bool:
    """True for a folder, or a hub name on this machine, whose model says that it takes pictures or video."""
    folder = _weights.folder_at_hand(name)
    return folder is not None and not _modalities(folder).isdisjoint(("image", "video"))


def open_images(name: str, settings: EncoderSettings) -> ImageEncoder:
    """The encoder of that name or folder, a `ClipEncoder` where it takes video.

    EncoderUnavailable says what to install, fetch or give instead.
    """
    _weights.require(name, _NEEDS, "video")
    model = _weights.locate(name)
    seen = _modalities(model.path)
    if seen.isdisjoint(("image", "video")):
        raise EncoderUnavailable(
            f"{name}: takes {', '.join(sorted(seen)) or 'no sentences'} and no pictures; give a model that "
            "sees, such as a CLIP or Qwen3-VL-Embedding"
        )
    if _weights.local_folder(name):  # another family may recognise the bare path
        model = replace(model, name=f"{PREFIX}:{model.name}")
    with _weights.loading(name, "video"):
        return (_WatchingEncoder if "video" in seen else _SeeingEncoder)(model, settings)


def status() -> EncoderStatus:
    """Whether the packages are here; a model needs its weights as well."""
    detail = "models of pictures and video in the form of sentence-transformers, by name or by path"
    return _weights.status(
        "sentence-transformers models that see", ("images", "clips", "text"), _NEEDS, "video", detail
    )


def _modalities(folder: Path) -> set[str]:
    """What a model says that it takes; none for a model that sentence-transformers has not saved."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        first = folder / str(modules[0]["path"]) / "sentence_bert_config.json"
        return set(json.loads(first.read_text(encoding="utf-8")).get("modality_config", ("text",)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()


class _SeeingEncoder(SentenceTransformersEncoder):
    """A model of sentences and pictures in one space."""

    def __init__(self, model: _weights.ModelFolder, settings: EncoderSettings) -> None:
        device = _torch.choose_device(settings)
        loaded = load(model.path, device, _dtype(model.path, settings, device))
        default = _BATCH_ON_CPU if device.type == "cpu" else _BATCH_ON_ACCELERATOR
        super().__init__(model, loaded, settings.batch_size or default)
        self._device_type = device.type
        self.image_size = _PICTURE_SIZE

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """(N, D) unit vectors of (H, W, 3) RGB pictures of any size."""
        for place, image in enumerate(images):
            check_image(image, place)
        return self._in_batches([picture_of(image) for image in images], "a smaller model")

    def _in_batches(self, items: Sequence[Any], less: str) -> NDArray[np.float32]:
        remedy = f"take {less} than {self.name}, or a device with more memory"
        return _torch.in_batches(self._features, items, self._batch_size, self.dimension, remedy=remedy)

    def _features(self, items: Sequence[Any]) -> torch.Tensor:
        with _torch.quiet_transformers():
            features: torch.Tensor = self._model.encode_document(
                list(items),
                batch_size=len(items),
                convert_to_numpy=False,
                convert_to_tensor=True,
                show_progress_bar=False,
                # Frames come as they shall be seen; a processor would leave some out.
                processing_kwargs={"video": {"do_sample_frames": False}},
            )
        return features


class _WatchingEncoder(_SeeingEncoder):
    """A model of sentences, pictures and video in one space."""

    def __init__(self, model: _weights.ModelFolder, settings: EncoderSettings) -> None:
        super().__init__(model, settings)
        config = _weights.model_config(model.path) or {}
        watching, tokens = _WATCHING.get(config.get("model_type", ""), _OTHERS)
        weights = sum(parameter.numel() for parameter in self._model.parameters())
        # A weight costs two operations a token, and the part that sees reads its pieces beside that: twice.
        operations = 4.0 * weights * tokens * watching.frames
        seconds = operations / _OPERATIONS_A_SECOND.get(self._device_type, 1e12)
        self.clip_settings = replace(watching, cost_seconds=seconds)

    def encode_clips(self, clips: Sequence[VideoClip]) -> NDArray[np.float32]:
        """(N, D) unit vectors of clips; all frames of a clip are brought to the size of its first."""
        check_clips(clips)
        return self._in_batches([_video(clip) for clip in clips], "fewer frames a clip (--clip-frames)")


def _video(clip: VideoClip) -> dict[str, Any]:
    """A clip as sentence-transformers takes it: its frames, and when each is shown."""
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


def _dtype(folder: Path, settings: EncoderSettings, device: torch.device) -> torch.dtype:
    """The settings' precision; a model that was made in bfloat16 overflows in float16, so half is that."""
    import torch

    config = _weights.model_config(folder) or {}
    parts = (config, config.get("text_config") or {})
    dtype = _torch.choose_dtype(settings, device)
    is_brain = any("bfloat16" in (part.get("dtype"), part.get("torch_dtype")) for part in parts)
    return torch.bfloat16 if dtype == torch.float16 and is_brain else dtype
