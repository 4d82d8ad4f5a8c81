"""`Corpus` as programs use it: adding, changing and removing videos."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.toy_encoders import Shades

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.encoders import EncoderUnavailable
from whenabouts.index.folders import indexed_folders
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.records import EncoderMismatch, NotACorpus
from whenabouts.index.transcripts import Transcripts
from whenabouts.indexing import find_moved, plan_index, run_index
from whenabouts.types import Moment, UsageError
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack
from whenabouts.video.speech_models import SpeechUnavailableError
from whenabouts.workplace.cached import cached_name

pytestmark = pytest.mark.usefixtures("unmeasured")
SPEECH = CueTrack((Cue(0.0, 2.0, "A frog sits in the grass."),), "speech:small", "en")


@pytest.fixture()
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A speech model that recognises one sentence in every file; records the calls."""
    paths: list[str] = []

    def transcribe(path: Path, model: str, **_: Any) -> CueTrack:
        paths.append(path.name)
        return SPEECH

    monkeypatch.setattr("whenabouts.video.speech_models.load_recogniser", lambda model: None)
    monkeypatch.setattr("whenabouts.indexing.why_unavailable", lambda model=None: None)
    monkeypatch.setattr("whenabouts.video.speech.transcribe", transcribe)
    return paths


def test_a_corpus_that_is_not_there_is_made_only_when_that_is_said(tmp_path: Path) -> None:
    place = tmp_path / "mistyped.corpus"
    with pytest.raises(NotACorpus, match=r"mistyped\.corpus.*create=True"):
        Corpus(place)
    assert not place.exists()
    assert Corpus(place, create=True).videos() == Corpus(place).videos() == []


@pytest.mark.slow
def test_everything_new_is_in_the_indices_when_a_run_ends(corpus_dir: Path, tmp_path: Path) -> None:
    corpus = Corpus(corpus_dir, create=True)
    for name in ("first", "second"):
        path = tmp_path / f"{name}.vtt"
        path.write_text(f"WEBVTT\n\n00:01.000 --> 00:03.000\nThe {name} violin is varnished.\n")
        corpus.add(path, processes=1)
        table = corpus.store._clips("subtitle")
        assert {index.columns[0] for index in table.list_indices()} == {"video_id", "context"}
        for index in table.list_indices():
            assert table.index_stats(index.name).num_unindexed_rows == 0, (name, index.name)


@pytest.mark.slow
def test_each_stream_has_the_date_of_its_own_indexing(tmp_path: Path) -> None:
    talk = tmp_path / "talk.vtt"
    talk.write_text("WEBVTT\n\n00:00.000 --> 00:04.000\n<v Ada>We light the engine.\n", encoding="utf-8")
    corpus = Corpus(tmp_path / "a.corpus", create=True)
    corpus.add(talk, processes=1)
    words = corpus.records()[0].stream_times["subtitle"]
    corpus.add(talk, speakers=True, processes=1)
    record = Corpus(corpus.location).records()[0]
    assert record.stream_times == {"subtitle": words, "speaker": record.indexed_at}
    assert words < record.indexed_at
    assert any("speaker (since 20" in line for line in corpus.show("talk").lines())
    assert corpus.show("talk").to_json()["streams_indexed_at"] == record.stream_times
    assert corpus.stats().to_json()["streams"]["subtitle"]["first_indexed_at"] == words
    # A file whose content has changed is indexed again in all streams.
    talk.write_text("WEBVTT\n\n00:00.000 --> 00:05.000\n<v Ada>It is lit.\n", encoding="utf-8")
    corpus.add(talk, processes=1)
    record = Corpus(corpus.location).records()[0]
    assert set(record.stream_times.values()) == {record.indexed_at}
    # A dropped stream leaves its date in the row, which must not count.
    assert corpus.stats().stream_times.keys() == {"subtitle", "speaker"}
    with corpus.writing():
        corpus.store.put_records([replace(record, streams={"subtitle": record.streams["subtitle"]})])
    assert corpus.stats().stream_times.keys() == {"subtitle"}


