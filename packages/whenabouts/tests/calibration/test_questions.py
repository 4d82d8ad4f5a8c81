"""Questions with known answers: made of what is said, and read from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.calibration.questions import FEWEST_WORDS, MOST_WORDS, made_from, read_questions
from whenabouts.index.lookup import query_words
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.types import Moment, UsageError

LINE: dict[str, Any] = {"query": "a whale sings", "video": "sea.mp4", "start": 1, "end": 2.5}


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Four recordings, one of them in Chinese, without an encoder's scores being measured."""
    folder = tmp_path_factory.mktemp("questions")
    for name in ("one", "two", "three"):
        lines = [
            " ".join(f"{name}word{20 * line + number}" for number in range(20)) + "." for line in range(9)
        ]
        _write(folder / f"{name}.vtt", lines)
    _write(
        folder / "four.vtt",
        ["我们今天谈谈海里的鲸鱼为什么会唱歌这是一个很长的句子没有空格也没有标点符号" * 2] * 3,
    )
    _write(folder / "silent.vtt", ["Hm."])
    corpus = Corpus(folder / "spoken.corpus", create=True)
    with uncalibrated():
        corpus.add(folder, processes=1)
    return corpus


def _write(path: Path, lines: list[str]) -> None:
    cues = [f"00:{i:02d}:00.000 --> 00:{i:02d}:30.000\n{line}\n" for i, line in enumerate(lines)]
    path.write_text("WEBVTT\n\n" + "\n".join(cues), encoding="utf-8")


@pytest.mark.slow
def test_a_made_question_has_words_of_its_passage_in_another_order(spoken: Corpus) -> None:
    made = made_from(spoken.store, 30)
    assert len(made) >= 28
    for known in made:
        said = " ".join(
            line.text
            for line in spoken.show(f"{known.answer.video_id}@{known.answer.start}-{known.answer.end}").words
        ).lower()
        words = known.text.split()
        assert FEWEST_WORDS <= len(words) <= MOST_WORDS
        assert all(word in said for word in words)
        assert known.text not in said
        assert len(known.text) < 0.7 * len(said)


def test_made_questions_come_from_all_videos_and_are_the_same_each_time(spoken: Corpus) -> None:
    made = made_from(spoken.store, 4)
    assert len({known.answer.video_id for known in made}) == 4
    assert made == made_from(spoken.store, 4)
    assert made != made_from(spoken.store, 4, seed=1)
    assert made_from(spoken.store, 0) == []


def test_words_without_spaces_between_are_cut(spoken: Corpus) -> None:
    chinese = spoken.resolve("four.vtt").video_id
    made = [known for known in made_from(spoken.store, 30) if known.answer.video_id == chinese]
    assert made
    assert all(len(word) <= 4 for known in made for word in query_words(known.text)[0])


def test_words_with_spaces_between_are_not_cut_however_long(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "long.corpus", create=True)
    store.add_stream(StreamInfo("subtitle", "letters", "a", 0))
    words = [f"überwachungsanlage{letter}" for letter in "abcdefghijkl"]
    video = VideoRecord("film", "/film.mp4", streams={"subtitle": "a"}, words="subtitles")
    store.put_video(video, {"subtitle": ClipColumns(np.zeros(1), np.ones(1), [" ".join(words)])})
    (made,) = made_from(store, 1)
    assert set(made.text.split()) <= set(words)


@pytest.mark.parametrize("query", ["a whale\u2028sings", "a whale\x85sings"])
def test_a_file_with_a_byte_order_mark_and_rare_line_ends_in_a_query_is_read(
    tmp_path: Path, query: str
) -> None:
    path = tmp_path / "known.jsonl"
    lines = [json.dumps({**LINE, "query": text}, ensure_ascii=False) for text in (query, "wal")]
    path.write_text("\r\n".join(lines), encoding="utf-8-sig", newline="")
    read, _ = read_questions(path, lambda name: VideoRecord("id", name, duration=2.5))
    assert [known.text for known in read] == [" ".join(query.split()), "wal"]


