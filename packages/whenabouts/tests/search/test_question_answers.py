"""Questions that rules read, asked of small corpora: order, pairs, what is left out, where to look."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus, SearchResult, UsageError
from whenabouts.index.records import VideoRecord
from whenabouts.search.coverage import Coverage
from whenabouts.search.options import SearchOptions
from whenabouts.search.question_answers import answered
from whenabouts.search.questions import RULES, Question
from whenabouts.types import Moment, ScoredMoment

BELL = "The lighthouse bell rings three times."
SAXOPHONE = "A saxophone plays in the underground station."
PENGUINS = "Penguins slide down the icy slope on their bellies."
SAID = {
    "lecture-2": ("We talk about the weather in spring.", BELL, "Then lunch is served.", SAXOPHONE, BELL),
    "lecture-10": (SAXOPHONE, "Somebody asks about parking at the office.", BELL, "The printer is broken."),
    "london": ("New chairs arrive on Thursday.", PENGUINS, "The plan for next year is presented."),
}  # fmt: skip
RECORDED = {"lecture-2": "2026-11-18", "lecture-10": "2026-11-10", "london": "2026-11-26"}
GAP = 40.0
PAIR = ("Ada", "Ben", "Ada", "Ben")


def clock(seconds: float) -> str:
    return f"00:{int(seconds) // 60:02}:{seconds % 60:06.3f}"


def written(folder: Path) -> Path:
    """The transcripts, and a file of facts."""
    for name, lines in SAID.items():
        cues = [f"{clock(GAP * row)} --> {clock(GAP * row + 4)}\n{line}\n" for row, line in enumerate(lines)]
        (folder / f"{name}.vtt").write_text("WEBVTT\n\n" + "\n".join(cues))
    facts = folder / "facts.jsonl"
    facts.write_text("".join(f'{{"path": "{n}.vtt", "recorded": "{day}"}}\n' for n, day in RECORDED.items()))
    return facts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("questions")
    facts = written(folder)
    corpus = Corpus(folder / "corpus", create=True)
    corpus.add(folder, metadata_file=facts, processes=1)
    corpus.today = lambda: date(2026, 11, 27)
    return corpus


def listed(result: SearchResult) -> list[tuple[str, float]]:
    return [(result.name(scored).removesuffix(".vtt"), scored.start) for scored in result]


def labels(result: SearchResult) -> list[str]:
    return [rule.label for rule in result.understood]


BELLS = [("lecture-10", 2 * GAP), ("lecture-2", GAP), ("lecture-2", 4 * GAP)]


@pytest.mark.slow
@pytest.mark.parametrize("event", ["the lighthouse bell rings", '"bell rings"'])
def test_first_last_and_every_are_in_order_of_time(corpus: Corpus, event: str) -> None:
    first, last, every = (
        corpus.search(f"{order} time {event}") for order in ("the first", "the last", "every")
    )
    assert [result.answer for result in (first, last, every)] == ["match"] * 3
    assert listed(first) == BELLS[:2]  # one of each video, the video of the earliest day first
    assert listed(last) == [BELLS[2], BELLS[0]]
    assert listed(every) == BELLS
    assert all(result.word_of(scored) == "said here" for result in (first, last, every) for scored in result)
    assert (first.query, first.words) == (f"the first time {event}", event)
    assert first.is_in_order and not corpus.search(event).is_in_order


def test_the_first_in_one_video_is_its_earliest(corpus: Corpus) -> None:
    assert listed(corpus.search("the first time a saxophone plays in lecture-2")) == [("lecture-2", 3 * GAP)]
    assert listed(corpus.search("the last time the lighthouse bell rings", within="lecture-2")) == [BELLS[2]]


def test_k_and_the_least_confidence_are_applied_to_the_order(corpus: Corpus) -> None:
    assert listed(corpus.search("every time the lighthouse bell rings", k=1)) == BELLS[:1]
    least = corpus.search("every time the lighthouse bell rings", min_confidence=0.99)
    assert (least.answer, len(least)) == ("no_match", 0)
    assert listed(corpus.search("every time the lighthouse bell rings", best=1)) == BELLS  # all of them
    with pytest.raises(UsageError, match="k is 0"):
        corpus.search("the first time the lighthouse bell rings", k=0)


def test_a_weak_moment_is_never_the_first(corpus: Corpus) -> None:
    weak = corpus.search("the first time that birds glide on snow")
    assert weak.answer != "match"
    if weak.answer == "unsure":
        assert weak.doubt.startswith("no moment is surely one, so which is the first is not known; ")
    nothing = corpus.search('every time "zebra"')
    assert (nothing.answer, len(nothing), labels(nothing)) == ("no_match", 0, ["every time"])
    assert nothing.notes == ("nobody says “zebra”",)


def test_an_order_is_unsure_where_nothing_is_sure(corpus: Corpus) -> None:
    plain = corpus.search("the bell in the underground")
    assert plain.answer == "unsure"
    for order, doubt in (("the first", "which is the first"), ("every", "which are all of them")):
        result = corpus.search(f"{order} time that the bell in the underground")
        assert result.answer == "unsure"
        assert result.doubt == f"no moment is surely one, so {doubt} is not known; {plain.doubt}"
        assert listed(result) == listed(plain)  # the best first, as without an order


def test_a_moment_before_the_first_that_is_unsure_is_told_of(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {("lecture-10", 0.0): "maybe", ("lecture-2", 0.0): "maybe"}
    known = SearchResult.word_of

    def word_of(result: SearchResult, scored: object) -> str:
        name = (result.name(scored).removesuffix(".vtt"), scored.start)  # type: ignore[arg-type, attr-defined]
        return words.get(name) or known(result, scored)  # type: ignore[arg-type]

    monkeypatch.setattr(SearchResult, "word_of", word_of)
    first = corpus.search("the first time the lighthouse bell rings")
    assert listed(first) == BELLS[:2]
    assert first.notes == ("1 earlier moment may be one, but not surely",)
    assert corpus.search("every time the lighthouse bell rings").notes == ()


@pytest.mark.parametrize(
    ("question", "moment", "partner"),
    [
        ('"bell rings" before "saxophone"', ("lecture-2", GAP), 3 * GAP),
        ('"saxophone" after "bell rings"', ("lecture-2", 3 * GAP), GAP),
        ('after "saxophone" comes "bell rings"', ("lecture-10", 2 * GAP), 0.0),
        ('"bell rings" after "lunch"', ("lecture-2", 4 * GAP), 2 * GAP),
    ],
)
def test_two_events_must_be_in_order_in_one_video(
    corpus: Corpus, question: str, moment: tuple[str, float], partner: float
) -> None:
    result = corpus.search(question)
    assert result.answer == "match"
    at = listed(result).index(moment)
    there = result[at].partner
    assert there is not None and (there.video_id, there.start) == (result[at].video_id, partner)
    assert result[at].confidence == pytest.approx(0.98 * 0.98)
    for scored in result:
        assert scored.partner is not None and scored.partner.video_id == scored.video_id
        is_after = scored.start >= scored.partner.end
        assert is_after if result.understood[0].name == "after" else scored.end <= scored.partner.start


def test_two_events_that_are_not_in_that_order_are_no_match(corpus: Corpus) -> None:
    apart = corpus.search('"penguins" before "saxophone"')
    assert (apart.answer, len(apart)) == ("no_match", 0)
    assert apart.notes == ("nowhere does one begin before the other in the same video",)
    absent = corpus.search('"zebra" before "saxophone"')
    assert (absent.answer, len(absent)) == ("no_match", 0)
    assert 'nothing like "zebra" was found' in absent.notes
    assert 'nothing like "zebra" was found' in corpus.search('"saxophone" before "zebra"').notes


def test_two_events_without_quotation_are_scored_by_both(corpus: Corpus) -> None:
    result = corpus.search("a saxophone plays after the lighthouse bell rings")
    assert labels(result) == ["after: the lighthouse bell rings"]
    assert listed(result)[0] == ("lecture-2", 3 * GAP)
    event, other = corpus.search("a saxophone plays"), corpus.search("the lighthouse bell rings")
    confidences = [scored.confidence for scored in result if scored.confidence is not None]
    assert confidences == sorted(confidences, reverse=True)
    highest = [max(scored.confidence or 0 for scored in part) for part in (event, other)]
    assert confidences[0] <= highest[0] * highest[1] + 1e-9
    keys = [scored.sort_key for scored in result]
    assert keys == sorted(keys)


def test_an_order_of_pairs(corpus: Corpus) -> None:
    result = corpus.search('the last time "bell rings" after "lunch"')
    assert labels(result) == ["last", 'after: "lunch"']
    assert listed(result) == [("lecture-2", 4 * GAP)]


def test_moments_of_another_event_are_left_out(corpus: Corpus) -> None:
    plain = corpus.search("the lighthouse bell")
    kept = corpus.search('the lighthouse bell but not "saxophone"')
    assert listed(plain)[0] == listed(kept)[0]
    assert not any("saxophone" in scored.text for scored in kept)
    left_out = sum("saxophone" in scored.text for scored in plain)
    assert left_out and kept.notes == (f'{left_out} moments with "saxophone" left out',)
    none = corpus.search('"bell rings" but not "lighthouse"')
    assert (none.answer, len(none)) == ("no_match", 0)
    assert none.notes == ('3 moments with "lighthouse" left out',)


def test_the_answer_without_its_best_moment_is_that_of_the_next(corpus: Corpus) -> None:
    result = corpus.search('penguins slide down the slope but not "penguins"')
    assert result.moments and result.answer != "match" and result.interval is None
    assert all("Penguins" not in scored.text for scored in result)


def test_names_and_dates_say_where_to_look(corpus: Corpus) -> None:
    def videos(query: str) -> set[str]:
        return {name for name, _ in listed(corpus.search(query))}

    assert videos("a bell in lecture-2") == {"lecture-2"}
    assert videos("a bell in lecture 10") == {"lecture-10"}
    assert videos("a bell, but not in lecture-2") == {"lecture-10", "london"}
    assert videos("a bell in the video called London") == {"london"}
    assert videos("a bell in last week's lecture") == {"lecture-2"}
    assert videos("a bell in yesterday's call") == {"london"}
    assert videos('"bell rings" in the recordings of November 2026') == {"lecture-2", "lecture-10"}
    searched = corpus.search("a bell in last week's lecture").coverage
    assert searched is not None and searched.videos == 1


def test_scopes_and_filters_narrow_together(corpus: Corpus) -> None:
    assert not corpus.search("a bell in lecture-2", within="lecture-10").moments
    both = corpus.search("a bell in the lectures of November 2026", after="2026-11-15", before="2026-11-20")
    assert {name for name, _ in listed(both)} == {"lecture-2"}
    none = corpus.search("a bell in the lectures of last year")
    note = "no video of this corpus matches the conditions read from the question"
    assert (none.answer, none.notes) == ("no_match", (note,))
    assert labels(none) == ["recorded: last year (2025-01-01 to 2025-12-31)"]
    assert none.coverage is not None and none.coverage.videos == 0


def test_a_list_of_all_places_knows_scopes_alone(corpus: Corpus) -> None:
    result = corpus.search("bell in lecture-2", all=True)
    assert (labels(result), listed(result)) == (["in: lecture-2"], BELLS[1:])
    assert corpus.search('the first time "bell"', all=True).understood == ()


def test_rules_are_turned_off_by_name_and_all_at_once(corpus: Corpus) -> None:
    question = "the first time the lighthouse bell rings in lecture-2"
    assert labels(corpus.search(question)) == ["first", "in: lecture-2"]
    assert labels(corpus.search(question, literal="in")) == ["first"]
    plain = corpus.search(question, literal="all")
    assert (plain.understood, plain.words) == ((), "")
    assert plain == corpus.search(question, literal=RULES)
    with pytest.raises(UsageError, match="literal is 'second'; name rules: first, last, every"):
        corpus.search(question, literal="second")


def test_a_plain_sentence_is_searched_as_ever(corpus: Corpus) -> None:
    for query in ("the lighthouse bell", '"bell rings" three', "after the war", "the first amendment"):
        assert corpus.search(query) == corpus.search(query, literal="all")
    with pytest.raises(UsageError, match="give it as text"):
        corpus.search(5)  # type: ignore[arg-type]


def test_a_run_of_many_queries_is_read_by_no_rule(corpus: Corpus) -> None:
    formats = pytest.importorskip("whenabouts_bench.formats.queries")
    file = Path(corpus.places[0]).parent / "queries.txt"
    file.write_text("the first time the lighthouse bell rings in lecture-2\n")
    seen: list[SearchResult] = []
    run = corpus.answers(formats.read_queries(file), show=seen.append)
    assert len(list(run.blocks())) == 1 and seen[0].understood == ()


def test_json_says_what_was_understood(corpus: Corpus) -> None:
    document = corpus.search('"saxophone" after "bell rings"').to_json()
    assert document["understood"] == [{"name": "after", "label": 'after: "bell rings"'}]
    assert document["moments"][0]["partner"] == {"start": GAP, "end": GAP + 4}
    plain = corpus.search("saxophone").to_json()
    assert plain["understood"] == [] and "partner" not in plain["moments"][0]


@pytest.mark.slow
def test_without_a_calibration_no_order_is_claimed(tmp_path: Path) -> None:
    facts = written(tmp_path)
    with uncalibrated():
        Corpus(tmp_path / "corpus", create=True).add(tmp_path, metadata_file=facts, processes=1)
    corpus = Corpus(tmp_path / "corpus")
    result = corpus.search("the first time the lighthouse bell rings")
    assert result.answer == "unsure" and result.doubt.startswith("no moment is surely one")
    for query in ("the first time the lighthouse bell rings", '"lighthouse bell" rings'):
        nothing = corpus.search(query, min_confidence=0.5)
        assert nothing.answer == "no_match" and not nothing.moments
        assert nothing.notes[-1].endswith("search without a minimum confidence")


def test_a_named_video_is_searched_under_the_other_conditions(tmp_path: Path) -> None:
    for name in ("talk-1", "talk-2"):
        cues = [
            f"{clock(GAP * row)} --> {clock(GAP * row + 9)}\n{who}: {BELL}\n" for row, who in enumerate(PAIR)
        ]
        (tmp_path / f"{name}.vtt").write_text("WEBVTT\n\n" + "\n".join(cues))
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        corpus.add(tmp_path, speakers=True, processes=1)
    result = corpus.search("the lighthouse bell rings in talk-1", where="speaker=Ben")
    assert labels(result) == ["in: talk-1"]
    assert {name for name, _ in listed(result)} == {"talk-1"}
    assert min(start for _, start in listed(result)) == GAP
    unknown = corpus.search("the lighthouse bell rings in talk-1", where="camera=drone")
    assert not unknown.moments and "no video has a field 'camera'" in unknown.notes[0]


def test_two_events_of_which_a_trained_system_thinks_one_impossible_are_still_paired() -> None:
    def ask(text: str, options: SearchOptions, videos: object) -> SearchResult:
        start = 10.0 * (text == "bell")
        return SearchResult(text, "match", (ScoredMoment(Moment("film", start, start + 2), 1.0, start / 10),))

    question = Question("bell", relation="after", other="lunch")
    (pair,) = answered(question, SearchOptions(), None, ask)
    assert (pair.confidence, pair.partner) == (0.0, Moment("film", 0.0, 2.0))
    assert math.isfinite(pair.score)


@pytest.mark.parametrize(
    ("text", "videos", "of_each", "is_noted"),
    [("bell", 20, 3, True), ("bell", 40, 1, True), ("bell", 20, 2, False), ('"bell"', 60, 1, False)],
)
def test_an_order_says_that_it_is_one_of_some_videos_unless_all_were_searched(
    text: str, videos: int, of_each: int, is_noted: bool
) -> None:
    places = [
        Moment(f"v{video}", 90.0 * row, 90.0 * row + 9) for video in range(videos) for row in range(of_each)
    ]
    result = SearchResult(
        text,
        "match",
        tuple(ScoredMoment(place, 1.0, 0.9) for place in places),
        {place.video_id: VideoRecord(place.video_id, "/film.mp4") for place in places},
        coverage=Coverage(60, {}, {}),
    )
    ordered = answered(Question(text, order="first"), SearchOptions(), None, lambda *given: result)
    assert [scored.video_id for scored in ordered] == [f"v{video}" for video in range(10)]
    assert ordered.notes == ((f"the order is that of the {videos} videos that fit best",) if is_noted else ())
