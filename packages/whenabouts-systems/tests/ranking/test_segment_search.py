"""Searching a corpus by segments: the moments of a run by segments, found again when videos change."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.ranking.found_moments import spans_of
from tests.ranking.test_search import calibrate
from tests.small_pairs import save_pair, small_localizer, small_retriever
from tests.small_systems import Chooser, Letters, Pairs, inputs, small_xml, write_talk
from torch import Tensor, nn

from whenabouts import Corpus
from whenabouts.index.keys import Keys, known_systems, system_of
from whenabouts.types import UsageError, Video
from whenabouts_bench.formats.runs import Task
from whenabouts_systems.features import open_features
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.protocol import (
    ClipBatch,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    max_over_keys,
)
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking import Ranker
from whenabouts_systems.ranking.candidates import score_corpus
from whenabouts_systems.ranking.proposals import SegmentSettings
from whenabouts_systems.trained_search import indexed_corpus
from whenabouts_systems.trained_search import search as segment_search

QUERY = "the penguin moves to the north"
SILENT = Path(__file__).parents[4] / "samples" / "videos" / "flower.webm"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_xml().save_pretrained(tmp_path / "run")


@dataclass(frozen=True)
class Exported:
    """Features that a corpus exported, as `whenabouts run --segments` reads them."""

    source: Any
    inputs: Inputs
    videos: tuple[Video, ...]

    @cached_property
    def durations(self) -> NDArray[np.float64]:
        return np.array([video.duration for video in self.videos], np.float64)

    @cached_property
    def row_counts(self) -> NDArray[np.int64]:
        return np.array([len(self.source.get(video.id)) for video in self.videos], np.int64)

    def rows_of_video(self, row: int) -> Mapping[str, Any]:
        return {"subtitle": self.source.get(self.videos[row].id)}

    def sentences_of_video(self, row: int) -> tuple[()]:
        return ()


def run_by_segments(
    corpus: Corpus, out: Path, retriever: Trained, localizer: Trained, **settings: Any
) -> list[tuple[float, str, float, float]]:
    """The ten best moments as `run --segments` answers: (score, video, start, end)."""
    corpus.export_features("subtitle", localizer.inputs.clip_seconds, out)
    decoding = replace(localizer.decoding, nms=0.0, spans_per_query=10)
    tokens = Letters().encode_tokens([QUERY])
    with open_features(out) as source:
        first, second = (
            Exported(source, one.inputs, tuple(corpus.videos())) for one in (retriever, localizer)
        )
        ranker = Ranker.by_segments(
            (retriever, first), (localizer, second), SegmentSettings(4.0, **settings), decoding=decoding
        )
        tasks: tuple[Task, ...] = ("VCMR",)
        (lists,) = ranker.answers(["q"], lambda rows: localizer.inputs.queries(tokens), tasks)
    found = lists["VCMR"]
    names = [found.video_ids[code] for code in found.video]
    return list(zip(found.score.tolist(), names, found.start.tolist(), found.end.tolist(), strict=True))


def pairs_of_systems(name: str) -> tuple[Trained, Trained]:
    """What chooses the segments, and what finds the moments."""
    if name == "one system":
        return small_xml(), small_xml()
    if name == "prem":
        return small_retriever(), small_localizer()
    return small_xml(), Trained("pairs", Pairs(), inputs(), Decoding(max_clips=3))


# --- what is found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one system", "prem", "a localizer without keys"])
def test_the_moments_are_those_of_a_run_by_segments_on_the_exported_features(
    corpus: Corpus, tmp_path: Path, name: str
) -> None:
    chooser, localizer = pairs_of_systems(name)
    expected = run_by_segments(corpus, tmp_path / "features", chooser, localizer)
    found = corpus.search(
        QUERY, 10, model=localizer, retriever=None if name == "one system" else chooser, segments=4
    )
    assert spans_of(found) == [one[1:] for one in expected]
    assert [one.score for one in found.moments] == pytest.approx([one[0] for one in expected], abs=1e-3)
    assert len({one[1] for one in expected}) > 1


@pytest.mark.slow
def test_segments_whose_keys_are_nearest_are_scored_and_no_others(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of a system of one stream tell its best segments exactly."""
    trained = small_xml()
    expected = run_by_segments(corpus, tmp_path / "features", trained, trained, depth=25)
    monkeypatch.setattr(segment_search, "SCORED_SEGMENTS", 25)
    scored: list[int] = []

    def counted(model: Any, queries: Any, windows: Any) -> Tensor:
        scored.append(len(windows))
        return score_corpus(model, queries, windows)

    # The first search writes the keys, and is asked again in the state after.
    corpus.search(QUERY, 10, model=trained, segments=4)
    monkeypatch.setattr(segment_search, "score_corpus", counted)
    found = corpus.search(QUERY, 10, model=trained, segments=4)
    assert scored == [25]
    assert spans_of(found) == [one[1:] for one in expected]


