"""A corpus of nine transcripts, indexed once for a file of tests and copied for each of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from whenabouts import Corpus

from ..small_systems import Letters, write_talk


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nine transcripts (`talks`) and their corpus (`my.corpus`); to be copied."""
    place = tmp_path_factory.mktemp("indexed")
    (place / "talks").mkdir()
    for number in range(9):
        write_talk(place / "talks", number)
    Corpus(place / "my.corpus", encoders=[Letters()]).add(place / "talks", text=Letters(), processes=1)
    return place


@pytest.fixture
def folder(indexed: Path) -> Iterator[Path]:
    """The transcripts where they were indexed; what a test changes in them is undone."""
    place = indexed / "talks"
    kept = {path: path.read_bytes() for path in place.iterdir()}
    yield place
    for path in place.iterdir():
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)


@pytest.fixture
def corpus(indexed: Path, folder: Path, tmp_path: Path) -> Corpus:
    """A copy of the corpus."""
    return Corpus(shutil.copytree(indexed / "my.corpus", tmp_path / "my.corpus"), encoders=[Letters()])