def in_files(folder: Path, *words: str) -> set[str]:
    """The words that any file in a folder contains, in any case."""
    contents = [path.read_bytes().lower() for path in folder.rglob("*") if path.is_file()]
    return {word for word in words if any(word.encode() in content for content in contents)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "dies_at",
    [
        "",
        "index.store.rewrite",
        "index.store.Store._index_columns",
        "index.store.Store._optimize_table",
        "index.transcripts.Transcripts.forget",
    ],
)
def test_a_removed_video_leaves_no_word_title_or_picture_on_disk(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str, capsys: Any
) -> None:
    talks, cache, table = tmp_path / "talks", tmp_path / "cache", Transcripts(str(corpus_dir))
    talks.mkdir()
    for name in [f"talk {number}" for number in range(20)] + ["friday"]:
        words = "Hildy prints the pages" if name == "friday" else f"boats leave harbour {name}"
        (talks / f"{name}.vtt").write_text(f"WEBVTT\n\n00:00.000 --> 00:04.000\n{words}\n")
    listed = tmp_path / "facts.jsonl"
    listed.write_text('{"path": "talks/friday.vtt", "title": "Zorbelquux"}\n')
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(talks, metadata_file=listed, processes=1)
    for record in corpus.records():
        said = "Wexlow speaks" if record.file_name == "friday.vtt" else "boats"
        table.keep(record.content_hash, "small", CueTrack((Cue(0.0, 2.0, said),), "speech:small"))
    monkeypatch.setattr("whenabouts.index.transcripts._MOST_FRAGMENTS", 1)
    table.tidy()
    friday = corpus.resolve("friday").video_id
    corpus.collections.add("film", [Moment(friday, 0.0, 2.0)], create=True)
    picture = cache / cached_name(friday)[:2] / cached_name(friday)
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"picture")
    assert main(["remove", "friday", "--corpus", str(corpus_dir), "--cache", str(tmp_path / "none")]) == 2
    assert in_files(corpus_dir, "hildy", "zorbelquux", "wexlow") == {"hildy", "zorbelquux", "wexlow"}
    if dies_at:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(f"whenabouts.{dies_at}", Mock(side_effect=KeyboardInterrupt))
            corpus.remove("friday")
    assert main(["remove", "friday", "--corpus", str(corpus_dir), "--cache", str(cache), "--table"]) == 0
    told = capsys.readouterr()
    assert "1 moment of collections still name what was removed" in told.out
    assert "holds no files of" not in told.err
    assert not in_files(corpus_dir, "hildy", "zorbelquux", "wexlow") and not picture.exists()
    assert corpus.search("boats leave harbour").moments and len(corpus.videos()) == 20
    assert table.find(corpus.resolve("talk 7").content_hash) is not None


@pytest.mark.slow
def test_recognised_speech_is_found_kept_and_goes_with_its_video(
    corpus_dir: Path, tmp_path: Path, samples: Path, heard: list[str]
) -> None:
    path = tmp_path / "frog.webm"
    shutil.copy(samples / "frog.webm", path)
    corpus = Corpus(corpus_dir, create=True)
    assert corpus.add(path, transcribe="small", processes=1).added == 1
    best = corpus.search("an animal in the grass", k=1).moments[0]
    assert "frog" in best.text
    os.utime(path)
    assert corpus.add(path, transcribe="small").unchanged == 1
    (removed,) = corpus.remove("frog")
    assert removed.path == str(path)
    assert corpus.videos() == []
    assert corpus.add(path, processes=1).removed_before == 1
    corpus.add(path, again=True, processes=1)
    assert corpus.resolve("frog").words == ""
    assert heard == ["frog.webm"]
    assert Transcripts(str(corpus_dir)).find(corpus.resolve("frog").content_hash) is None


def test_a_speech_model_that_is_not_there_stops_the_run_before_it_begins(
    corpus_dir: Path, tmp_path: Path, samples: Path
) -> None:
    corpus = Corpus(corpus_dir, create=True)
    with pytest.raises(SpeechUnavailableError):
        corpus.add(samples, transcribe=str(tmp_path))
    assert corpus.videos() == []


def test_a_vision_model_that_cannot_be_had_stops_the_run_before_it_begins_unless_it_may_go_on_without(
    corpus_dir: Path, samples: Path, tmp_path: Path
) -> None:
    corpus, model = Corpus(corpus_dir, create=True), str(tmp_path / "no model here")
    with pytest.raises(EncoderUnavailable, match="no model here"):
        corpus.add(samples / "friday.mp4", vision=model, processes=1)
    assert corpus.videos() == []
    summary = corpus.add(samples / "friday.mp4", vision=model, or_without=True, processes=1)
    assert summary.added == 1
    assert any("pictures" in note and "no model here" in note for note in summary.notes)
    assert set(corpus.resolve("friday").streams) == {"subtitle"}