def test_questions_are_read_from_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "known.jsonl"
    path.write_text(json.dumps(LINE) + "\n\n" + json.dumps({**LINE, "query": "wal"}) + "\n", encoding="utf-8")
    read, notes = read_questions(path, lambda name: VideoRecord(f"id of {name}", name, duration=2.5))
    assert notes == []
    assert [known.text for known in read] == ["a whale sings", "wal"]
    assert read[0].answer == Moment("id of sea.mp4", 1.0, 2.5)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no questions"),
        (b"\n \n", "holds no questions"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"{\n", "line 1: not JSON"),
        (b"[1]\n", "line 1: '[1]' is not an object"),
        (b'{"query": "q"}\n', "lacks video, start, end"),
        (json.dumps({**LINE, "query": " "}).encode(), "query is ' '"),
        (json.dumps({**LINE, "video": 3}).encode(), "video is 3"),
        (json.dumps({**LINE, "start": "0:01"}).encode(), "'0:01'"),
        (json.dumps({**LINE, "end": True}).encode(), "True"),
        (json.dumps({**LINE, "end": 0.5}).encode(), "line 1: id: 1.0-0.5 is empty, reversed"),
        (json.dumps({**LINE, "end": float("nan")}).encode(), "finite"),
        (
            json.dumps({**LINE, "start": 10, "end": 10.5}).encode(),
            "holds no questions (1 question left out: behind the end of the video (line 1))",
        ),
        (json.dumps(LINE).encode() + b"\nnonsense", "line 2"),
    ],
)
def test_a_bad_file_is_told_with_its_line_and_value(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "known.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError) as told:
        read_questions(path, lambda name: VideoRecord("id", name, duration=10.0))
    assert said in str(told.value)
    assert str(path) in str(told.value)


def test_times_may_be_rounded_up_and_any_go_where_the_duration_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "known.jsonl"
    path.write_text(json.dumps({**LINE, "end": 11}), encoding="utf-8")
    (question,), notes = read_questions(path, lambda name: VideoRecord("id", name, duration=10.02))
    assert (question.answer, notes) == (Moment("id", 1.0, 10.02), [])
    path.write_text(json.dumps({**LINE, "end": 99}), encoding="utf-8")
    assert read_questions(path, lambda name: VideoRecord("id", name))[0][0].answer.end == 99.0


def test_what_ends_behind_the_last_caption_is_cut_off_and_counted_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "known.jsonl"
    lines = [LINE, {**LINE, "end": 90}, {**LINE, "start": 10.0, "end": 12}, {**LINE, "end": 20}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    questions, notes = read_questions(path, lambda name: VideoRecord("id", name, duration=10.0))
    assert [question.answer.end for question in questions] == [2.5, 10.0]
    assert notes == [
        "2 questions cut off at the end of the video (line 2, 4)",
        "1 question left out: behind the end of the video (line 3)",
        "1 question left out: asked before (line 4)",
    ]


def test_a_file_that_is_not_there_and_a_video_that_is_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.jsonl cannot be read"):
        read_questions(tmp_path / "known.jsonl", lambda name: VideoRecord(name, name))

    def unknown(name: str) -> VideoRecord:
        raise UsageError(f"no video {name!r}")

    path = tmp_path / "known.jsonl"
    path.write_text(json.dumps(LINE), encoding="utf-8")
    with pytest.raises(UsageError, match=r"line 1: no video 'sea\.mp4'"):
        read_questions(path, unknown)


def _stretches(place: Path, passages: list[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """The times of the questions made from one video's passages."""
    store = Store.open(place / "stretches.corpus", create=True)
    store.add_stream(StreamInfo("subtitle", "letters", "a", 0))
    start, end, text = zip(*passages, strict=True)
    video = VideoRecord("film", "/film.mp4", streams={"subtitle": "a"}, words="subtitles")
    store.put_video(video, {"subtitle": ClipColumns(np.array(start), np.array(end), text)})
    made = made_from(store, 100)
    assert all(known.answer.video_id == "film" for known in made)
    return sorted((known.answer.start, known.answer.end) for known in made)


def test_passages_are_joined_until_they_have_twelve_words(tmp_path: Path) -> None:
    words = [f"w{number:03d}" for number in range(100)]
    passages = [
        (3.0, 5.0, " ".join(words[:11])),
        (5.0, 7.0, " ".join(words[:11])),  # the same words again
        (6.0, 6.5, words[11]),
        (8.0, 9.0, " ".join(words[20:32])),
        (9.0, 12.0, " ".join(words[40:51])),  # left over
    ]
    assert _stretches(tmp_path, passages) == [(3.0, 7.0), (8.0, 9.0)]


def test_a_question_has_the_rarer_half_of_the_words_and_never_their_order(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "common.corpus", create=True)
    store.add_stream(StreamInfo("subtitle", "letters", "a", 0))
    common = [f"common{number}" for number in range(12)]
    entries = []
    for video in range(30):
        rare = [f"rare{video}x{number}" for number in range(12)]
        clips = ClipColumns(np.zeros(1), np.ones(1), [" ".join(common + rare)])
        record = VideoRecord(f"v{video:02d}", "/v.mp4", streams={"subtitle": "a"}, words="subtitles")
        entries.append((record, {"subtitle": clips}))
    store.put_videos(entries)
    made = [known.text.split() for known in made_from(store, 100)]
    assert len(made) == 30
    assert {len(words) for words in made} == set(range(FEWEST_WORDS, MOST_WORDS + 1))
    for words in made:
        assert all(word.startswith("rare") for word in words)
        assert words != sorted(words, key=lambda word: int(word.partition("x")[2]))


def test_a_question_has_the_words_that_a_search_of_it_has(tmp_path: Path) -> None:
    path = tmp_path / "known.jsonl"
    texts = ["a  whale\tsings", "a whale sings", "a \ud800 whale", "whale " * 300]
    path.write_text("".join(json.dumps({**LINE, "query": text}) + "\n" for text in texts), encoding="utf-8")
    questions, notes = read_questions(path, lambda name: VideoRecord("id", name))
    assert [known.text for known in questions] == [
        "a whale sings",
        "a \\ud800 whale",
        " ".join(["whale"] * 256),
    ]
    assert notes == ["1 question left out: asked before (line 2)"]
