"""Where weights come from: the hub's cache, and hashes; nothing is downloaded by opening."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.hub_server import hub_server

from whenabouts.encoders import weight_files

Run = Callable[..., subprocess.CompletedProcess[str]]
OPEN = """
from whenabouts.encoders import EncoderUnavailable, open_image_encoder
try: print(open_image_encoder({name!r}).fingerprint)
except EncoderUnavailable as error: print("REFUSED", error)
"""


@pytest.mark.slow
def test_a_hub_name_opens_once_it_was_fetched_and_is_never_downloaded_by_opening(
    clip_folder: Path, fresh_python: Run, tmp_path: Path
) -> None:
    with hub_server(clip_folder) as hub:
        where = hub.environment | {"HF_HOME": str(tmp_path)}
        first = fresh_python(OPEN.format(name="own/clip"), **where)
        assert first.stdout.startswith("REFUSED own/clip: its weights are not on this machine"), first.stderr
        assert "whenabouts models get own/clip" in first.stdout
        assert hub.asked == []
        fetched = fresh_python("from whenabouts import hub; hub.fetch(hub.look_up('own/clip'))", **where)
        assert fetched.returncode == 0, fetched.stderr
        hub.asked.clear()
        for offline in ("0", "1"):
            again = fresh_python(OPEN.format(name="own/clip"), **where | {"HF_HUB_OFFLINE": offline})
            assert again.stdout.startswith("clip model=CLIPModel"), again.stdout + again.stderr
            assert again.stderr == ""
        assert hub.asked == []


@pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)
@pytest.mark.parametrize(
    "name", ["owner/model", "onnx:owner/model", "sentence-transformers:owner/model", "model"]
)
def test_what_is_not_here_is_refused_with_the_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    from whenabouts.encoders import EncoderUnavailable, open_text_encoder

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EncoderUnavailable, match=rf"models get {name.rpartition(':')[2]}"):
        open_text_encoder(name)


def test_weights_that_need_more_memory_than_there_is_are_said() -> None:
    from whenabouts.encoders import EncoderUnavailable

    for error in (MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")):
        with (
            pytest.raises(EncoderUnavailable, match="needs more memory"),
            weight_files.loading("a", "vision"),
        ):
            raise error


def test_a_hash_is_computed_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHENABOUTS_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"one")
    assert weight_files.weights_hash([file]) == hashlib.sha256(b"one").hexdigest()
    (note,) = (tmp_path / "cache" / "weights").iterdir()
    note.write_text("f" * 64)
    assert weight_files.weights_hash([file]) == "f" * 64, "the note is used"
    note.write_text("half a no")
    assert weight_files.weights_hash([file]) == hashlib.sha256(b"one").hexdigest(), "a damaged note is not"
    file.write_bytes(b"other")
    assert weight_files.weights_hash([file]) == hashlib.sha256(b"other").hexdigest()


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WHENABOUTS_CACHE", str(tmp_path / "file"))
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"one")
    assert weight_files.weights_hash([file]) == hashlib.sha256(b"one").hexdigest()


def test_several_files_have_one_hash_that_depends_on_each(tmp_path: Path) -> None:
    files = [tmp_path / f"model-{part}.safetensors" for part in (1, 2)]
    for file in files:
        file.write_bytes(file.name.encode())
    before = weight_files.weights_hash(files)
    files[1].write_bytes(b"changed in the second")
    assert weight_files.weights_hash(files) != before
