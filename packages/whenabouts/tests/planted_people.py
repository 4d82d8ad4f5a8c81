"""Models of faces and voices with constructed weights, and films in which they find people.

The face detector has YuNet's outputs and finds what is red or blue and not green; the embedder separates red
from blue. The voice model separates loud from quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import open_voice_encoder
from whenabouts.video.voices import VoiceEncoder

RED, BLUE, GREY = (255, 0, 60), (60, 0, 255), (110, 110, 110)
SIDE = 96
"""Pixels of a planted face."""


def _save(
    path: Path, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], weights: dict[str, Any]
) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(list(nodes), "planted", list(inputs), list(outputs), constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def _value(name: str, *shape: int | str) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def face_detector(path: Path) -> Path:
    """Write a model that scores cells of 32 pixels by red + blue - 2 green; boxes are four cells wide."""
    from onnx import helper

    node = helper.make_node
    weights: dict[str, Any] = {
        "colour": np.array([1, -2, 1], np.float32).reshape(1, 3, 1, 1) / 255,
        "low": np.float32(0),
        "high": np.float32(1),
        "shape": np.array([1, -1, 1], np.int64),
        "bbox_is": np.array([0.5, 0.5, np.log(4), np.log(4)], np.float32).reshape(1, 1, 4),
        "kps_is": np.array([0, 0.2, 1, 0.2, 0.5, 0.5, 0.1, 1, 0.9, 1], np.float32).reshape(1, 1, 10),
        "bbox_by": np.zeros((1, 1, 4), np.float32),
        "kps_by": np.zeros((1, 1, 10), np.float32),
    }
    nodes = [
        node("Conv", ["input", "colour"], ["raw"]),
        node("Clip", ["raw", "low", "high"], ["face"]),
    ]
    for stride in (8, 16, 32):
        weights[f"is_{stride}"] = np.float32(stride == 32)
        nodes += [
            node(
                "AveragePool", ["face"], [f"mean_{stride}"], kernel_shape=[stride] * 2, strides=[stride] * 2
            ),
            node("Mul", [f"mean_{stride}", f"is_{stride}"], [f"score_{stride}"]),
        ]
        nodes += [
            node("Reshape", [f"score_{stride}", "shape"], [f"{name}_{stride}"]) for name in ("cls", "obj")
        ]
        for name in ("bbox", "kps"):
            nodes += [
                node("MatMul", [f"cls_{stride}", f"{name}_by"], [f"{name}_zero_{stride}"]),
                node("Add", [f"{name}_zero_{stride}", f"{name}_is"], [f"{name}_{stride}"]),
            ]
    widths = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
    gives = [
        _value(f"{name}_{stride}", 1, f"n{stride}", widths[name]) for name in widths for stride in (8, 16, 32)
    ]
    return _save(path, nodes, [_value("input", 1, 3, "height", "width")], gives, weights)


def face_embedder(path: Path, seed: int = 0) -> Path:
    """Write a model that maps the mean colour, from red to blue, to a vector (1, 16)."""
    from onnx import helper

    rng = np.random.default_rng(seed)
    nodes = [
        helper.make_node("GlobalAveragePool", ["data"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Sub", ["flat", "middle"], ["colour"]),
        helper.make_node("MatMul", ["colour", "by"], ["fc1"]),
    ]
    by = np.stack([rng.normal(size=16), np.zeros(16), np.zeros(16)]).astype(np.float32)
    by[2] = rng.normal(size=16) / 5 - by[0]
    weights = {"middle": np.array([[0, 0, 0]], np.float32), "by": by}
    return _save(path, nodes, [_value("data", 1, 3, 112, 112)], [_value("fc1", 1, 16)], weights)


def face_models(folder: Path) -> Path:
    """A folder with the face detector and the embedder."""
    folder.mkdir(exist_ok=True)
    face_detector(folder / "detector.onnx")
    face_embedder(folder / "embedder.onnx")
    return folder


def voice_model(path: Path, loudness: float = 0.05) -> Path:
    """Write a model of sound (batch, samples): opposite vectors (1, 8) above and below a mean `loudness`."""
    from onnx import helper

    nodes = [
        helper.make_node("Abs", ["sound"], ["size"]),
        helper.make_node("ReduceMean", ["size"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["mean", "middle"], ["louder"]),
        helper.make_node("MatMul", ["louder", "by"], ["embedding"]),
    ]
    by = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    weights = {"middle": np.array([[loudness]], np.float32), "by": by}
    return _save(
        path, nodes, [_value("sound", "batch", "samples")], [_value("embedding", "batch", 8)], weights
    )


def bank_model(path: Path, *, nemo: bool = False, width: int = 12) -> Path:
    """Small random weights over (batch, time, 80), or with `nemo` over (batch, 80, time) with a length."""
    from onnx import TensorProto, helper

    by = np.random.default_rng(2).normal(size=(80, width)).astype(np.float32)
    nodes = [
        *([helper.make_node("Transpose", ["bands"], ["rows"], perm=[0, 2, 1])] if nemo else []),
        helper.make_node("MatMul", ["rows" if nemo else "bands", "by"], ["seen"]),
        helper.make_node("Relu", ["seen"], ["kept"]),
        helper.make_node("ReduceMean", ["kept"], ["embs"], axes=[1], keepdims=0),
    ]
    shape: list[int | str] = ["batch", 80, "time"] if nemo else ["batch", "time", 80]
    inputs = [_value("bands", *shape)]
    if nemo:
        inputs.append(helper.make_tensor_value_info("length", TensorProto.INT64, ["batch"]))
    return _save(path, nodes, inputs, [_value("embs", "batch", width)], {"by": by})


def film(path: Path, scenes: Sequence[tuple[float, Sequence[tuple[int, int, int]]]], rate: int = 4) -> Path:
    """Write a film of scenes: seconds, and the colours of the faces from left to right."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 320, 224, "yuv444p"
        stream.options = {"crf": "1"}
        frames = [picture(colours) for seconds, colours in scenes for _ in range(round(seconds * rate))]
        for at, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(image, "rgb24")
            frame.pts, frame.time_base = at, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def picture(colours: Sequence[tuple[int, int, int]]) -> NDArray[np.uint8]:
    """A picture (224, 320, 3) of coloured squares on grey."""
    image = np.full((224, 320, 3), GREY, np.uint8)
    for place, colour in enumerate(colours):
        image[64 : 64 + SIDE, 32 + 160 * place : 32 + 160 * place + SIDE] = colour
    return image


