"""The settings of a released checkpoint's model, from its tensors, its settings and the options beside it.

Shapes and names of tensors give widths, kernels, lengths of the position tables and which parts there are.
The rest (heads, alpha, how features are prepared) comes from the caller's overrides, else from `model_cfg` in
the checkpoint, else from the program's `opt.json`, else it is the program's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from whenabouts.encoders import EncoderUnavailable, open_image_encoder, open_text_encoder, token_fingerprint
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding, Ends
from whenabouts_systems.models.inputs import Inputs, LongVideos, StreamInput
from whenabouts_systems.released.checkpoint_file import Checkpoint

Value = TypeVar("Value", bool, int, float, str)

STREAMS = ("video", "sub")
QUERY = "query"
# Widths of the features that the programs were trained on: ResNet, I3D, both, BERT, and others in use.
_FEATURE_WIDTHS = (300, 500, 512, 768, 1024, 2048, 2304, 2816, 3072, 4096, 4352)
# Wider features (ResNet beside I3D) have to come as unit vectors already.
_WIDEST_NORMALISED = 3000
_PROJECTED = "{}_input_proj.net.1.weight"
_PLACES = "{}_pos_embed.position_embeddings.weight"
_SHAPES = (
    ("hidden_size", _PROJECTED.format(QUERY), 0),
    ("query_input_size", _PROJECTED.format(QUERY), 1),
    ("max_desc_l", _PLACES.format(QUERY), 0),
    ("max_ctx_l", _PLACES.format("ctx"), 0),
)


@dataclass(frozen=True)
class Overrides:
    """Settings that the caller gives in place of the checkpoint's; None: not given.

    `encoders` names what made the features of "query" and of each stream; `dataset` is what the checkpoint
    was trained on, for programs whose settings go by it; `streams` are those that lie side by side in the
    features, in their order, each with its width.
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


@dataclass(frozen=True)
class Settings:
    """Our settings for a checkpoint: of the system, its inputs and its decoding.

    `labels` is what an end label stood for (`models.trained`). `used_rows`: parameters, as the
    program calls them, of which only so many first rows are used. `unused`: those that may be left over.
    """

    config: Mapping[str, Any]
    inputs: Inputs
    decoding: Decoding
    labels: Literal["inclusive", "as-released"] = "as-released"
    used_rows: Mapping[str, int] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()


