"""Several corpora searched side by side answer as one corpus of all their files does."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts import Corpus, SearchResult
from whenabouts.calibration import together
from whenabouts.confidence.background import SENTENCES
from whenabouts.index.lookup import search_words
from whenabouts.index.records import ClipColumns, EncoderMismatch, StreamInfo, VideoRecord
from whenabouts.index.side_by_side import SideBySide
from whenabouts.index.store import Store
from whenabouts.types import UsageError

QUERIES = (
    "the fall of the Roman Empire",
    "a bus stops",
    "renting a flat in a foreign city",
    "zebra",
    "what was said about telescopes and the sea",
)


pytestmark = pytest.mark.slow


class Letters:
    """A quick encoder: how often each letter stands in a text, made a direction."""

    name, dimension = "letters", 26

    def __init__(self, fingerprint: str = "letters:1") -> None:
        self.fingerprint = fingerprint

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.array([[text.lower().count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts])
        unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return unit


def write_transcripts(folder: Path, numbers: range, common: str) -> Path:
    """Films that say sentences of ours; `common` is in most lines: words are not as rare in each part."""
    folder.mkdir()
    for number in numbers:
        chosen = random.Random(number)
        lines = ["WEBVTT", ""]
        for line in range(12):
            at = line * 15
            words = f"{chosen.choice(SENTENCES)} {common if chosen.random() < 0.8 else ''}"
            lines += [
                f"00:{at // 60:02}:{at % 60:02}.000 --> 00:{(at + 14) // 60:02}:{(at + 14) % 60:02}.000",
                words,
                "",
            ]
        (folder / f"film{number}.vtt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Corpus]:
    """One corpus of all files, and two of a part of them each, side by side."""
    place, encoder = tmp_path_factory.mktemp("beside"), Letters()
    parts = [
        write_transcripts(place / "old", range(8), "in the city"),
        write_transcripts(place / "new", range(8, 13), "a telescope at sea"),
    ]
    (place / "facts.jsonl").write_text(
        "".join(f'{{"path": "film{n}.vtt", "year": {1990 + n}}}\n' for n in range(13))
    )
    corpora = {"old.corpus": parts[:1], "new.corpus": parts[1:], "all.corpus": parts}
    for name, folders in corpora.items():
        made = Corpus(place / name, create=True, encoders=[encoder])
        made.add(*folders, text=encoder, metadata_file=place / "facts.jsonl", processes=1)
        made.store.optimize(force=True)
    whole = Corpus(place / "all.corpus", encoders=[encoder])
    return whole, Corpus([place / "old.corpus", place / "new.corpus"], encoders=[encoder])


def told(result: SearchResult) -> list[Any]:
    """All that an answer says, but for the numbers of `numbers`."""
    moments = [(own.video_id, own.moment.start, own.moment.end, own.text) for own in result.moments]
    return [result.answer, result.doubt, result.notes, moments, result.coverage, result.places]


def numbers(result: SearchResult) -> list[float]:
    """Scores and confidences, -1 where there is none."""
    return [
        number
        for own in result.moments
        for number in (own.score, -1.0 if own.confidence is None else own.confidence)
    ]


def assert_equal(beside: SearchResult, whole: SearchResult) -> None:
    assert told(beside) == told(whole)
    assert numbers(beside) == pytest.approx(numbers(whole), rel=1e-4, abs=2e-5)


@pytest.mark.parametrize("query", QUERIES)
def test_an_answer_is_that_of_one_corpus(both: tuple[Corpus, Corpus], query: str) -> None:
    whole, beside = both
    assert len(whole.search(query, 20).moments) > 5
    assert_equal(beside.search(query, 20), whole.search(query, 20))


@pytest.mark.parametrize(
    "options",
    [
        {"where": "year>=1995"},
        {"all": True},
        {"within": ("film2.vtt", "film11.vtt")},
        {"min_confidence": 0.2},
    ],
)
def test_narrowed_answers_and_lists_are_those_of_one_corpus(
    both: tuple[Corpus, Corpus], options: dict[str, Any]
) -> None:
    whole, beside = both
    for query in ("city", '"a telescope at sea"', "the fall of the Roman Empire"):
        assert_equal(beside.search(query, 20, **options), whole.search(query, 20, **options))


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("k", [3, 20, 500])
def test_words_score_as_they_do_in_one_table(both: tuple[Corpus, Corpus], query: str, k: int) -> None:
    one, several = (corpus.store.match_text("subtitle", query, k) for corpus in both)
    assert sorted(several.score) == pytest.approx(sorted(one.score), rel=1e-5)
    if k == 500:  # of fewer, which of equals are the last is nobody's promise
        scores = [
            {
                (name, int(at)): score
                for name, at, score in zip(own.video_ids, own.index, own.score, strict=True)
            }
            for own in (one, several)
        ]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_what_is_measured_is_that_of_one_corpus(both: tuple[Corpus, Corpus]) -> None:
    one, several = (corpus.searcher().calibration for corpus in both)
    clips = [own.streams["subtitle"].clips for own in (several, one)]
    assert clips[0] == clips[1]
    chances = [own.group("subtitle", "en").chance for own in (several, one)]
    assert chances[0] is not None and chances[1] is not None
    assert chances[0].scale == pytest.approx(chances[1].scale, rel=1e-3)
    scales = [own.group("subtitle", "en").scale for own in (several, one)]
    assert scales[0] is not None and scales[1] is not None
    assert scales[0].spread == pytest.approx(scales[1].spread, rel=1e-5)


def test_what_is_measured_together_is_kept_until_a_corpus_is_measured_again(
    both: tuple[Corpus, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    measured = Corpus(both[1].places, encoders=[Letters()]).searcher().calibration
    monkeypatch.setattr(together, "measure", lambda *_: pytest.fail("it is measured again"))
    again = Corpus(both[1].places, encoders=[Letters()])
    assert together.is_measured(again.store)
    assert again.searcher().calibration == measured
    [note] = (Path(os.environ["XDG_STATE_HOME"]) / "whenabouts" / "together").iterdir()
    written = note.read_bytes()
    for damaged in (b"[]", b'{"calibration:subtitle": 1}', b"{", b"\xff"):
        note.write_bytes(damaged)
        assert not together.is_measured(Corpus(both[1].places, encoders=[Letters()]).store)
    note.write_bytes(written)
    # In another order, and once a part was measured again, nothing is known of them together.
    assert not together.is_measured(Corpus(both[1].places[::-1], encoders=[Letters()]).store)
    monkeypatch.setattr(type(both[0].store), "facts", lambda store, prefix: {})
    assert not together.is_measured(Corpus(both[1].places, encoders=[Letters()]).store)


@pytest.mark.parametrize("query", [*QUERIES, "city", '"a telescope at sea"'])
def test_videos_that_are_in_two_corpora_count_once(both: tuple[Corpus, Corpus], query: str) -> None:
    whole = both[0]
    doubled = Corpus([*both[1].places, whole.location], encoders=[Letters()])
    assert_equal(doubled.search(query, 20), whole.search(query, 20))
    assert [video.id for video in doubled.videos()] == [video.id for video in whole.videos()]


def test_of_videos_in_two_corpora_numbers_and_clips_are_those_of_one(both: tuple[Corpus, Corpus]) -> None:
    whole = both[0]
    doubled = Corpus([*both[1].places, whole.location], encoders=[Letters()])
    one, several = (corpus.stats().to_json() for corpus in (whole, doubled))
    assert [several[key] for key in ("videos", "languages")] == [one[key] for key in ("videos", "languages")]
    assert several["streams"]["subtitle"]["clips"] == one["streams"]["subtitle"]["clips"]
    assert several["hours"] == pytest.approx(one["hours"])
    name = whole.videos()[0].id
    assert [line.text for line in doubled.words(doubled.resolve(name))] == [
        line.text for line in whole.words(whole.resolve(name))
    ]
    note = several["choices"]["doubles"]
    assert note.startswith("13 videos of all.corpus are") and "--corpus" in note


def test_parts_are_not_what_they_are_alone(both: tuple[Corpus, Corpus]) -> None:
    whole, beside = both
    alone = Corpus(beside.places[0], encoders=[Letters()])
    one, part = (corpus.store.match_text("subtitle", "city", 5).score for corpus in (whole, alone))
    assert part[0] != pytest.approx(one[0], rel=1e-3), "the test would pass with the counts of each table"


def test_a_stream_of_two_encoders_is_refused_with_both_names(tmp_path: Path) -> None:
    for number in (1, 2):
        encoder = Letters(f"letters:{number}")
        corpus = Corpus(tmp_path / f"{number}.corpus", create=True, encoders=[encoder])
        corpus.add(
            write_transcripts(tmp_path / str(number), range(number, number + 1), ""),
            text=encoder,
            processes=1,
        )
    with pytest.raises(
        EncoderMismatch, match=r"letters:1.* in .*1\.corpus and with .*letters:2.* in .*2\.corpus"
    ):
        Corpus([tmp_path / "1.corpus", tmp_path / "2.corpus"])


def test_what_cannot_be_done_side_by_side_says_so(both: tuple[Corpus, Corpus], tmp_path: Path) -> None:
    beside = both[1]
    with pytest.raises(UsageError, match="change each of them by itself"):
        beside.remove("film1.vtt")
    with pytest.raises(UsageError, match="a trained system searches one corpus"):
        beside.search("city", model=str(tmp_path))
    with pytest.raises(UsageError, match="each only once"):
        Corpus([beside.places[0], f"{beside.places[0]}/."])


@pytest.fixture(scope="module")
def bilingual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Corpus]:
    """One corpus of films in English and Portuguese, and two of a part of them each, side by side.

    The films of the second that are in the first as well are in the one corpus once.
    """
    place, encoder = tmp_path_factory.mktemp("bilingual"), Letters()
    parts = {
        "old": write_transcripts(place / "old", range(6), "in the city"),
        "new": write_transcripts(place / "new", range(4, 9), "a telescope at sea"),
        "pt": write_transcripts(place / "pt", range(20, 25), "a cidade e o telescope no mar"),
    }
    for number in (4, 5):
        (parts["new"] / f"film{number}.vtt").write_bytes((parts["old"] / f"film{number}.vtt").read_bytes())
    corpora = {"first.corpus": ["old"], "second.corpus": ["new", "pt"], "all.corpus": ["old", "new", "pt"]}
    for name, folders in corpora.items():
        made = Corpus(place / name, create=True, encoders=[encoder])
        for folder in folders:
            language = "pt" if folder == "pt" else "en"
            made.add(parts[folder], text=encoder, metadata={"language": language}, processes=1)
        made.store.optimize(force=True)
    whole = Corpus(place / "all.corpus", encoders=[encoder])
    return whole, Corpus([place / "first.corpus", place / "second.corpus"], encoders=[encoder])


@pytest.mark.parametrize("query", [*QUERIES, "cidade telescope", "the city"])
def test_words_count_by_language_as_they_do_in_one_corpus(
    bilingual: tuple[Corpus, Corpus], query: str
) -> None:
    scores = []
    for corpus in bilingual:
        hits = corpus.store.match_text("subtitle", query, 500)
        rows = zip(hits.video_ids, hits.index.tolist(), hits.score.tolist(), strict=True)
        scores.append({(name, at): score for name, at, score in rows})
    assert scores[1] == pytest.approx(scores[0], rel=1e-5)
    assert_equal(bilingual[1].search(query, 20), bilingual[0].search(query, 20))


def test_what_is_said_in_another_corpus_in_another_language_changes_no_score(
    bilingual: tuple[Corpus, Corpus],
) -> None:
    beside = bilingual[1]
    portuguese = [video.id for video in beside.videos() if video.metadata["language"] == "pt"]
    both, alone = (
        store.match_text("subtitle", "telescope", 500, video_ids=portuguese)
        for store in (beside.store, Corpus(beside.places[1], encoders=[Letters()]).store)
    )
    assert len(both) and both.video_ids == alone.video_ids
    assert both.score == pytest.approx(alone.score, rel=1e-5)


def spoken(name: str, language: str) -> VideoRecord:
    """The row of a recording in a language that was indexed by its letters."""
    return VideoRecord(
        name,
        f"/{name}.vtt",
        content_hash=name,
        streams={"subtitle": "letters"},
        words="file",
        metadata={"language": language},
    )


def test_a_corpus_that_lost_its_words_is_searched_with_others(tmp_path: Path) -> None:
    for name, languages in (("full", ("en", "de")), ("lost", ("en",))):
        store = Store.open(tmp_path / name, create=True)
        store.add_stream(StreamInfo("subtitle", "letters", "letters", 0))
        for language in languages:
            record = spoken(f"{name} {language}", language)
            said = ClipColumns(np.zeros(1), np.ones(1), ["a house"])
            store.put_video(record, {"subtitle": said})
    store.remove_videos(["lost en"])
    both = SideBySide([Store.open(tmp_path / "full"), Store.open(tmp_path / "lost")])
    assert sorted(both.match_text("subtitle", "house", 5).video_ids) == ["full de", "full en"]


def test_words_of_two_bytes_a_letter_count_as_the_index_counts_them(tmp_path: Path) -> None:
    """The index leaves out words from 40 bytes on, in Cyrillic from 20 letters on."""
    words = ["достопримечательность", "предпринимательство", "здравоохранение", "кошка", "дом", "на", "лес"]

    def store_of(name: str, numbers: range) -> Store:
        store = Store.open(tmp_path / name, create=True)
        store.add_stream(StreamInfo("subtitle", "letters", "letters", 0))
        for number in numbers:
            chosen = random.Random(number)
            texts = [" ".join(chosen.choices(words, k=chosen.randint(3, 12))) for _ in range(6)]
            record = spoken(f"{number:03}", "de" if number >= 30 else "ru")
            context = [search_words(text, "ru") for text in texts]
            said = ClipColumns(np.arange(6.0), np.arange(6.0) + 1, texts, context=context)
            store.put_video(record, {"subtitle": said})
        store.optimize(force=True)
        return store

    one = store_of("one", range(30))
    two = SideBySide([store_of("a", range(10)), store_of("b", range(10, 30))])
    mixed = store_of("mixed", range(40))
    for query in ("кошка на снегу", "достопримечательность дома", "лес"):
        expected = one.match_text("subtitle", query, 500)
        names = sorted(set(expected.video_ids))
        for store in (two, mixed):
            hits = store.match_text("subtitle", query, 500, video_ids=names)
            assert sorted(hits.score) == pytest.approx(sorted(expected.score), rel=1e-4)


def test_a_query_does_not_read_all_clips_to_count_those_of_videos_in_two_corpora(
    both: tuple[Corpus, Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = Corpus([*both[1].places, both[0].location], encoders=[Letters()]).store
    monkeypatch.setattr(Store, "clip_counts", Mock(side_effect=AssertionError("all clips were read")))
    assert len(doubled.match_text("subtitle", "city", 5))