@pytest.mark.slow
def test_keys_of_videos_that_are_gone_or_shorter_by_now_tell_nothing(
    corpus: Corpus, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_search, "SCORED_SEGMENTS", 5)
    expected = corpus.search(QUERY, 5, model=run, segments=4)
    last = max(record.video_id for record in corpus.records())

    nearest_units = indexed_corpus.nearest_units

    def odd(*query: Any, whole: bool) -> tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.float64]]:
        names, numbers, scores = nearest_units(*query, whole=whole)
        first = min(record.video_id for record in corpus.records())
        more = np.append(numbers, [0, 1000, 1000]), np.append(scores, [0.0, 0.0, 0.0])
        return np.append(names, ["gone", first, last]), *more

    def gone(*_: Any, whole: bool) -> tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.float64]]:
        return np.array(["gone"]), np.zeros(1, np.int64), np.zeros(1)

    monkeypatch.setattr(indexed_corpus, "nearest_units", odd)
    assert spans_of(corpus.search(QUERY, 5, model=run, segments=4)) == spans_of(expected)
    monkeypatch.setattr(indexed_corpus, "nearest_units", gone)
    assert corpus.search(QUERY, 5, model=run, segments=4).answer == "no_match"


@pytest.mark.slow
def test_only_videos_that_are_allowed_are_looked_into(
    corpus: Corpus, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = corpus.search(QUERY, 10, model=run, segments=4)
    name = every.moments[1].moment.video_id
    some = corpus.search(QUERY, 10, model=run, segments=4, within=name)
    assert {one.moment.video_id for one in some.moments} == {name}
    monkeypatch.setattr(segment_search, "SCORED_SEGMENTS", 5)
    assert {
        one.moment.video_id for one in corpus.search(QUERY, 10, model=run, segments=4, within=name).moments
    } == {name}


def test_a_system_that_finds_no_moments_answers_the_joined_segments(corpus: Corpus) -> None:
    trained = Trained("chooser", Chooser(), inputs(), Decoding())
    found = corpus.search(QUERY, 50, model=trained, segments=6)
    lengths = {record.video_id: record.duration for record in corpus.records()}
    assert found.moments
    for one in found.moments:
        assert one.moment.start % 6 == 0
        assert one.moment.end % 6 == 0 or one.moment.end == lengths[one.moment.video_id]
    assert [one.score for one in found.moments] == sorted([one.score for one in found.moments], reverse=True)


@pytest.mark.slow
def test_the_evidence_of_a_moment_lies_in_it_and_says_what_is_said_there(corpus: Corpus, run: Path) -> None:
    found = corpus.search(QUERY, 6, model=run, segments=4)
    assert any(one.text for one in found.moments)
    for one in found.moments:
        for piece in one.evidence.values():
            assert one.moment.start <= piece.start < piece.end <= one.moment.end
            assert piece.end - piece.start <= 2.0
            assert piece.text in one.text or not piece.text
            assert np.isfinite(piece.score)


@pytest.mark.slow
def test_a_staged_run_is_searched_by_segments(corpus: Corpus, tmp_path: Path) -> None:
    place = save_pair(tmp_path / "prem", small_retriever(), small_localizer())
    expected = corpus.search(QUERY, 5, model=small_localizer(), retriever=small_retriever(), segments=4)
    assert spans_of(corpus.search(QUERY, 5, model=place, segments=4)) == spans_of(expected)
    (info,) = known_systems(corpus.store)
    assert info.trained == small_retriever().fingerprint


# --- an hour


@dataclass(frozen=True)
class MatcherConfig:
    """It has no settings."""


class Matcher(nn.Module):
    """A system that finds words: keys are clips, a span scores its first and its last clip."""

    video_weight = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.config = MatcherConfig()
        self.unused = nn.Parameter(torch.zeros(1))

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        summed = nn.functional.normalize((queries.tokens * queries.mask[..., None])[:, 1:].sum(1), dim=-1)
        return QueryEncoding({"subtitle": summed})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        clips = videos.streams["subtitle"]
        keys = nn.functional.normalize(clips, dim=-1)
        mask = videos.mask & clips.any(-1)
        return VideoEncoding(videos.mask, {"subtitle": keys}, {"subtitle": mask}, {"clips": keys})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        return max_over_keys(queries, videos)

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        scores = 10 * torch.einsum("pd,ptd->pt", queries.search["subtitle"], videos.parts["clips"]) - 5
        return SpanScores(scores, scores, videos.mask)


def write_hour(folder: Path, name: str, at: int | None) -> None:
    """An hour of other talk, a sentence of four seconds in two minutes; what is sought is said at `at`.

    So far apart, for the vector of a passage counts what is said around it.
    """
    words = [f"word{number}" for number in range(300)]
    rng = np.random.default_rng(len(name))
    cues = []
    for begin in (*range(0, 3600, 120), 3596):
        text = " ".join(rng.choice(words, 6)) if begin != at else QUERY
        times = (f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}.000" for s in (begin, begin + 4))
        cues.append(f"{' --> '.join(times)}\n{text}.\n")
    (folder / f"{name}.vtt").write_text("WEBVTT\n\n" + "\n".join(cues))


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of two hours of talk; in the first something is said at 40:00."""
    place = tmp_path_factory.mktemp("hours")
    (place / "talks").mkdir()
    write_hour(place / "talks", "first", at=2400)
    write_hour(place / "talks", "second_", at=None)
    Corpus(place / "my.corpus", encoders=[Letters()], create=True).add(
        place / "talks", text=Letters(), processes=1
    )
    return place / "my.corpus"


def matcher(**changes: Any) -> Trained:
    return Trained("matcher", Matcher(), inputs(**changes), Decoding(min_clips=2, max_clips=4))


@pytest.mark.slow
@pytest.mark.parametrize("few", [400, 40])
def test_a_sentence_in_an_hour_is_found_at_its_seconds_and_without_segments_at_the_grain_of_36_seconds(
    hours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(segment_search, "SCORED_SEGMENTS", few)
    corpus = Corpus(shutil.copytree(hours, tmp_path / "my.corpus"), encoders=[Letters()])
    first = corpus.resolve("first.vtt").video_id
    by_segments = corpus.search(QUERY, 1, model=matcher(), segments=4)
    assert spans_of(by_segments) == [(first, 2400.0, 2404.0)]
    assert by_segments.moments[0].text.lower().startswith(QUERY)
    whole = corpus.search(QUERY, 1, model=matcher())
    assert whole.moments[0].moment.end - whole.moments[0].moment.start >= 35
    assert not [note for note in by_segments.notes if "--segments" in note]
    (note,) = [note for note in whole.notes if "--segments" in note]
    assert note == (
        "2 of 2 videos are long for matcher, which reads each as 100 clips of up to 36 s; "
        "--segments 4 searches them in clips of 2 s"
    )


@pytest.mark.slow
def test_of_a_system_that_cuts_videos_off_it_is_told_where(hours: Path, tmp_path: Path) -> None:
    corpus = Corpus(shutil.copytree(hours, tmp_path / "my.corpus"), encoders=[Letters()])
    whole = corpus.search(QUERY, 1, model=matcher(long_videos="cut"))
    (note,) = [note for note in whole.notes if "--segments" in note]
    assert note == ("2 of 2 videos are longer than the 200 s that matcher reads; --segments 4 reads all")
    first = corpus.resolve("first.vtt").video_id
    found = corpus.search(QUERY, 1, model=matcher(long_videos="cut"), segments=4)
    assert spans_of(found) == [(first, 2400.0, 2404.0)]


@pytest.mark.slow
def test_videos_that_fit_are_not_told_of(corpus: Corpus, run: Path) -> None:
    assert not corpus.search(QUERY, 1, model=run).notes


# --- what is kept


@pytest.mark.slow
def test_keys_of_segments_and_of_whole_videos_lie_apart(corpus: Corpus, run: Path) -> None:
    whole = spans_of(corpus.search(QUERY, 10, model=run))
    by_segments = spans_of(corpus.search(QUERY, 10, model=run, segments=4))
    corpus.search(QUERY, 10, model=run, segments=8)
    weights = small_xml().fingerprint
    kept = {info.segment_clips: info for info in known_systems(corpus.store)}
    assert {clips: info.system for clips, info in kept.items()} == {
        clips: system_of(weights, clips) for clips in (0, 2, 4)
    }
    assert {info.trained for info in kept.values()} == {weights}
    assert len({info.system for info in kept.values()}) == 3
    assert spans_of(corpus.search(QUERY, 10, model=run)) == whole
    again = Corpus(corpus.location, encoders=[Letters()])
    assert spans_of(again.search(QUERY, 10, model=run, segments=4)) == by_segments


@pytest.mark.slow
def test_segments_of_as_many_clips_are_the_same_segments(corpus: Corpus, run: Path) -> None:
    found = [spans_of(corpus.search(QUERY, 5, model=run, segments=seconds)) for seconds in (4, 3.5, 4.9)]
    assert found[0] == found[1] == found[2]
    assert [info.segment_clips for info in known_systems(corpus.store)] == [2]


def test_of_whole_videos_nothing_of_segments_is_written(corpus: Corpus, run: Path) -> None:
    corpus.encode(run)
    (fact,) = corpus.store.facts("system:").values()
    assert set(fact) == {"system", "name", "place", "streams", "distance", "ledger", "layout"}


@pytest.mark.slow
def test_what_an_earlier_version_kept_is_made_anew(corpus: Corpus, run: Path) -> None:
    expected = spans_of(corpus.search(QUERY, 5, model=run))
    store = corpus.store
    ((name, fact),) = store.facts("system:").items()
    store.put_fact(name, {key: fact[key] for key in fact if key != "layout"})
    again = Corpus(corpus.location, encoders=[Letters()])
    assert spans_of(again.search(QUERY, 5, model=run)) == expected
    assert all(info.is_current for info in known_systems(again.store))


def test_each_key_is_of_a_segment_and_names_its_seconds(corpus: Corpus, run: Path) -> None:
    assert corpus.encode(run, segments=4) == 9
    (info,) = known_systems(corpus.store)
    record = corpus.resolve("talk_003.vtt")
    rows = corpus.store.read_side(
        info.table("subtitle"), ["index", "start", "end"], [record.video_id]
    ).to_pylist()
    assert record.duration is not None
    clips = int(np.ceil(record.duration / 2))
    assert sorted(row["index"] for row in rows) == [clip // 2 for clip in range(clips)]
    for row in rows:
        assert (row["start"], row["end"]) == (
            4.0 * row["index"],
            min(4.0 * row["index"] + 4, record.duration),
        )
    kept = Keys(corpus.store, info).encodings([record.video_id])
    assert [(one.rows, one.encoding, one.packed) for one in kept] == [(clips, b"", b"")]


@pytest.mark.slow
def test_new_changed_and_removed_videos_are_followed(indexed: Path, folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(shutil.copytree(indexed / "my.corpus", tmp_path / "my.corpus"), encoders=[Letters()])
    run = small_xml().save_pretrained(tmp_path / "run")
    corpus.search(QUERY, model=run, segments=4)
    (info,) = known_systems(corpus.store)
    before = Keys(corpus.store, info).marks()
    write_talk(folder, 20)
    write_talk(folder, 4, again="again and again ")
    corpus.add(folder, processes=1)
    gone = corpus.resolve("talk_007.vtt").video_id
    corpus.remove("talk_007.vtt")
    found = corpus.search(QUERY, 100, model=run, segments=4)
    after = Keys(corpus.store, info).marks()
    assert set(after) - set(before) == {corpus.resolve("talk_020.vtt").video_id}
    assert set(before) - set(after) == {gone}
    changed = [name for name in before if name in after and before[name] != after[name]]
    assert changed == [corpus.resolve("talk_004.vtt").video_id]
    assert gone not in {one.moment.video_id for one in found.moments}
    fresh = small_xml().save_pretrained(tmp_path / "another place")
    assert spans_of(found) == spans_of(
        Corpus(corpus.location, encoders=[Letters()]).search(QUERY, 100, model=fresh, segments=4)
    )


@pytest.mark.slow
def test_what_was_said_before_a_video_changed_is_not_found_again(
    indexed: Path, folder: Path, tmp_path: Path
) -> None:
    """Rows that are remembered of a video are those of its present state."""
    corpus = Corpus(shutil.copytree(indexed / "my.corpus", tmp_path / "my.corpus"), encoders=[Letters()])
    trained = matcher()
    best = corpus.search("the violin 3 is painted red", 1, model=trained, segments=4).moments[0]
    assert "violin" in best.text
    path = folder / "talk_003.vtt"
    path.write_text(path.read_text().replace("violin", "harbour"))
    corpus.add(folder, processes=1)
    found = corpus.search("the violin 3 is painted red", 20, model=trained, segments=4)
    assert not any("violin" in one.text for one in found.moments)
    fresh = Corpus(corpus.location, encoders=[Letters()])
    assert spans_of(found) == spans_of(
        fresh.search("the violin 3 is painted red", 20, model=trained, segments=4)
    )
    assert found.moments[0].score < best.score


@pytest.mark.slow
def test_a_replaced_folder_drops_its_segments_too(corpus: Corpus, run: Path) -> None:
    corpus.search(QUERY, model=run)
    corpus.search(QUERY, model=run, segments=4)
    small_xml(seed=1).save_pretrained(run)
    corpus.search(QUERY, model=run, segments=4)
    (info,) = known_systems(corpus.store)
    assert (info.trained, info.segment_clips) == (small_xml(seed=1).fingerprint, 2)
    assert all(info.system in name for name in corpus.store.sides)


@pytest.mark.slow
def test_a_reader_beside_a_writer_says_what_is_not_searched(
    indexed: Path, folder: Path, tmp_path: Path
) -> None:
    corpus = Corpus(shutil.copytree(indexed / "my.corpus", tmp_path / "my.corpus"), encoders=[Letters()])
    run = small_xml().save_pretrained(tmp_path / "run")
    corpus.search(QUERY, model=run, segments=4)
    write_talk(folder, 20)
    corpus.add(folder, processes=1)
    new = corpus.resolve("talk_020.vtt").video_id
    reader = Corpus(corpus.location, encoders=[Letters()])
    with Corpus(corpus.location).writing():
        result = reader.search(QUERY, 1000, model=run, segments=4)
    assert any("1 video not yet encoded with run" in note for note in result.notes)
    assert result.moments
    assert new not in {one.moment.video_id for one in result.moments}
    assert new in {one.moment.video_id for one in reader.search(QUERY, 1000, model=run, segments=4).moments}


@pytest.mark.slow
def test_videos_without_words_are_told_of_and_not_found(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    shutil.copy(SILENT, tmp_path / "more" / "silent.webm")
    corpus.add(tmp_path / "more", text=Letters(), processes=1)
    found = corpus.search(QUERY, k=50, model=small_xml(), segments=4)
    assert "1 of 10 videos have no subtitle and cannot be found by xml" in found.notes
    assert corpus.resolve("silent.webm").video_id not in {one.moment.video_id for one in found.moments}


@pytest.mark.slow
def test_confidence_of_whole_videos_is_not_told_of_segments(corpus: Corpus, run: Path) -> None:
    calibrate(run)
    found = corpus.search(QUERY, 3, model=run, segments=4)
    assert {one.confidence for one in found.moments} == {None}
    assert found.answer == "unsure"
    assert "no confidence: run was calibrated on whole videos, not by segments" in found.notes
    assert all(one.confidence is not None for one in corpus.search(QUERY, 3, model=run).moments)


# --- what is refused


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (0.0, r"segments of 0\.0 seconds: give a number above 0"),
        (-4.0, r"segments of -4\.0 seconds: give a number above 0"),
        (float("nan"), "segments of nan seconds: give a number above 0"),
        (float("inf"), "segments of inf seconds: give a number above 0"),
        (1.5, r"segments of 1\.5 s are shorter than the clips of run \(2 s\); give 2 or more"),
        (300.0, "segments of 300 s are 150 clips of 2 s, but run takes at most 100; give 200 or less"),
    ],
)
def test_segments_of_a_length_that_does_not_fit_are_refused(
    corpus: Corpus, run: Path, seconds: float, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        corpus.search(QUERY, model=run, segments=seconds)
    assert not known_systems(corpus.store)


def test_systems_that_choose_no_segments_are_refused(corpus: Corpus) -> None:
    pairs = Trained("pairs", Pairs(), inputs(), Decoding(max_clips=3))
    with pytest.raises(UsageError, match=r"pairs \(pairs\) cannot choose videos or segments; name a"):
        corpus.search(QUERY, model=pairs, segments=4)
    with pytest.raises(UsageError, match="segments are for a trained system; also name that"):
        corpus.search(QUERY, segments=4)

    class Looks(Pairs):
        """It chooses videos by looking at query and video together."""

        def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
            products = torch.einsum("qd,vtd->qvt", queries.parts["mean"], videos.parts["clips"])
            return products.amax(-1)

    looks = Trained("looks", Looks(), inputs(), Decoding(max_clips=3))
    with pytest.raises(UsageError, match=r"looks \(looks\) has no keys to find segments by"):
        corpus.search(QUERY, model=looks, segments=4)
    assert not known_systems(corpus.store)


def test_more_segments_than_an_index_should_hold_are_refused(
    corpus: Corpus, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whenabouts_systems.trained_search.search_keys.MOST_SEGMENTS", 50)
    with pytest.raises(UsageError, match=r"segments of 4 s would be \d+ in the 0 hours of .* give \d+ s or"):
        corpus.search(QUERY, model=run, segments=4)
    assert not known_systems(corpus.store)


@pytest.mark.slow
def test_answers_are_written_as_those_of_other_searches(corpus: Corpus, run: Path) -> None:
    result = corpus.search(QUERY, 2, model=run, segments=4)
    told = json.loads(json.dumps(result.to_json()))
    assert [moment["rank"] for moment in told["moments"]] == [1, 2]
    for one, other in itertools.combinations(corpus.search(QUERY, 30, model=run, segments=4).moments, 2):
        assert one.moment.overlap(other.moment) == 0
