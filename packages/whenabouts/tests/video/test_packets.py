"""Damage that is noticed without decoding, and told wherever a person looks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from whenabouts import Corpus
from whenabouts.video.packets import packet_damage
from whenabouts.video.probe import MediaError


@pytest.fixture()
def broken(tmp_path: Path, samples: Path) -> Path:
    """A recording with half a second of its packets overwritten in the middle."""
    data = (samples / "car-detection.mp4").read_bytes()
    middle = len(data) // 2
    path = tmp_path / "broken.mp4"
    path.write_bytes(data[:middle] + b"\xa5" * 50_000 + data[middle + 50_000 :])
    return path


def test_whole_recordings_show_no_damage(samples: Path) -> None:
    media = [path for path in samples.iterdir() if path.suffix in (".mp4", ".webm", ".mp3")]
    assert len(media) > 5
    assert [path.name for path in media if packet_damage(path) is not None] == []


def test_broken_packets_are_counted_with_their_first_time(broken: Path) -> None:
    damage = packet_damage(broken)
    assert damage is not None
    assert damage.startswith("damaged at ") and "packet(s) are broken" in damage
    assert 1.0 < float(damage.split()[2]) < 30.0


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no film")
    with pytest.raises(MediaError):
        packet_damage(tmp_path / "text.mp4")


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_damage_is_told_though_no_picture_is_searched(
    broken: Path, corpus_dir: Path, tmp_path: Path, samples: Path
) -> None:
    flower = (samples / "flower.webm").read_bytes()
    (tmp_path / "cut.webm").write_bytes(flower[: len(flower) // 2])
    shutil.copy2(samples / "friday.mp4", tmp_path / "whole.mp4")
    corpus = Corpus(corpus_dir, create=True)
    summary = corpus.add(broken, tmp_path / "cut.webm", tmp_path / "whole.mp4", processes=1)
    assert {path.name for path, _ in summary.damaged} == {"broken.mp4", "cut.webm"}
    assert any("damage" in line and "broken" in line for line in corpus.show("broken").lines())
    assert corpus.show("whole").to_json()["damage"] == ""


@pytest.mark.usefixtures("unmeasured")
def test_a_date_says_where_it_comes_from(corpus_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "talk.vtt"
    path.write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nBeetles.\n")
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(path, processes=1)
    assert corpus.show("talk").to_json()["recorded_from"] == "modified"
    assert any("recorded" in line and "last change" in line for line in corpus.show("talk").lines())
    corpus.add(path, metadata={"recorded": "2018-03-04"}, processes=1)
    shown = corpus.show("talk")
    assert (shown.to_json()["recorded_from"], shown.to_json()["recorded"][:10]) == ("recorded", "2018-03-04")
    assert any("from its metadata" in line for line in shown.lines())