def x_vector_folder(
    folder: Path, kind: str = "WavLM", apart: Sequence[Sequence[NDArray[np.float32]]] | None = None
) -> Path:
    """Write a small random speaker model; the voices `apart` (pieces of two) get opposite vectors."""
    import torch
    import transformers

    torch.manual_seed(4)
    shape = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "conv_dim": (16,) * 7,
        "tdnn_dim": (16,) * 5, "feat_extract_norm": "layer", "initializer_range": 0.3,
        "xvector_output_dim": 8, "num_labels": 3,
    }  # fmt: skip
    model = getattr(transformers, f"{kind}ForXVector")(getattr(transformers, f"{kind}Config")(**shape)).eval()
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=False)
    if apart is not None:
        _plant(model, extractor, apart)
    model.save_pretrained(folder)
    extractor.save_pretrained(folder)
    return folder


def _plant(model: Any, extractor: Any, apart: Sequence[Sequence[NDArray[np.float32]]]) -> None:
    """Set the last layer so that two voices have opposite vectors (ridge regression)."""
    import torch

    last, seen = model.feature_extractor, []
    hook = last.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    with torch.no_grad():
        for piece in (*apart[0], *apart[1]):
            model(**extractor(piece, sampling_rate=16_000, return_tensors="pt"))
        hook.remove()
        side = torch.tensor([1.0] * len(apart[0]) + [-1.0] * len(apart[1]))
        rows = torch.cat([torch.stack(seen), torch.ones(len(seen), 1)], dim=1)
        along = torch.linalg.solve(rows.T @ rows + 1e-3 * torch.eye(rows.shape[1]), rows.T @ side)
        by = torch.randn(len(last.bias))
        last.weight.copy_(torch.outer(by, along[:-1]))
        last.bias.copy_(by * along[-1])


def diarizer_folder(
    folder: Path, sound: NDArray[np.float32] | None = None, turns: Sequence[tuple[float, float, int]] = ()
) -> Path:
    """A small random diarizer that finds the `turns` (start, end, speaker) in `sound`."""
    import torch
    import transformers
    from transformers.models.nemotron_asr_streaming import feature_extraction_nemotron_asr_streaming as bands

    torch.manual_seed(4)
    config = transformers.Nemotron3DiarizationConfig(
        audio_config={
            "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        },
        head_config={"hidden_size": 128, "num_speakers": 3, "audio_hidden_size": 128},
        streaming_config={"num_speakers": 3, "speaker_cache_length": 24},
        chunk_length=40, chunk_right_context=8, fifo_length=10, speaker_cache_update_period=30,
    )  # fmt: skip
    model = transformers.Nemotron3DiarizationForAudioFrameClassification(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0, 0.1)
    processor = transformers.Nemotron3DiarizationProcessor(
        bands.NemotronAsrStreamingFeatureExtractor(feature_size=128)
    )
    if sound is not None:
        _plant_turns(model, processor, sound, turns)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _plant_turns(
    model: Any, processor: Any, sound: NDArray[np.float32], turns: Sequence[tuple[float, float, int]]
) -> None:
    """Set the last layer so that the model finds the turns of a sound (ridge regression)."""
    import torch

    last, seen = model.classifier.out_proj, []
    hook = last.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    with torch.no_grad():
        model(**processor(sound, sampling_rate=16_000))
        hook.remove()
        # A chunk's frames follow those of the cache and precede those of the next chunk; the last two chunks
        # are shorter.
        own, ahead = (8 * length for length in (model.config.chunk_length, model.config.chunk_right_context))
        rows = torch.cat([chunk[len(chunk) - own - ahead : len(chunk) - ahead] for chunk in seen[:-2]])
        wanted = torch.full((len(rows), last.out_features), -4.0)
        for start, end, speaker in turns:
            wanted[round(100 * start) : round(100 * end), speaker] = 4.0
        rows = torch.cat([rows, torch.ones(len(rows), 1)], dim=1)
        by = torch.linalg.solve(rows.T @ rows + 1e-3 * torch.eye(rows.shape[1]), rows.T @ wanted)
        last.weight.copy_(by[:-1].T)
        last.bias.copy_(by[-1])


def voice_encoder(name: str) -> VoiceEncoder:
    """The encoder of voices, opened by name."""
    encoder = open_voice_encoder(name)
    assert isinstance(encoder, VoiceEncoder)
    return encoder
