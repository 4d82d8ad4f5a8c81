"""Find out the settings of a released checkpoint, from its tensors, its options and the caller.

Widths, kernels, lengths of position tables and the parts of the model follow from tensors. Other settings
(heads, alpha, preparation of features) come from the first that has them: the caller's overrides, `model_cfg`
in the checkpoint, the program's `opt.json`, and the defaults of our `Config`, which are those of the release.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from whenabouts.encoders import EncoderUnavailable, open_image_encoder, open_text_encoder, token_fingerprint
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding, Ends
from whenabouts_systems.models.inputs import Inputs, LongVideos, StreamInput
from whenabouts_systems.models.parts.late_fusion import FusionSettings
from whenabouts_systems.released.checkpoint_file import Checkpoint

Value = TypeVar("Value", bool, int, float, str)

STREAMS = ("video", "sub")
QUERY = "query"
# Common widths of features: ResNet, I3D, both, BERT and others.
_FEATURE_WIDTHS = (300, 500, 512, 768, 1024, 2048, 2304, 2816, 3072, 4096, 4352)
# Wider features (ResNet with I3D) are unit vectors already.
_WIDEST_NORMALISED = 3000
_HEAD_WIDTH = 64
_PROJECTED = "{}_input_proj.net.1.weight"
_PLACES = "{}_pos_embed.position_embeddings.weight"
_SHAPES = {
    "hidden_size": (_PROJECTED.format(QUERY), 0),
    "query_input_size": (_PROJECTED.format(QUERY), 1),
    "max_desc_l": (_PLACES.format(QUERY), 0),
    "max_ctx_l": (_PLACES.format("ctx"), 0),
}
# Options whose names are the same in several programs.
OF_LOSSES = {
    "input_dropout": "input_drop",
    "dropout": "drop",
    "initializer_range": "initializer_range",
    "margin": "margin",
    "pool": "hard_pool_size",
}
OF_RANKING = {
    "ranking": "ranking_loss_type",
    "margin": "margin",
    "weight_negative_videos": "lw_neg_ctx",
    "weight_negative_queries": "lw_neg_q",
    "alpha": "q2c_alpha",
}


@dataclass(frozen=True)
class Overrides:
    """Settings by which the caller overrides the checkpoint; None: not given.

    `encoders`: names of the encoders of "query" and of each stream. `dataset`: the data set of the training,
    for programs whose settings depend on it. `streams`: names and widths of concatenated streams, in order.
    """

    heads: int | None = None
    clip_seconds: float | None = None
    tef: bool | None = None
    encoders: Mapping[str, str] = field(default_factory=dict)
    dataset: str = ""
    streams: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.heads is not None and self.heads < 1:
            raise UsageError(f"heads is {self.heads}; accepted: a whole number, 1 or more")
        if self.clip_seconds is not None and not 0 < self.clip_seconds < math.inf:
            raise UsageError(f"clip_seconds is {self.clip_seconds}; accepted: a number above 0")


@dataclass(frozen=True)
class Settings:
    """Our settings for a checkpoint: of the system, its inputs and its decoding.

    `labels` is the meaning of an end label (`models.trained`). `used_rows` is parameter -> number of its
    first rows that are used, `unused` are parameters that our system lacks; both by the program's names.
    """

    config: Mapping[str, Any]
    inputs: Inputs
    decoding: Decoding
    labels: Literal["inclusive", "as-released"] = "as-released"
    used_rows: Mapping[str, int] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()


class Released:
    """A checkpoint and its settings, under the names of the released programs."""

    def __init__(self, checkpoint: Checkpoint, options: Mapping[str, Any], overrides: Overrides) -> None:
        self.checkpoint, self.overrides = checkpoint, overrides
        self._settings = {**options, **checkpoint.settings}
        self.guessed: list[str] = []
        """Messages for the user about settings that neither file nor caller gives."""
        self._check_settings()

    def sizes(self, *names: str) -> tuple[int, ...]:
        """Sizes, by the names of the programs' options for them."""
        return tuple(self.size(*_SHAPES[name]) for name in names)

    @property
    def streams(self) -> dict[str, int]:
        """Streams and their widths, including temporal endpoint features. FormatError if there is none."""
        return self.widths(*((name, _PROJECTED.format(name)) for name in STREAMS))

    def widths(self, *projections: tuple[str, str]) -> dict[str, int]:
        """Stream -> width, of the (stream, parameter) that the checkpoint has; FormatError if it has none."""
        widths = {stream: self.size(name, 1) for stream, name in projections if self.has(name)}
        return widths or {stream: self.size(name, 1) for stream, name in projections[:1]}

    def has(self, name: str) -> bool:
        """Whether there is a parameter `name`."""
        return name in self.checkpoint.tensors

    def size(self, name: str, axis: int) -> int:
        """The length of a parameter's axis. Raises FormatError if the parameter or the axis is missing."""
        if not self.has(name):
            raise FormatError(
                self.checkpoint.path, f"lacks parameter {name!r}: it is not a checkpoint of this program"
            )
        shape = tuple(self.checkpoint.tensors[name].shape)
        if axis >= len(shape):
            raise FormatError(self.checkpoint.path, f"parameter {name!r} has shape", value=shape)
        return shape[axis]

    def count(self, name: str) -> int:
        """The number of parameters of a name in which "{}" stands for any number."""
        pattern = re.compile(re.escape(name).replace(r"\{\}", r"\d+"))
        return sum(pattern.fullmatch(other) is not None for other in self.checkpoint.tensors)

    def refuse_encoders(self, *but: str) -> None:
        """Raise UsageError for encoders of streams that the system does not read."""
        unknown = sorted(set(self.overrides.encoders) - set(but))
        if unknown:
            raise UsageError(f"encoder of {unknown[0]!r}: unknown; accepted: {', '.join(but)}")

    def refuse_tef(self, program: str) -> None:
        """Raise UsageError if the caller sets temporal endpoint features."""
        if self.overrides.tef:
            raise UsageError(
                f"{self.checkpoint.path}: {program} has no temporal endpoint features; leave out --tef"
            )

    def has_setting(self, name: str) -> bool:
        """Whether there is a setting `name`."""
        return name in self._settings

    def setting(self, name: str, default: Value) -> Value:
        """A setting, or its default. Raises FormatError if it does not have the default's type."""
        value = self._settings.get(name, default)
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            raise FormatError(
                self.checkpoint.path,
                "the setting is",
                field=name,
                value=value,
                accepted=f"a value such as {default!r}",
            )
        return value

    def options(self, preset: Any, names: Mapping[str, str]) -> dict[str, Any]:
        """Our settings, by our names: from the program's options (`names`: ours -> theirs), else `preset`."""
        return {ours: self.setting(theirs, getattr(preset, ours)) for ours, theirs in names.items()}

    def texts(self, name: str) -> list[str]:
        """A setting that is a list of texts; empty if it is not one."""
        value = self._settings.get(name)
        is_texts = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return list(value) if is_texts and value else []

    def refuse_others(self, name: str, *offered: Any) -> None:
        """Raise FormatError if a setting is not in `offered`, whose first value is the default."""
        value = self._settings.get(name, offered[0])
        if value not in offered:
            accepted = ", ".join(map(repr, offered))
            raise FormatError(
                self.checkpoint.path, "is not supported:", field=name, value=value, accepted=accepted
            )

    def heads(self, width: int, default: int | None = None, name: str = "n_heads") -> int:
        """The heads of attention, which no tensor shows; without a default one for each 64 values.

        Raises UsageError if they do not divide `width`.
        """
        usual = default or max(1, width // _HEAD_WIDTH)
        if self.overrides.heads is None and not self.has_setting(name):
            reason = "the program's default" if default else f"{_HEAD_WIDTH} values each"
            self.guessed.append(f"heads of attention: {usual}, {reason} (--heads)")
        heads = self.overrides.heads or self.setting(name, usual)
        if heads < 1 or width % heads:
            raise UsageError(
                f"{self.checkpoint.path}: {heads} heads do not divide the width {width}; give --heads"
            )
        return heads

    def clip_seconds(self, default: float = 1.5, name: str = "clip_length") -> float:
        """The seconds of a clip."""
        return self.overrides.clip_seconds or self.setting(name, default)

    def stream(self, name: str, width: int, normalise: bool) -> StreamInput:
        """The settings of an input, with the encoder that the caller names."""
        encoder = self.overrides.encoders.get(name, "")
        return StreamInput(width, normalise, *_identity(encoder, is_query=name == QUERY))

    def shared(self, preset: FusionSettings) -> dict[str, Any]:
        """The settings that XML and ReLoCLNet share; `preset` holds the release's defaults."""
        streams = self.streams
        hidden, width, tokens, clips = self.sizes(*_SHAPES)
        return {
            "streams": streams,
            "query_width": width,
            "hidden": hidden,
            "heads": self.heads(hidden, preset.heads),
            "max_clips": clips,
            "max_tokens": tokens,
            **self.options(preset, {**OF_LOSSES, **OF_RANKING}),
            "as_released": True,
        }

    def decoding(
        self, ends: Ends, lengths: tuple[int, int] = (2, 16), videos: int = 100, nms: float = -1.0
    ) -> Decoding:
        """Decoding as in the programs; arguments are the program's defaults.

        The programs' mask excludes spans whose last clip is `max_pred_l` clips after their first.
        """
        longest, nms = self.setting("max_pred_l", lengths[1]), self.setting("nms_thd", nms)
        return Decoding(
            min_clips=self.setting("min_pred_l", lengths[0]),
            max_clips=longest - 1 if ends == "exclusive" else longest,
            ends=ends,
            top_videos=self.setting("max_vcmr_video", videos),
            nms=nms if nms >= 0 else None,
            spans_before_nms=self.setting("max_before_nms", 200),
        )

    def inputs(self, long_videos: LongVideos) -> Inputs:
        widths = self.streams.values()
        is_tef = all(w - 2 in _FEATURE_WIDTHS and w not in _FEATURE_WIDTHS for w in widths)
        tef = self.tef(is_tef, " and ".join(map(str, widths)))
        video_is_wide = self.streams.get(STREAMS[0], 0) > _WIDEST_NORMALISED
        bare = {
            STREAMS[0]: self.setting("no_norm_vfeat", video_is_wide),
            STREAMS[1]: self.setting("no_norm_tfeat", False),
        }
        streams = {
            name: self.stream(name, width - 2 * tef, not bare[name]) for name, width in self.streams.items()
        }
        self.refuse_encoders(QUERY, *streams)
        width, tokens, clips = self.sizes("query_input_size", "max_desc_l", "max_ctx_l")
        return Inputs(
            self.stream(QUERY, width, not bare[STREAMS[1]]),
            streams,
            clip_seconds=self.clip_seconds(),
            max_clips=clips,
            max_tokens=tokens,
            long_videos=long_videos,
            tef=tef,
        )

    def tef(self, guess: bool, widths: str) -> bool:
        """Whether features end in two columns of temporal endpoint features; `widths` are for a message."""
        if self.overrides.tef is not None:
            return self.overrides.tef
        if self.has_setting("ctx_mode"):
            return "tef" in self.setting("ctx_mode", "")
        self.guessed.append(
            f"features of {widths} values: {'with' if guess else 'without'} temporal endpoint features "
            "(--tef, --no-tef)"
        )
        return guess

    def _check_settings(self) -> None:
        """Raise FormatError if sizes in the settings differ from the tensors: an opt.json of another run."""
        for name, (parameter, axis) in _SHAPES.items():
            if not self.has(parameter):  # of another program; an importer that needs it reports it
                continue
            size = self.size(parameter, axis)
            if self._settings.get(name, size) != size:
                raise FormatError(
                    self.checkpoint.path,
                    f"parameter {parameter!r} has size {size}, but the settings (model_cfg, opt.json) say",
                    field=name,
                    value=self._settings[name],
                )


def _identity(name: str, *, is_query: bool) -> tuple[str, str]:
    """Name and fingerprint of an encoder, as in a corpus; the given name and "" if no local folder has it."""
    folder = name.partition(":")[2] or name
    if not name or not Path(folder).expanduser().is_dir():
        return name, ""
    try:
        if is_query:
            words = open_text_encoder(name)
            return words.name, token_fingerprint(words)
        pictures = open_image_encoder(name)
        return pictures.name, pictures.fingerprint
    except EncoderUnavailable:
        return name, ""