class Released:
    """A checkpoint and its settings, by the names that the released programs have for them."""

    def __init__(self, checkpoint: Checkpoint, options: Mapping[str, Any], overrides: Overrides) -> None:
        self.checkpoint, self.overrides = checkpoint, overrides
        self._settings = {**options, **checkpoint.settings}
        self.guessed: list[str] = []
        """Sentences, for people, on settings that neither file nor caller gives."""
        self._check_settings()

    @property
    def hidden(self) -> int:
        """The width inside."""
        return self.size(_PROJECTED.format(QUERY), 0)

    @property
    def max_clips(self) -> int:
        """Places of the clips' position table."""
        return self.size(_PLACES.format("ctx"), 0)

    @property
    def max_tokens(self) -> int:
        """Places of the words' position table."""
        return self.size(_PLACES.format(QUERY), 0)

    @property
    def query_width(self) -> int:
        """Width of a word's features."""
        return self.size(_PROJECTED.format(QUERY), 1)

    @property
    def streams(self) -> dict[str, int]:
        """The streams there are and their widths, temporal endpoint features included."""
        weights = {name: _PROJECTED.format(name) for name in STREAMS}
        widths = {name: self.size(weight, 1) for name, weight in weights.items() if self.has(weight)}
        if not widths:  # name the parameter that another program's checkpoint lacks
            self.size(_PROJECTED.format(QUERY), 1)
            self.size(weights[STREAMS[0]], 1)
        return widths

    def has(self, name: str) -> bool:
        """Whether there is a parameter of that name."""
        return name in self.checkpoint.tensors

    def size(self, name: str, axis: int) -> int:
        """The length of a parameter's axis; FormatError where there is no such parameter, or axis."""
        if not self.has(name):
            raise FormatError(
                self.checkpoint.path, f"lacks parameter {name!r}: it is no checkpoint of this program"
            )
        shape = tuple(self.checkpoint.tensors[name].shape)
        if axis >= len(shape):
            raise FormatError(self.checkpoint.path, f"parameter {name!r} has shape", value=shape)
        return shape[axis]

    def refuse_encoders(self, *but: str) -> None:
        """Raise UsageError where the caller names the encoder of what the system does not read."""
        unknown = sorted(set(self.overrides.encoders) - set(but))
        if unknown:
            raise UsageError(f"encoder of {unknown[0]!r}: there are {', '.join(but)}")

    def refuse_tef(self, program: str) -> None:
        """Raise UsageError where the caller says that there are temporal endpoint features."""
        if self.overrides.tef:
            raise UsageError(
                f"{self.checkpoint.path}: {program} has no temporal endpoint features; leave --tef"
            )

    def has_setting(self, name: str) -> bool:
        """Whether there is a setting of that released name."""
        return name in self._settings

    def setting(self, name: str, default: Value) -> Value:
        """A setting by its released name, of the default's kind."""
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

    def texts(self, name: str) -> list[str]:
        """A setting that is a list of texts; empty where it is not given, or is another thing."""
        value = self._settings.get(name)
        is_texts = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return list(value) if is_texts and value else []

    def refuse_others(self, name: str, *offered: Any) -> None:
        """Raise FormatError where a setting has a value that our system does not have."""
        value = self._settings.get(name, offered[0])
        if value not in offered:
            accepted = ", ".join(map(repr, offered))
            raise FormatError(
                self.checkpoint.path, "is not offered here:", field=name, value=value, accepted=accepted
            )

    def heads(self, hidden: int, default: int, reason: str = "the program's default") -> int:
        """Heads of attention, which no tensor says; UsageError where they do not divide `hidden`."""
        if self.overrides.heads is None and not self.has_setting("n_heads"):
            self.guessed.append(f"heads of attention: {default}, {reason} (--heads)")
        heads = self.overrides.heads or self.setting("n_heads", default)
        if heads < 1 or hidden % heads:
            raise UsageError(
                f"{self.checkpoint.path}: {heads} heads do not divide the width {hidden}; give --heads"
            )
        return heads

    @property
    def clip_seconds(self) -> float:
        """The length of a clip."""
        return self.overrides.clip_seconds or self.setting("clip_length", 1.5)

    def stream(self, name: str, width: int, normalise: bool) -> StreamInput:
        """An input, with the encoder that the caller names for it."""
        encoder = self.overrides.encoders.get(name, "")
        return StreamInput(width, normalise, *_identity(encoder, is_query=name == QUERY))

    def inputs_of_pictures(self, config: Mapping[str, Any], program: str) -> Inputs:
        """How a program of CONQUER's family prepares features: only pictures are brought to unit length."""
        widths = config["streams"]
        self.refuse_encoders(QUERY, *widths)
        self.refuse_tef(program)
        return Inputs(
            self.stream(QUERY, config["query_width"], False),
            {name: self.stream(name, width, name == STREAMS[0]) for name, width in widths.items()},
            clip_seconds=self.clip_seconds,
            max_clips=config["max_clips"],
            max_tokens=config["max_tokens"],
            long_videos="cut",
        )

    def shared(self, heads: int) -> dict[str, Any]:
        """Settings that our systems name alike; `heads` are the program's default."""
        return {
            "streams": self.streams,
            "query_width": self.query_width,
            "hidden": self.hidden,
            "heads": self.heads(self.hidden, heads),
            "max_clips": self.max_clips,
            "max_tokens": self.max_tokens,
            "input_dropout": self.setting("input_drop", 0.1),
            "dropout": self.setting("drop", 0.1),
            "initializer_range": self.setting("initializer_range", 0.02),
            "ranking": self.setting("ranking_loss_type", "hinge"),
            "margin": self.setting("margin", 0.1),
            "pool": self.setting("hard_pool_size", 20),
            "weight_negative_videos": self.setting("lw_neg_ctx", 1.0),
            "weight_negative_queries": self.setting("lw_neg_q", 1.0),
            "as_released": True,
        }

    def decoding(self, ends: Ends) -> Decoding:
        """As the programs decode: their mask leaves out spans whose ends lie `max_pred_l` clips apart."""
        longest, nms = self.setting("max_pred_l", 16), self.setting("nms_thd", -1.0)
        return Decoding(
            min_clips=self.setting("min_pred_l", 2),
            max_clips=longest - 1 if ends == "exclusive" else longest,
            ends=ends,
            top_videos=self.setting("max_vcmr_video", 100),
            nms=nms if nms >= 0 else None,
            spans_before_nms=self.setting("max_before_nms", 200),
        )

    def inputs(self, long_videos: LongVideos) -> Inputs:
        """How features are prepared."""
        tef = self._tef()
        video_is_wide = self.streams.get(STREAMS[0], 0) > _WIDEST_NORMALISED
        bare = {
            STREAMS[0]: self.setting("no_norm_vfeat", video_is_wide),
            STREAMS[1]: self.setting("no_norm_tfeat", False),
        }
        streams = {
            name: self.stream(name, width - 2 * tef, not bare[name]) for name, width in self.streams.items()
        }
        self.refuse_encoders(QUERY, *streams)
        return Inputs(
            self.stream(QUERY, self.query_width, not bare[STREAMS[1]]),
            streams,
            clip_seconds=self.clip_seconds,
            max_clips=self.max_clips,
            max_tokens=self.max_tokens,
            long_videos=long_videos,
            tef=tef,
        )

    def _tef(self) -> bool:
        """Whether two columns of each stream say where a clip begins and ends."""
        if self.overrides.tef is not None:
            return self.overrides.tef
        if "ctx_mode" in self._settings:
            return "tef" in self.setting("ctx_mode", "")
        widths = self.streams.values()
        has_tef = all(w - 2 in _FEATURE_WIDTHS and w not in _FEATURE_WIDTHS for w in widths)
        self.guessed.append(
            f"features of {' and '.join(map(str, widths))} values: {'with' if has_tef else 'without'} "
            "temporal endpoint features (--tef, --no-tef)"
        )
        return has_tef

    def _check_settings(self) -> None:
        """FormatError where settings are not those of the tensors: an opt.json of another run."""
        for name, parameter, axis in _SHAPES:
            if not self.has(parameter):  # another program's; who needs it will miss it
                continue
            size = self.size(parameter, axis)
            if self._settings.get(name, size) != size:
                raise FormatError(
                    self.checkpoint.path,
                    f"parameter {parameter!r} has {size} there; the settings (model_cfg, or opt.json) say",
                    field=name,
                    value=self._settings[name],
                )


def _identity(name: str, *, is_query: bool) -> tuple[str, str]:
    """Name and fingerprint of an encoder that lies in a folder here, as a corpus keeps them.

    Of any other, and of a folder that holds none: the name as it was given, and no fingerprint.
    """
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
