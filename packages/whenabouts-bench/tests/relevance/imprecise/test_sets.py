"""Sets of imprecise queries, and their statistics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from whenabouts.intake.files import FormatError
from whenabouts.types import Query, UsageError, Video
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.relevance.imprecise.making import Caption
from whenabouts_bench.relevance.imprecise.sets import (
    of_types,
    one_pool,
    query_sets,
    read_review,
    write_review,
)


def split(prefix: str, texts: list[str], *, video: str = "shared") -> Annotations:
    """Query i has the moment i to i + 2 s; even queries have their own videos."""
    count = np.arange(len(texts))
    return Annotations(
        prefix,
        (Video(video, 60.0), Video(f"{prefix}-own", 30.0)),
        tuple(Query(f"{prefix}{n}", text, {"type": "v" if n < 3 else "t"}) for n, text in enumerate(texts)),
        count,
        (count + 1) % 2,
        count.astype(np.float64),
        count.astype(np.float64) + 2,
        np.ones(len(texts)),
    )


WORDS = ["Ross sits.", "Joey sits.", "Ross eats.", "Joey drinks."]
CAPTIONS = {
    "Ross sits.": "A man sits.",
    "Joey sits.": "A man sits.",
    "Ross eats.": "A man eats.",
    "Joey drinks.": "A man drinks.",
}


def test_splits_share_one_pool_and_ids_that_clash_name_their_split() -> None:
    pool = one_pool([split("a", WORDS), split("b", WORDS)], ["train", "val"])
    assert [video.id for video in pool.videos] == ["shared", "a-own", "b-own"]
    assert [pool.videos[number].id for number in pool.video[[0, 1, 4, 5]]] == [
        "a-own",
        "shared",
        "b-own",
        "shared",
    ]
    assert len(pool.queries) == 8 and pool.query.tolist() == list(range(8))
    clash = one_pool([split("a", WORDS), split("a", WORDS)], ["train", "val"])
    assert (clash.queries[0].id, clash.queries[4].id) == ("train/a0", "val/a0")


def test_a_video_with_two_lengths_is_refused() -> None:
    first = split("a", WORDS)
    second = Annotations(
        **{**vars(split("b", WORDS)), "videos": (Video("shared", 90.0), Video("b-own", 30.0))}
    )
    with pytest.raises(UsageError, match="shared is"):
        one_pool([first, second], ["train", "val"])


@pytest.mark.parametrize("first", [0, 1])
def test_a_length_that_one_split_knows_is_kept(first: int) -> None:
    known = split("a", WORDS)
    parts = [known, replace(split("b", WORDS), videos=(Video("shared", None), Video("b-own", 30.0)))]
    pool = one_pool([parts[first], parts[1 - first]], ["train", "val"])
    assert {video.id: video.duration for video in pool.videos}["shared"] == 60.0


def test_types_are_chosen_and_unknown_ones_listed() -> None:
    assert [query.id for query in of_types(split("a", WORDS), ["t"]).queries] == ["a3"]
    with pytest.raises(UsageError, match="there are: t, v"):
        of_types(split("a", WORDS), ["vt"])


def test_identical_captions_are_one_drawn_query_with_the_moments_of_all() -> None:
    sets = query_sets(split("a", WORDS), CAPTIONS, 1, 2, seed=0)
    assert sets.groups == 3
    assert [query.metadata["group"] for query in sets.all.queries] == ["a0", "a0", "a2", "a3"]
    drawn = {query.text: part for part in (sets.validation, sets.test) for query in part.queries}
    assert set(drawn) == set(CAPTIONS.values())
    part = drawn["A man sits."]
    number = [query.text for query in part.queries].index("A man sits.")
    assert part.start[part.query == number].tolist() == [0.0, 1.0]
    assert part.videos == sets.all.videos
    again = query_sets(split("a", WORDS), CAPTIONS, 1, 2, seed=0)
    assert [query.id for query in again.test.queries] == [query.id for query in sets.test.queries]


def test_sets_are_written_and_read_again(tmp_path: Path) -> None:
    sets = query_sets(split("a", WORDS), CAPTIONS, 1, 0, seed=0)
    assert [path.name for path in sets.write(tmp_path)] == ["all", "val"]
    read = read_annotations(tmp_path / "all")
    assert [query.text for query in read.queries] == [CAPTIONS[text] for text in WORDS]
    assert read.queries[1].metadata["description"] == "Joey sits."


def test_more_queries_than_there_are_captions_are_refused() -> None:
    with pytest.raises(UsageError, match="there are 3 different captions"):
        query_sets(split("a", WORDS), CAPTIONS, 2, 2, seed=0)


def test_what_a_person_fills_in_is_taken_and_what_is_open_stays_open(tmp_path: Path) -> None:
    captions = {text: Caption(text, "", None, 3, "is empty") for text in WORDS[:2]}
    assert write_review(list(captions.values()), tmp_path / "review.jsonl") == 2
    lines = [json.loads(line) for line in (tmp_path / "review.jsonl").read_text().splitlines()]
    lines[0]["caption"] = " A man sits. "
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_review(tmp_path / "mine.jsonl", captions) == {"Ross sits.": "A man sits."}
    saved = "\ufeff" + (tmp_path / "mine.jsonl").read_text() + "\n"  # as an editor may save it
    (tmp_path / "mine.jsonl").write_text(saved)
    assert read_review(tmp_path / "mine.jsonl", captions) == {"Ross sits.": "A man sits."}


@pytest.mark.parametrize(
    "line", ["nothing", "[]", '{"description": "Ross sits."}', '{"description": "Else.", "caption": "x"}']
)
def test_a_review_of_another_set_or_form_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "mine.jsonl").write_text(line + "\n")
    with pytest.raises(FormatError, match="line 1"):
        read_review(tmp_path / "mine.jsonl", {"Ross sits.": Caption("Ross sits.", "", None, 3, "is empty")})


def test_numbers_of_a_set_are_those_of_the_tables() -> None:
    pytest.importorskip("HanTa", reason="verbs are counted by the tags of HanTa")
    pytest.importorskip("gender_guesser")
    from whenabouts_bench.relevance.imprecise.statistics import replacements, table

    numbers = table(split("a", WORDS))
    assert (numbers["queries"], numbers["moments"], numbers["videos"], numbers["vocabulary"]) == (4, 4, 2, 5)
    assert numbers["verbs"] == 3
    assert numbers["words of a query"] == {"min": 2, "mean": 2, "max": 2}
    assert numbers["seconds of a video"] == {"min": 30, "mean": 45, "max": 60}
    assert numbers["hours of videos"] == round(90 / 3600, 2)
    assert numbers["queries judged in one batch"] == 4
    words = replacements(CAPTIONS, [*WORDS, WORDS[0]])
    assert words["most frequent"] == {"man": 5} and words["words replaced"] == 5 and words["changed"] == 5


def test_agreement_counts_pairs_by_how_they_were_settled() -> None:
    from whenabouts_bench.relevance.imprecise.statistics import agreement

    raw = [[2, 3], [0, 4, 1, 1], [0, 4, 0, 4], []]
    assert agreement(raw, [3, 1, None, None]) == {
        "settled": 3,
        "agreed": 2,
        "agreed with more than two annotators": 1,
        "discarded": 1,
        "share agreed": 0.6667,
        "final grades": {1: 1, 3: 1},
    }
    assert agreement([], [])["share agreed"] is None
