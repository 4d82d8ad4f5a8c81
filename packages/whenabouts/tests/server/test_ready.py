"""Whether the server can answer searches: for probes without a token, and in a warning at the start."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from tests.server.conftest import TOKEN, Open, error_of

from whenabouts.corpus import Corpus
from whenabouts.encoder_registry import EncoderRegistry
from whenabouts.encoders.protocol import EncoderUnavailable
from whenabouts.server import run, service
from whenabouts.server.security import HEALTH, READY
from whenabouts.server.settings import Settings


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The streams whose encoder cannot be opened; a test adds names."""
    names: set[str] = set()
    open_encoder = EncoderRegistry.encoder_of

    def refuse(self, info):  # type: ignore[no-untyped-def]
        if info.name in names:
            raise EncoderUnavailable(f"stream {info.name}: its package is not installed")
        return open_encoder(self, info)

    monkeypatch.setattr(EncoderRegistry, "encoder_of", refuse)
    return names


def test_a_server_whose_corpus_is_searched_is_ready(opened: Open, one_video: Path) -> None:
    assert opened(one_video / "corpus", token=TOKEN).json(READY) == opened(one_video / "corpus").json(HEALTH)


def test_a_server_that_waits_for_its_first_videos_is_ready(opened: Open, tmp_path: Path) -> None:
    Corpus(tmp_path / "new", create=True)
    assert opened(tmp_path / "new").get(READY).status_code == 200


def test_a_server_that_answers_no_search_lives_but_is_not_ready(
    opened: Open, one_video: Path, broken: set[str]
) -> None:
    broken |= set(Corpus(one_video / "corpus").streams)
    client = opened(one_video / "corpus", token=TOKEN)
    answer = client.get(READY)
    assert error_of(answer) == (503, "model_missing", "stream")
    assert "package" not in answer.text  # without a token it tells nothing of the corpus
    search = client.get("/api/search?query=crown", headers={"Authorization": f"Bearer {TOKEN}"})
    assert search.json() == answer.json()
    assert client.get(HEALTH).status_code == 200


def test_a_corpus_that_is_taken_away_and_brought_back_is_noticed(
    opened: Open, one_video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_READY_SECONDS", 0.0)
    place, away = tmp_path / "c", tmp_path / "away"
    shutil.copytree(one_video / "corpus", place)
    client = opened(place)
    assert client.get(READY).status_code == 200
    place.rename(away)
    assert client.error(READY)[:2] == (503, "corpus_unavailable")
    away.rename(place)
    assert client.get(READY).status_code == 200


@pytest.mark.slow
def test_a_stream_that_cannot_be_searched_is_told_at_the_start(
    one_video: Path,
    broken: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(run.Server, "run", lambda self, sockets: None)
    corpus = Corpus(one_video / "corpus")
    settings = Settings(port=0, cache=tmp_path)
    with caplog.at_level(logging.WARNING):
        run.serve(corpus, settings, print)
        assert not caplog.messages
        name = corpus.streams[0]
        broken.add(name)
        run.serve(Corpus(one_video / "corpus"), settings, print)
    assert caplog.messages == [f"stream {name}: its package is not installed"]
