"""What is quoted must be said as it is; all places where something is said are listed in order of time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts import Corpus, SearchOptions, SearchResult, UsageError
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord, natural_key
from whenabouts.index.store import Store
from whenabouts.search import candidates
from whenabouts.search.place_search import search_words
from whenabouts.search.places import TOGETHER_SECONDS
from whenabouts.search.search_result import percent_beside
from whenabouts.streams import stream

pytestmark = pytest.mark.usefixtures("unmeasured")

LINES = {
    "talk 2": ("The main bus lost power.", "We fix the oxygen tank.", "A bus, and the main."),
    "talk 10": ("Nothing much here.", "Now the main", "bus is back.", "It is powered by the MAIN-BUS."),
    "talk 11": ("Der Café-Besitzer schläft.", "我们谈谈闪电网络。", "The oxygen is low.", "No tank."),
}
GAP = 20.0


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("talks")
    for name, lines in LINES.items():
        times = [f"{clock(GAP * row)} --> {clock(GAP * row + 4)}\n{line}\n" for row, line in enumerate(lines)]
        (folder / f"{name}.vtt").write_text("WEBVTT\n\n" + "\n".join(times))
    corpus = Corpus(folder / "corpus", create=True)
    corpus.add(folder, processes=1)
    return corpus


def clock(seconds: float) -> str:
    return f"00:{int(seconds) // 60:02}:{seconds % 60:06.3f}"


def listed(result: SearchResult) -> list[tuple[str, float, float]]:
    return [(result.name(scored).removesuffix(".vtt"), scored.start, scored.end) for scored in result]


def test_a_phrase_is_found_wherever_it_is_said_and_nowhere_else(talks: Corpus) -> None:
    result = talks.search('"main bus"')
    assert result.answer == "match"
    assert {(name, start) for name, start, _ in listed(result)} == {
        ("talk 2", 0.0),
        ("talk 10", GAP),  # and on in the next line
        ("talk 10", 3 * GAP),
    }
    assert all(scored.confidence == 0.98 for scored in result)
    assert {(name, end) for name, _, end in listed(result)} >= {("talk 10", 2 * GAP + 4)}


def test_other_words_rank_the_places_of_a_phrase(talks: Corpus) -> None:
    for rest, first in (("oxygen tank", "talk 2"), ("is powered", "talk 10")):
        result = talks.search(f'"main bus" {rest}')
        assert result.name(result[0]).startswith(first)
        assert len(result) == 3
        assert result.answer != "no_match"
    assert len(talks.search('"main bus" power', k=2)) == 2


def test_each_quoted_phrase_must_be_said_there(talks: Corpus) -> None:
    assert listed(talks.search('"main bus" "oxygen tank"', all=True)) == [("talk 2", 0.0, GAP + 4)]
    apart = talks.search('"main bus" "闪电网络"', all=True)
    assert (apart.answer, len(apart)) == ("no_match", 0)
    assert apart.notes == ("each part of that is said, but nowhere all of it within a minute",)


def test_a_phrase_that_nobody_says_has_no_place_and_that_is_said(talks: Corpus) -> None:
    for options in (SearchOptions(min_confidence=0.1), SearchOptions(all=True)):
        result = talks.search('"main bus" "bus undervolt"', options=options)
        assert (result.answer, len(result), result.interval) == ("no_match", 0, None)
        assert result.notes == ("nobody says “bus undervolt”",)
        assert result.coverage is not None and result.coverage.streams == {"subtitle": 3}


@pytest.mark.parametrize(
    ("word", "confidence", "percent"),
    [("said here", 0.94, 94), ("said here", 0.3, None), ("maybe", 0.6, 60), ("maybe", 0.94, None)],
)
def test_no_percentage_contradicts_the_word_beside_it(
    word: str, confidence: float, percent: int | None
) -> None:
    assert percent_beside(word, confidence) == percent


def test_the_words_of_a_phrase_that_nobody_says_are_searched_and_are_no_match(talks: Corpus) -> None:
    quoted = talks.search('"main bus" "bus undervolt"')
    plain = talks.search("main bus bus undervolt")
    assert [scored.moment for scored in quoted] == [scored.moment for scored in plain]
    assert quoted.moments and quoted.query == '"main bus" "bus undervolt"'
    assert quoted.answer == "unsure" and quoted.doubt
    assert quoted.notes[:2] == (
        "nobody says “bus undervolt”",
        "these moments fit the words without the quotation marks",
    )


def test_scripts_accents_and_marks_without_a_partner(talks: Corpus) -> None:
    assert listed(talks.search("「闪电网络」")) == [("talk 11", GAP, GAP + 4)]
    assert listed(talks.search('„cafe besitzer“')) == [("talk 11", 0.0, 4.0)]  # fmt: skip
    plain = talks.search("main bus")
    assert talks.search('main bus"').moments[0].moment == plain.moments[0].moment


def test_all_lists_every_place_by_video_and_time(talks: Corpus) -> None:
    result = talks.search("the bus", all=True)
    names = [name for name, _, _ in listed(result)]
    assert names == sorted(names, key=natural_key)
    assert [start for name, start, _ in listed(result) if name == "talk 10"] == [GAP, 3 * GAP]
    assert result.places is not None and (result.places.total, result.places.skipped) == (len(result), 0)
    assert all(scored.confidence is None for scored in result) and len(result.answers) == len(result)
    assert talks.search("powers", all=True).answer == "match"  # of "power" and of "powered"
    assert {name for name, _, _ in listed(talks.search("power", all=True))} == {"talk 2", "talk 10"}


def test_all_words_must_be_said_within_a_minute(talks: Corpus) -> None:
    assert listed(talks.search("oxygen tank", all=True)) == [
        ("talk 2", GAP, GAP + 4),
        ("talk 11", 2 * GAP, 3 * GAP + 4),
    ]
    assert 3 * GAP + 4 > TOGETHER_SECONDS  # the first line of talk 11 to its last
    assert talks.search("schläft tank", all=True).answer == "no_match"
    assert talks.search("zebra tank", all=True).notes[0] == "nobody says zebra"


def test_a_list_goes_on_where_it_stopped(talks: Corpus) -> None:
    whole = talks.search("the", all=True)
    parts = [talks.search("the", all=True, k=2, skip=skip) for skip in range(0, len(whole), 2)]
    assert [scored for part in parts for scored in part] == list(whole)
    assert [rank for part in parts for rank, _ in part.numbered] == [rank for rank, _ in whole.numbered]
    note = f"{len(whole)} places in all; {len(whole) - 2} more follow (continue with skip 2)"
    assert parts[0].notes == (note,)
    assert parts[-1].notes == ()
    for behind in (len(whole), 9_999):
        after = talks.search("the", all=True, skip=behind)
        assert (after.answer, after.word, len(after)) == ("match", "said here", 0)
        assert after.notes == (f"{len(whole)} places in all, so there is nothing after the first {behind:,}",)
    assert talks.search("zebra", all=True, skip=1).answer == "no_match"


def test_filters_and_streams_narrow_the_places(talks: Corpus) -> None:
    assert {name for name, _, _ in listed(talks.search('"main bus"', within="talk 2"))} == {"talk 2"}
    assert len(talks.search("tank", all=True, within="talk 11", streams="subtitle")) == 1


def test_what_only_others_say_is_not_in_what_the_filters_leave(tmp_path: Path) -> None:
    lines = ("<v Anna>We discuss glaciers and rivers.", "<v Bert>The rivers are long.")
    times = [f"{clock(GAP * row)} --> {clock(GAP * row + 4)}\n{line}\n" for row, line in enumerate(lines)]
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n" + "\n".join(times))
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(tmp_path / "talk.vtt", speakers=True, processes=1)
    anna, bert = "speaker=Anna", "speaker=Bert"
    assert len(corpus.search("glaciers", all=True, where=anna)) == 1
    for query, name in (("glaciers", "glaciers"), ('"glaciers and"', "“glaciers and”")):
        result = corpus.search(query, all=True, where=bert)
        assert result.notes[0] == f"nobody says {name} in what the filters leave"
    assert corpus.search("rivers long", all=True, where=anna).notes[0].startswith("nobody says long in")


def test_a_place_has_only_words_of_what_the_filters_leave(tmp_path: Path) -> None:
    lines = ("<v Anna>We discuss glaciers.", "<v Bert>The rivers are long.", "<v Anna>They grow.")
    times = [f"{clock(5 * row)} --> {clock(5 * row + 4)}\n{line}\n" for row, line in enumerate(lines)]
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n" + "\n".join(times))
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(tmp_path / "talk.vtt", speakers=True, processes=1)
    assert not corpus.search("glaciers long", all=True, where="speaker=Anna").moments
    (both,) = corpus.search("glaciers grow", all=True, where="speaker=Anna")
    assert "glaciers" in both.text and "grow" in both.text and "rivers" not in both.text


@pytest.mark.parametrize("query", ['""', "!!!", "\U0001f600"])
def test_a_query_without_words_has_no_places(talks: Corpus, query: str) -> None:
    with pytest.raises(UsageError, match="has no words, so it has no places"):
        talks.search(query, all=True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"all": True, "min_confidence": 0.5}, "without a minimum confidence"),
        ({"all": True, "model": "runs/xml"}, "without a trained system"),
        ({"skip": 3}, "together with --all"),
        ({"all": True, "skip": -1}, "skip is -1"),
        ({"all": True, "k": 10_001}, "1 to 10000"),
        ({"k": 1_001}, "1 to 1000"),
    ],
)
def test_what_does_not_go_together_is_refused(
    talks: Corpus, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        talks.search("tank", **options)  # type: ignore[arg-type]


def test_other_queries_are_searched_as_ever(talks: Corpus) -> None:
    assert search_words(talks.searcher(), "main bus", SearchOptions(), None) is None


def test_pictures_alone_have_no_words(talks: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(stream("subtitle")), "has_words", False)
    for query, options in (('"main bus"', SearchOptions()), ("main bus", SearchOptions(all=True))):
        with pytest.raises(UsageError, match="look for words, and subtitle has none"):
            talks.search(query, options=options)


@pytest.mark.slow
def test_places_in_videos_that_were_not_scored_are_in_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "corpus", create=True)
    starts = {"subtitle": 100.0, "screen_text": 10.0}
    for name in starts:
        store.add_stream(StreamInfo(name, "words", "a", 0))
    for video in ("v1", "v10", "v2"):
        record = VideoRecord(video, f"/{video}.mp4", streams=dict.fromkeys(starts, "a"), words="subtitles")
        store.put_video(
            record,
            {
                name: ClipColumns(np.array([start]), np.array([start + 5]), ["The bell rings loudly."])
                for name, start in starts.items()
            },
        )
    monkeypatch.setattr(candidates, "CANDIDATE_VIDEOS", 1)
    result = Corpus(tmp_path / "corpus").search('"bell rings" loudly')
    assert [(scored.video_id, scored.start) for scored in result] == [
        (video, start) for video in ("v1", "v2", "v10") for start in (10.0, 100.0)
    ]
