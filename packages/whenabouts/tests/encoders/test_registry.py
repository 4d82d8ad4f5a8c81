"""The folder is the registry: who opens what, and how a name is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import whenabouts.encoders
from whenabouts.encoders import (
    EncoderSettings,
    EncoderUnavailable,
    encoder_report,
    open_image_encoder,
    open_sound_encoder,
    open_text_encoder,
)
from whenabouts.types import UsageError

Run = Callable[..., subprocess.CompletedProcess[str]]

NEW_FAMILY = """
import numpy as np
from whenabouts.encoders.protocol import EncoderStatus, check_texts
PREFIX, ORDER = "planted", 1
def recognises(name): return name == "seeds"
def status(): return EncoderStatus("planted", ("text",), True, "always")
class Encoder:
    dimension, fingerprint = 2, "planted"
    def __init__(self, name): self.name = f"planted:{name}"
    def encode_text(self, texts):
        check_texts(texts)
        return np.tile(np.float32([1, 0]), (len(texts), 1))
def open_text(name, settings): return Encoder(name)
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new family in a new file, and nothing else."""
    (tmp_path / "planted_family.py").write_text(NEW_FAMILY)
    monkeypatch.setattr(whenabouts.encoders, "__path__", [*whenabouts.encoders.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "whenabouts.encoders.planted_family", raising=False)


@pytest.mark.usefixtures("planted")
def test_a_new_file_is_a_new_family() -> None:
    assert open_text_encoder("seeds").name == "planted:seeds"
    assert open_text_encoder("planted:anything").name == "planted:anything"
    assert encoder_report()[0].name == "planted"


@pytest.mark.usefixtures("planted")
def test_a_family_is_not_asked_for_what_it_cannot_open() -> None:
    with pytest.raises(EncoderUnavailable, match="prefixes sentence-transformers:, clip:, open_clip:"):
        open_image_encoder("planted:seeds")


@pytest.mark.parametrize(
    "name", ["", "  ", "a\nb", "bad name!", "owner/name/more", "/no/such/folder", "../x", "x" * 5_000]
)
@pytest.mark.parametrize("opens", [open_text_encoder, open_image_encoder, open_sound_encoder])
def test_a_name_that_means_nothing_is_refused(opens: Callable[[str], object], name: str) -> None:
    with pytest.raises(EncoderUnavailable, match="name"):
        opens(name)


def test_an_empty_folder_is_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(EncoderUnavailable, match="of another kind"):
        open_image_encoder(str(tmp_path))


def test_the_report_has_a_line_for_every_family_with_a_remedy_or_a_place() -> None:
    report = encoder_report()
    assert [line.name for line in report][:1] == ["minilm"]
    assert {role for line in report for role in line.roles} == {"text", "images", "clips", "sound", "voices"}
    assert all(line.detail for line in report)
    assert all("pip install" in line.detail for line in report if not line.usable)


def test_the_report_imports_nothing_heavy(fresh_python: Run) -> None:
    code = (
        "import sys; from whenabouts.encoders import encoder_report; encoder_report()\n"
        "print(sorted({'torch', 'transformers', 'onnxruntime', 'open_clip', 'PIL'} & sys.modules.keys()))"
    )
    assert fresh_python(code).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("blocked", "call", "remedy"),
    [
        ("torch", "open_image_encoder('openai/clip-vit-base-patch32')", "whenabouts[vision]"),
        ("transformers", "open_image_encoder('openai/clip-vit-base-patch32')", "whenabouts[vision]"),
        ("PIL", "open_image_encoder('openai/clip-vit-base-patch32')", "whenabouts[vision]"),
        ("transformers", "open_sound_encoder('laion/clap-htsat-unfused')", "whenabouts[vision]"),
        ("open_clip", "open_image_encoder('open_clip:ViT-B-32/openai')", "whenabouts[open-clip]"),
        ("sentence_transformers", "open_text_encoder('BAAI/bge-m3')", "whenabouts[sentence-transformers]"),
        ("onnxruntime", "open_text_encoder()", "onnxruntime"),
    ],
)
def test_a_missing_extra_is_named(fresh_python: Run, blocked: str, call: str, remedy: str) -> None:
    code = (
        f"import sys; sys.modules[{blocked!r}] = None\n"
        "from whenabouts.encoders import *\n"
        f"try: {call}\nexcept EncoderUnavailable as error: print(error)"
    )
    assert remedy in fresh_python(code, HF_HUB_OFFLINE="1").stdout


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="threads=0"):
        EncoderSettings(threads=0)
    with pytest.raises(UsageError, match="at least 1"):
        EncoderSettings(batch_size=-1)