@pytest.mark.slow
def test_an_encoder_that_moved_breaks_only_its_own_stream(corpus_dir: Path, samples: Path) -> None:
    Corpus(corpus_dir, create=True).add(samples / "friday.mp4", vision=Shades(), processes=1)
    corpus = Corpus(corpus_dir)  # which is not given the encoder
    summary = corpus.add(samples / "nasa_13013.mp4", processes=1)
    assert set(corpus.resolve("nasa_13013").streams) == {"subtitle"}
    assert any("pictures of these videos are not indexed" in note for note in summary.notes)
    result = corpus.search("the space telescope")
    assert result.moments and all(set(moment.evidence) == {"subtitle"} for moment in result.moments)
    assert any("vision was not searched" in note and "shades" in note for note in result.notes)
    alike = corpus.search(like="nasa_13013@0:02-0:06")
    assert any("vision was not searched" in note for note in alike.notes)
    nowhere = corpus.search("🦁", within="nasa_13013")
    assert nowhere.answer != "no_match"  # nobody has looked at the pictures
    with pytest.raises(EncoderUnavailable, match="stream vision was made with shades"):
        corpus.search("the space telescope", streams="vision")
    whole = Corpus(corpus_dir, encoders=[Shades()])
    assert not whole.search("the space telescope").notes
    whole.add(samples / "nasa_13013.mp4", processes=1)
    assert set(whole.resolve("nasa_13013").streams) == {"subtitle", "vision"}


def test_while_one_writes_another_is_told_who_it_is(corpus_dir: Path, samples: Path) -> None:
    corpus = Corpus(corpus_dir, create=True)
    with corpus.writing(), pytest.raises(CorpusBusy, match=str(os.getpid())):
        Corpus(corpus_dir).add(samples / "friday.mp4")
    with corpus.writing():
        plan = plan_index(corpus, [samples / "friday.mp4"])
        assert run_index(corpus, plan, processes=1).added == 1


@pytest.mark.slow
def test_one_length_of_picture_clips_a_corpus(corpus_dir: Path, samples: Path) -> None:
    corpus = Corpus(corpus_dir, encoders=[Shades()], create=True)
    corpus.add(samples / "friday.mp4", vision=Shades(), clip_seconds=2.0, processes=1)
    with pytest.raises(EncoderMismatch, match="every 2 s, not every 1 s"):
        corpus.add(samples / "frog.webm", vision=Shades(), clip_seconds=1.0)
    with pytest.raises(UsageError, match=r"0\.0"):
        corpus.add(samples / "frog.webm", vision=Shades(), clip_seconds=0.0)
    with pytest.raises(UsageError, match="no option 'hearing'"):
        corpus.add(samples / "frog.webm", hearing="x")
    corpus.add(samples / "frog.webm", processes=1)  # with the encoder and the length that it has
    assert "vision" in corpus.resolve("frog").streams


