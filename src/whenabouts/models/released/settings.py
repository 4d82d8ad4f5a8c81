"""What a released checkpoint tells of its model: shapes of its tensors, its settings, the options beside it.

Widths, kernels, lengths of the position tables and which parts there are, the tensors say themselves. What
they cannot say (heads, alpha, how features were made ready) comes from what the caller asks for, else from
`model_cfg` in the checkpoint, else from the program's `opt.json`, else it is the program's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from whenabouts.formats.files import FormatError
from whenabouts.models.decoding import Decoding, Ends
from whenabouts.models.inputs import Inputs, LongVideos, StreamInput
from whenabouts.models.released.checkpoint_file import Checkpoint
from whenabouts.types import UsageError

Value = TypeVar("Value", bool, int, float, str)

STREAMS = ("video", "sub")
QUERY = "query"
# Widths of the features that the programs were trained on: ResNet, I3D, both, BERT, and others in use.
_FEATURE_WIDTHS = (300, 500, 512, 768, 1024, 2048, 2304, 2816, 3072, 4096, 4352)
# The programs demand features that are unit vectors already where they are wider (ResNet beside I3D).
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
class Asked:
    """What the caller says in place of the checkpoint; None: nothing.

    `encoders` names what made the features of "query", "video" and "sub"; `dataset` is what the checkpoint
    was trained on, for programs whose settings go by it.
    """

    heads: int | None = None
    clip_seconds: float | None = None
    tef: bool | None = None
    encoders: Mapping[str, str] = field(default_factory=dict)
    dataset: str = ""

    def __post_init__(self) -> None:
        if self.heads is not None and self.heads < 1:
            raise UsageError(f"heads is {self.heads}; accepted: a whole number, 1 or more")


@dataclass(frozen=True)
class Settings:
    """What an importer makes of a checkpoint: settings of our system, its inputs and its decoding.

    `labels` is what an end label stood for (`models.trained`). `used_rows`: parameters, as the
    program calls them, of which only so many first rows are used.
    """

    config: Mapping[str, Any]
    inputs: Inputs
    decoding: Decoding
    labels: Literal["inclusive", "as-released"] = "as-released"
    used_rows: Mapping[str, int] = field(default_factory=dict)


class Released:
    """A checkpoint with the options beside it, asked by the names of the released programs."""

    def __init__(self, checkpoint: Checkpoint, options: Mapping[str, Any], asked: Asked) -> None:
        self.checkpoint, self.asked = checkpoint, asked
        self._told = {**options, **checkpoint.settings}
        self.guessed: list[str] = []
        """What nothing told, for people."""
        self._check_told()

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
        found = {
            name: self.size(_PROJECTED.format(name), 1)
            for name in STREAMS
            if self.has(_PROJECTED.format(name))
        }
        if not found:
            self.size(_PROJECTED.format(QUERY), 1)
            self.size(_PROJECTED.format(STREAMS[0]), 1)
        return found

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
        unknown = sorted(set(self.asked.encoders) - set(but))
        if unknown:
            raise UsageError(f"encoder of {unknown[0]!r}: there are {', '.join(but)}")

    def refuse_tef(self, program: str) -> None:
        """Raise UsageError where the caller says that there are temporal endpoint features."""
        if self.asked.tef:
            raise UsageError(
                f"{self.checkpoint.path}: {program} has no temporal endpoint features; leave --tef"
            )

    def tells(self, name: str) -> bool:
        """Whether there is a setting of that released name."""
        return name in self._told

    def told(self, name: str, default: Value) -> Value:
        """A setting by its released name, of the default's kind."""
        value = self._told.get(name, default)
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

    def refuse_others(self, name: str, *known: Any) -> None:
        """Raise FormatError where a setting has a value that our system does not have."""
        value = self._told.get(name, known[0])
        if value not in known:
            accepted = ", ".join(map(repr, known))
            raise FormatError(
                self.checkpoint.path, "is not offered here:", field=name, value=value, accepted=accepted
            )

    def heads(self, default: int) -> int:
        """Heads of attention: the weights do not tell them."""
        if self.asked.heads is None and "n_heads" not in self._told:
            self.guessed.append(f"heads of attention: {default}, the program's default (--heads)")
        heads = self.asked.heads or self.told("n_heads", default)
        if heads < 1 or self.hidden % heads:
            raise UsageError(
                f"{self.checkpoint.path}: {heads} heads do not divide the width {self.hidden}; give --heads"
            )
        return heads

    def shared(self, heads: int) -> dict[str, Any]:
        """Settings that our systems name alike; `heads` are the program's default."""
        return {
            "streams": self.streams,
            "query_width": self.query_width,
            "hidden": self.hidden,
            "heads": self.heads(heads),
            "max_clips": self.max_clips,
            "max_tokens": self.max_tokens,
            "input_dropout": self.told("input_drop", 0.1),
            "dropout": self.told("drop", 0.1),
            "initializer_range": self.told("initializer_range", 0.02),
            "ranking": self.told("ranking_loss_type", "hinge"),
            "margin": self.told("margin", 0.1),
            "pool": self.told("hard_pool_size", 20),
            "weight_negative_videos": self.told("lw_neg_ctx", 1.0),
            "weight_negative_queries": self.told("lw_neg_q", 1.0),
            "as_released": True,
        }

    def decoding(self, ends: Ends) -> Decoding:
        """As the programs decode: their mask leaves out spans whose ends lie `max_pred_l` clips apart."""
        longest, nms = self.told("max_pred_l", 16), self.told("nms_thd", -1.0)
        return Decoding(
            min_clips=self.told("min_pred_l", 2),
            max_clips=longest - 1 if ends == "exclusive" else longest,
            ends=ends,
            top_videos=self.told("max_vcmr_video", 100),
            nms=nms if nms >= 0 else None,
            spans_before_nms=self.told("max_before_nms", 200),
        )

    def inputs(self, long_videos: LongVideos) -> Inputs:
        """How features are made ready."""
        tef = self._tef()
        video_is_wide = self.streams.get(STREAMS[0], 0) > _WIDEST_NORMALISED
        bare = {
            STREAMS[0]: self.told("no_norm_vfeat", video_is_wide),
            STREAMS[1]: self.told("no_norm_tfeat", False),
        }
        streams = {
            name: StreamInput(width - 2 * tef, not bare[name], self.asked.encoders.get(name, ""))
            for name, width in self.streams.items()
        }
        query = StreamInput(self.query_width, not bare[STREAMS[1]], self.asked.encoders.get(QUERY, ""))
        self.refuse_encoders(QUERY, *streams)
        return Inputs(
            query,
            streams,
            clip_seconds=self.asked.clip_seconds or self.told("clip_length", 1.5),
            max_clips=self.max_clips,
            max_tokens=self.max_tokens,
            long_videos=long_videos,
            tef=tef,
        )

    def _tef(self) -> bool:
        """Whether two columns of each stream say where a clip begins and ends."""
        if self.asked.tef is not None:
            return self.asked.tef
        if "ctx_mode" in self._told:
            return "tef" in self.told("ctx_mode", "")
        widths = self.streams.values()
        found = all(w - 2 in _FEATURE_WIDTHS and w not in _FEATURE_WIDTHS for w in widths)
        told = " and ".join(map(str, widths))
        has = "with" if found else "without"
        self.guessed.append(f"features of {told} values: {has} temporal endpoint features (--tef, --no-tef)")
        return found

    def _check_told(self) -> None:
        """FormatError where settings are not those of the tensors: an opt.json of another run."""
        for name, parameter, axis in _SHAPES:
            if not self.has(parameter):  # another program's; who needs it will miss it
                continue
            size = self.size(parameter, axis)
            if self._told.get(name, size) != size:
                raise FormatError(
                    self.checkpoint.path,
                    f"parameter {parameter!r} has {size} there; the settings (model_cfg, or opt.json) say",
                    field=name,
                    value=self._told[name],
                )
