"""What every data set of the folder keeps, on its synthetic release."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from whenabouts_bench.datasets import dataset_names, declaration_named, open_dataset
from whenabouts_bench.datasets.declaration import COUNTS, MEASURES
from whenabouts_bench.formats import format_names

Release = Callable[[str], Path]

EVERY = pytest.mark.parametrize("name", dataset_names())

# Released evaluations of these compare raw times, so their readers do not clip.
TIMES_AS_THEY_STAND = {"tvr", "tvr-ranking"}


def test_the_data_sets_of_the_issue_are_all_known() -> None:
    assert set(dataset_names()) == {
        "activitynet-captions",
        "activitynet-two-annotators",
        "charades-sta",
        "didemo",
        "mvmr-activitynet",
        "mvmr-charades-sta",
        "mvmr-tacos",
        "qvhighlights",
        "tacos",
        "titled-transcripts",
        "tvr",
        "tvr-ranking",
    }


@EVERY
def test_a_data_set_declares_what_a_person_must_know(name: str) -> None:
    dataset = declaration_named(name)
    assert dataset.name == name
    for said in (dataset.title, dataset.citation, dataset.licence, dataset.how, *dataset.notes):
        assert said.strip() == said
        assert said
    assert dataset.tasks
    assert dataset.features
    assert all(feature.width > 0 and feature.names and feature.how for feature in dataset.features)
    assert any(feature.needed for feature in dataset.features)
    re.compile(dataset.mark)


@EVERY
def test_a_count_of_one_split_does_not_stand_on_the_cards_of_all(name: str) -> None:
    """The notes of a data set are shown with every split; notes of a split only with it."""
    dataset = declaration_named(name)
    for measure in ("videos", "queries"):
        counts = [
            {getattr(split.paper, measure), *(getattr(file.holds, measure) for file in split.files)} - {None}
            for split in dataset.splits
        ]
        of_some = set().union(*counts) - set.intersection(*counts)
        for note in dataset.notes:
            said = {int(text.replace(",", "")) for text in re.findall(rf"([\d,]*\d) {measure}", note)}
            assert not said & of_some, note


@EVERY
def test_no_promise_of_a_link_is_made(name: str) -> None:
    told = json.dumps(declaration_named(name).to_json())
    assert "http" not in told
    assert "www." not in told


@EVERY
def test_a_data_set_declares_its_files_and_numbers(name: str) -> None:
    dataset = declaration_named(name)
    split_names = [split.name for split in dataset.splits]
    assert len(set(split_names)) == len(split_names) > 0
    file_names = [file.name for split in dataset.splits for file in split.files]
    assert len(set(file_names)) == len(file_names)
    assert not [file_name for file_name in file_names if file_name.endswith(".gz")]
    for split in dataset.splits:
        assert split.files
        assert any(getattr(split.paper, measure) is not None for measure in MEASURES)
        for file in split.files:
            assert file.format in format_names("read_annotations")
            assert re.fullmatch(r"([0-9a-f]{16})?", file.fingerprint)
    for pair in dataset.shared_query_ids:
        assert set(pair) <= set(split_names)


@EVERY
def test_every_split_of_a_release_can_be_read(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    assert dataset.name == name
    assert dataset.splits == tuple(split.name for split in dataset.declaration.splits)
    for split in dataset.splits:
        annotations = dataset.annotations(split)
        assert annotations.videos
        assert annotations.queries
        assert annotations is dataset.annotations(split), "a split is read once"


@EVERY
def test_every_judgement_is_of_a_query_and_a_video_that_exist(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    for split in dataset.splits:
        annotations = dataset.annotations(split)
        video_ids = {video.id for video in annotations.videos}
        query_ids = {query.id for query in annotations.queries}
        assert len(video_ids) == len(annotations.videos)
        assert len(query_ids) == len(annotations.queries)
        if len(annotations.query):
            assert annotations.query.min() >= 0
            assert annotations.query.max() < len(annotations.queries)
            assert annotations.video.min() >= 0
            assert annotations.video.max() < len(annotations.videos)
        assert (np.diff(annotations.query) >= 0).all()
        for query_id, pool in annotations.pools.items():
            assert query_id in query_ids
            assert set(pool) <= video_ids


@EVERY
def test_moments_lie_inside_their_videos(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    for split in dataset.splits:
        annotations = dataset.annotations(split)
        assert (annotations.start >= 0).all()
        assert (annotations.start <= annotations.end).all()
        if name in TIMES_AS_THEY_STAND:
            continue
        durations = np.array([np.inf if v.duration is None else v.duration for v in annotations.videos])
        spanned = annotations.start < annotations.end
        assert (annotations.end <= durations[annotations.video])[spanned].all()


@EVERY
def test_splits_share_no_query_ids_but_where_they_say_so(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    ids = {split: {query.id for query in dataset.annotations(split).queries} for split in dataset.splits}
    shared = {pair for pair in combinations(dataset.splits, 2) if ids[pair[0]] & ids[pair[1]]}
    assert shared == set(dataset.declaration.shared_query_ids)


@EVERY
def test_texts_have_no_blanks_around_them(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    for split in dataset.splits:
        assert all(query.text == query.text.strip() != "" for query in dataset.annotations(split).queries)


@EVERY
def test_a_split_whose_answers_are_not_public_has_queries_only(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    for split in dataset.declaration.splits:
        if 0 in (split.paper.judgements, *(file.holds.judgements for file in split.files)):
            assert len(dataset.annotations(split.name).query) == 0


@EVERY
def test_a_card_can_be_shown_and_counts_what_was_read(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    for split in dataset.splits:
        annotations, card = dataset.annotations(split), dataset.card(split)
        told = json.loads(json.dumps(card.to_json(), allow_nan=False))
        assert told["dataset"] == name
        assert told["split"] == split
        assert told["numbers"]["videos"] == len(annotations.videos)
        assert told["numbers"]["queries"] == len(annotations.queries)
        assert told["numbers"]["judgements"] == len(annotations.query)
        assert told["first"]["query_id"] == annotations.queries[0].id
        assert told["last"]["query_id"] == annotations.queries[-1].id
        assert told["tenth"] is None or told["tenth"]["query_id"] == annotations.queries[9].id
        assert (told["tenth"] is None) == (len(annotations.queries) < 10)
        text = "\n".join(card.lines())
        assert dataset.declaration.title in text
        assert card.first is not None
        assert card.first.text in text


@EVERY
def test_counts_that_are_not_the_published_ones_are_said(name: str, release: Release) -> None:
    dataset = open_dataset(name, release(name))
    for split in dataset.declaration.splits:
        known = {n for n in COUNTS for f in (split.paper, *(g.holds for g in split.files)) if getattr(f, n)}
        assert bool(dataset.card(split.name).differing_counts()) == bool(known)