@pytest.mark.slow
def test_a_script_without_a_main_guard_can_index(corpus_dir: Path, samples: Path, tmp_path: Path) -> None:
    script = tmp_path / "three_lines.py"
    script.write_text(
        "import whenabouts\n"
        f"corpus = whenabouts.Corpus({str(corpus_dir)!r}, create=True)\n"
        f"print(corpus.add({str(samples / 'friday.mp4')!r}).added)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_a_number_of_processes_that_is_none_is_refused(corpus_dir: Path, samples: Path) -> None:
    with pytest.raises(UsageError, match="0 reader processes"):
        Corpus(corpus_dir, create=True).add(samples / "friday.mp4", processes=0)


def test_a_single_path_and_pattern_are_not_read_letter_by_letter(corpus_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    for name in ("talk", "draft"):
        text = f"WEBVTT\n\n00:01.000 --> 00:03.000\nThe {name} is old.\n"
        (tmp_path / "films" / f"{name}.vtt").write_text(text)
    corpus = Corpus(corpus_dir, create=True)
    for place in (str(tmp_path / "films"), tmp_path / "films"):
        plan = plan_index(corpus, place, exclude="draft*")
        assert [Path(work.task.path).name for work in plan.work] == ["talk.vtt"]
        assert find_moved(corpus, place).problems == ()


def test_a_relocated_video_can_be_served_from_its_new_folder(corpus_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "talk.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nThe talk is old.\n")
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(tmp_path / "old", processes=1)
    moved = (tmp_path / "old" / "talk.vtt").rename(tmp_path / "new" / "talk.vtt")
    assert corpus.relocate("talk", moved).path == str(moved)
    assert str(tmp_path / "new") in indexed_folders(corpus.store)


def test_a_tilde_means_the_home_folder(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "old").mkdir(parents=True)
    talk = tmp_path / "home" / "old" / "talk.vtt"
    talk.write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nThe talk is old.\n")
    corpus = Corpus(corpus_dir, create=True)
    corpus.add("~/old", processes=1)
    assert [video.path for video in corpus.videos()] == [str(talk)]
    talk = talk.rename(tmp_path / "home" / "talk.vtt")
    assert corpus.relocate("talk", "~/talk.vtt").path == str(talk)


@pytest.mark.parametrize("zone", ["Etc/GMT-14", "Etc/GMT+12"])  # it is another day in one of them
def test_today_is_a_day_in_utc_as_all_dates_are(
    corpus_dir: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    corpus = Corpus(corpus_dir, create=True)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        before, told, after = datetime.now(UTC).date(), corpus.today(), datetime.now(UTC).date()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert before <= told <= after


@pytest.mark.parametrize("is_named", [True, False])
def test_a_relocated_link_lets_the_folder_of_its_file_be_served(
    corpus_dir: Path, tmp_path: Path, is_named: bool
) -> None:
    for name in ("old", "links", "vault"):
        (tmp_path / name).mkdir()
    (tmp_path / "old" / "talk.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nThe talk is old.\n")
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(tmp_path / "old", processes=1)
    link = tmp_path / "links" / "talk.vtt"
    link.symlink_to((tmp_path / "old" / "talk.vtt").rename(tmp_path / "vault" / "talk.vtt"))
    if is_named:
        corpus.relocate("talk", link)
    else:
        assert len(find_moved(corpus, tmp_path / "links").pairs) == 1
    folders = indexed_folders(corpus.store)
    assert str(tmp_path / "vault") in folders and str(tmp_path / "links") not in folders


@pytest.mark.slow
def test_a_run_heals_what_two_writers_at_once_left(corpus_dir: Path, tmp_path: Path) -> None:
    corpus = Corpus(corpus_dir, create=True)
    for name in ("violin", "trumpet"):
        text = f"WEBVTT\n\n00:01.000 --> 00:03.000\nThe {name} is old.\n"
        (tmp_path / f"{name}.vtt").write_text(text)
    corpus.add(tmp_path, processes=1)
    store, before = corpus.store, [record.video_id for record in corpus.records()]
    first = store.videos()[0]
    for name, condition in (("clips_subtitle", f"video_id = '{first.video_id}'"), ("videos", None)):
        table = store._table(name)
        rows = table.search().where(condition).to_arrow() if condition else table.search().to_arrow()
        table.add(rows)
    corpus.refresh()
    assert store.doubled() == set(before)
    summary = Corpus(corpus_dir).add(tmp_path, processes=1)
    assert any("two indexers wrote 2 videos at once; done again" in note for note in summary.notes)
    corpus.refresh()
    assert store.doubled() == set()
    assert [record.video_id for record in corpus.records()] == before
    assert store.clip_counts("subtitle") == dict.fromkeys(before, 1)
    assert Corpus(corpus_dir).add(tmp_path, processes=1).unchanged == 2


@pytest.mark.slow
def test_a_run_is_heard_of_at_least_every_two_seconds_while_a_long_file_is_encoded(
    corpus_dir: Path, tmp_path: Path
) -> None:
    class Slow:
        name, fingerprint, dimension = "slow", "slow@1", 4

        def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
            until = time.process_time() + 2.6
            while time.process_time() < until:
                pass
            return np.tile(np.array([1, 0, 0, 0], np.float32), (len(texts), 1))

    (tmp_path / "long.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nThe violin is varnished.\n")
    heard: list[tuple[float, float]] = []
    Corpus(corpus_dir, create=True).add(
        tmp_path / "long.vtt",
        text=Slow(),
        processes=1,
        progress=lambda progress: heard.append((time.monotonic(), progress.fraction)),
    )
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(heard)]
    assert max(gaps) < 2.0
    assert any(0 < fraction < 1 for _, fraction in heard), "the file is heard of before it is done"


def test_an_encoder_that_fails_leaves_the_summary_of_the_run(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        name, fingerprint, dimension = "broken", "broken@1", 4

        def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
            raise RuntimeError("the device is gone")

    monkeypatch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: True)
    (tmp_path / "violin.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nThe violin is varnished.\n")
    summary = Corpus(corpus_dir, create=True).add(tmp_path / "violin.vtt", text=Broken(), processes=1)
    assert [why for _, why in summary.failed] == ["RuntimeError: the device is gone"]
    assert "unrelated questions were not measured again: RuntimeError: the device is gone" in " ".join(
        summary.notes
    )
