"""Searching with two systems: one chooses the videos, the other finds the moments in them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.ranking.found_moments import distinct, spans_of
from tests.small_pairs import save_pair, small_localizer, small_retriever
from tests.small_systems import DEEDS, WIDTH, Letters, Pairs, inputs, small_xml

from whenabouts import Corpus
from whenabouts.confidence.probability import Thresholds
from whenabouts.index.keys import known_systems
from whenabouts.types import UsageError
from whenabouts_systems.explain.answer import explain
from whenabouts_systems.models.inputs import StreamInput
from whenabouts_systems.models.staged import fingerprint_of, write_stages
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.calibrators import Temperature
from whenabouts_systems.ranking.candidates import score_corpus
from whenabouts_systems.ranking.confidence import TrainedConfidence
from whenabouts_systems.trained_search import search as trained_search
from whenabouts_systems.trained_search.search import trained_on

QUERY = "the penguin moves to the north"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return save_pair(tmp_path / "prem", small_retriever(), small_localizer())


def one_by_one(
    corpus: Corpus, retriever: Trained, localizer: Trained, query: str, out: Path
) -> list[tuple[Any, ...]]:
    """All moments by plain loops, video by video: (score, video, start, end), before suppression."""
    from whenabouts_systems.features import open_features

    corpus.export_features("subtitle", 2.0, out)
    first, second, tokens = retriever.model, localizer.model, Letters().encode_tokens([query])
    scores, found = {}, []
    with open_features(out) as source, torch.no_grad():
        asked = first.encode_queries(retriever.inputs.queries(tokens))
        for record in corpus.records():
            clips = retriever.inputs.clips([{"subtitle": source.get(record.video_id)}])
            scores[record.video_id] = float(first.score_videos(asked, first.encode_videos(clips))[0, 0])
        best = sorted(scores, key=lambda name: -scores[name])[: localizer.decoding.top_videos]
        asked = second.encode_queries(localizer.inputs.queries(tokens))
        for name in best:
            clips = localizer.inputs.clips([{"subtitle": source.get(name)}])
            spans = second.score_spans(asked, second.encode_videos(clips))
            for a, b in itertools.product(range(clips.mask.shape[1]), repeat=2):
                if 0 <= b - a < 6:
                    total = scores[name] * second.video_weight + float(spans.start[0, a] + spans.end[0, b])
                    end = min(2.0 * (b + 1), corpus.resolve(name).duration or np.inf)
                    found.append((total, name, 2.0 * a, end))
    return sorted(found, key=lambda one: (-one[0], *one[1:]))


@pytest.mark.slow
def test_the_answer_is_that_of_plain_loops(corpus: Corpus, run: Path, tmp_path: Path) -> None:
    expected = distinct(one_by_one(corpus, small_retriever(), small_localizer(), QUERY, tmp_path / "f"), 5)
    found = corpus.search(QUERY, 5, model=run)
    np.testing.assert_allclose([one.score for one in found.moments], [one[0] for one in expected], atol=3e-2)
    assert spans_of(found) == [one[1:] for one in expected]
    assert len({one[1] for one in expected}) > 1


@pytest.mark.slow
def test_a_staged_run_its_two_systems_and_their_folders_answer_alike(corpus: Corpus, run: Path) -> None:
    expected = spans_of(corpus.search(QUERY, 8, model=run))
    assert expected == spans_of(corpus.search(QUERY, 8, model=run / "second", retriever=run / "first"))
    assert expected == spans_of(corpus.search(QUERY, 8, model=small_localizer(), retriever=small_retriever()))


@pytest.mark.slow
def test_a_named_retriever_wins_over_that_of_the_run(corpus: Corpus, run: Path, tmp_path: Path) -> None:
    other = save_pair(tmp_path / "other", small_retriever(seed=5), small_localizer(seed=5))
    expected = spans_of(corpus.search(QUERY, 8, model=small_localizer(), retriever=small_retriever(seed=5)))
    assert expected == spans_of(corpus.search(QUERY, 8, model=run, retriever=other))
    assert expected != spans_of(corpus.search(QUERY, 8, model=run))


@pytest.mark.slow
def test_any_retriever_feeds_any_localizer(corpus: Corpus) -> None:
    localizer = Trained("pairs", Pairs(), inputs(), small_localizer().decoding)
    found = corpus.search(QUERY, 1000, model=localizer, retriever=small_xml())
    chosen = {one.moment.video_id for one in found.moments}
    by_xml = trained_on(corpus, small_xml()).retrieved(QUERY, 3, None)
    assert chosen == set(by_xml.scores)
    assert len(chosen) == 3


@pytest.mark.slow
def test_a_localizer_that_chooses_videos_too_leaves_that_to_the_retriever(corpus: Corpus) -> None:
    localizer = small_xml(seed=3)
    alone = corpus.search(QUERY, 8, model=localizer)
    paired = corpus.search(QUERY, 8, model=localizer, retriever=small_retriever())
    assert spans_of(alone) != spans_of(paired)
    name = paired.moments[0].moment.video_id
    finder = trained_on(corpus, small_retriever())
    said = finder.retrieved(QUERY, 9, None).scores[name]
    alone_in = corpus.search(QUERY, 1, model=localizer, within=name).moments[0]
    own = trained_on(corpus, localizer).retrieved(QUERY, 9, None).scores[name]
    weight = float(localizer.model.video_weight)
    assert paired.moments[0].score == pytest.approx(alone_in.score + weight * (said - own), abs=0.05)


@pytest.mark.slow
def test_many_videos_are_narrowed_by_keys_to_the_same_answer(
    corpus: Corpus, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = spans_of(corpus.search(QUERY, 5, model=run))
    monkeypatch.setattr(trained_search, "RETRIEVED_VIDEOS", 4)
    scored: list[int] = []

    def counted(model: Any, queries: Any, videos: Any) -> torch.Tensor:
        scored.append(len(videos))
        return score_corpus(model, queries, videos)

    monkeypatch.setattr(trained_search, "score_corpus", counted)
    assert spans_of(corpus.search(QUERY, 5, model=run)) == everything
    assert scored == [4]


@pytest.mark.slow
def test_filters_hold_before_videos_are_chosen(corpus: Corpus, run: Path) -> None:
    best = corpus.search(QUERY, 1, model=run).moments[0].moment.video_id
    names = [f"talk_{number:03d}.vtt" for number in (2, 3, 5)]
    ids = {corpus.resolve(name).video_id for name in names} - {best}
    found = corpus.search(QUERY, 1000, within=sorted(ids), model=run)
    assert {one.moment.video_id for one in found.moments} == ids


@pytest.mark.slow
def test_evidence_is_told_by_the_retrievers_keys(corpus: Corpus, run: Path) -> None:
    found = corpus.search(QUERY, 1, model=run).moments[0]
    piece = found.evidence["subtitle"]
    retrieved = trained_on(corpus, small_retriever()).retrieved(QUERY, 9, None)
    assert retrieved.corpus is not None
    row = retrieved.corpus.ids.index(found.moment.video_id)
    keys = retrieved.corpus.blocks[0].keys["subtitle"][row]
    scores = (keys @ retrieved.query.search["subtitle"][0]).numpy()
    inside = range(int(found.moment.start // 2), int(np.ceil(found.moment.end / 2)))
    best = max(inside, key=lambda clip: scores[clip])
    assert piece.start == 2.0 * best
    assert piece.score == pytest.approx(scores[best], abs=1e-3)
    assert found.moment.start <= piece.start < piece.end <= found.moment.end


@pytest.mark.slow
def test_both_systems_encodings_are_stored_and_followed(corpus: Corpus, run: Path, tmp_path: Path) -> None:
    assert corpus.encode(run) == 9
    kept = {one.system: dict(one.streams) for one in known_systems(corpus.store)}
    assert set(kept) == {small_retriever().fingerprint, small_localizer().fingerprint}
    assert kept[small_retriever().fingerprint] and not kept[small_localizer().fingerprint]
    before = spans_of(corpus.search(QUERY, 5, model=run))
    small_localizer(seed=7).save_pretrained(run / "second")
    after = spans_of(corpus.search(QUERY, 5, model=run))
    assert after != before
    systems = {one.system for one in known_systems(corpus.store)}
    assert systems == {small_retriever().fingerprint, small_localizer(seed=7).fingerprint}
    write_stages(run, localizer="second")
    with pytest.raises(UsageError, match="name a retriever") as caught:
        corpus.search(QUERY, 5, model=run, retriever=small_localizer())
    assert "prem_localizer" in str(caught.value)


def test_a_retriever_finds_no_moments_for_another(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match=r"prem_retriever\) cannot find moments .* name a localizer"):
        corpus.search(QUERY, model=small_retriever(), retriever=small_xml())
    with pytest.raises(UsageError, match="a retriever chooses videos for a trained system"):
        corpus.search(QUERY, retriever=small_retriever())


@pytest.mark.parametrize("lacking", ["retriever", "localizer"])
def test_a_stage_that_reads_a_stream_which_the_corpus_lacks_is_refused(corpus: Corpus, lacking: str) -> None:
    pair = {"retriever": small_retriever(), "localizer": small_localizer()}
    told = {name: StreamInput(WIDTH, True, Letters.name) for name in ("subtitle", "vision")}
    pair[lacking] = replace(pair[lacking], inputs=inputs(streams=told))
    with pytest.raises(
        UsageError, match=rf"prem_{lacking} reads the streams subtitle, vision; .* lacks vision"
    ):
        corpus.search(QUERY, model=pair["localizer"], retriever=pair["retriever"])
    assert not known_systems(corpus.store)


def test_streams_that_no_corpus_can_have_are_to_be_called_otherwise(corpus: Corpus) -> None:
    named = replace(small_retriever(), inputs=inputs(streams={"sub": StreamInput(WIDTH, True, Letters.name)}))
    with pytest.raises(UsageError, match=r"lacks sub; .*streams must have the corpus's names: .* subtitle"):
        corpus.search(QUERY, model=small_localizer(), retriever=named)


@pytest.mark.slow
def test_words_are_told_by_the_retriever_and_borders_by_the_localizer(corpus: Corpus, run: Path) -> None:
    told = explain(corpus, QUERY, run, k=3)
    (system,) = told.systems
    alone = explain(corpus, QUERY, small_retriever(), video=told.video_id).systems[0]
    assert system.token_weights is not None and alone.token_weights is not None
    assert system.token_weights.words == alone.token_weights.words
    assert system.token_weights.weights == alone.token_weights.weights
    pair = explain(corpus, QUERY, small_localizer(), retriever=small_retriever(), video=told.video_id)
    assert system.borders is not None and pair.systems[0].borders is not None
    np.testing.assert_array_equal(system.borders.start, pair.systems[0].borders.start)
    assert (system.name, system.system) == ("prem", "prem_retriever + prem_localizer")
    found = corpus.search(QUERY, 3, model=run).moments
    assert [one.moment for one in system.moments] == [one.moment for one in found]


def calibration(fingerprint: str) -> TrainedConfidence:
    """A calibration whose unrelated sentences the corpus knows."""
    texts = tuple(f"a {deed} {number}" for number, deed in enumerate(DEEDS * 3))
    return TrainedConfidence(
        fingerprint,
        "pair",
        "margin",
        Temperature(0.0, 100.0),
        0.5,
        texts,
        Thresholds(0.8, 0.2),
        {"split": "x"},
    )


def test_a_localizer_calibrated_by_itself_is_not_sure_where_another_search_scores_videos(
    corpus: Corpus, tmp_path: Path
) -> None:
    alone = small_localizer().save_pretrained(tmp_path / "alone")
    calibration(small_localizer().fingerprint).save(alone)
    found = corpus.search(QUERY, 3, model=alone)
    assert found.moments and {one.confidence for one in found.moments} == {None}
    assert any("alone was calibrated alone, but here the untrained" in note for note in found.notes)


@pytest.mark.slow
def test_a_pair_has_a_calibration_of_its_own(corpus: Corpus, run: Path) -> None:
    pair = fingerprint_of(small_localizer().fingerprint, small_retriever().fingerprint)
    calibration(pair).save(run)
    found = corpus.search(QUERY, 3, model=run).moments
    assert all(one.confidence is not None and 0 < one.confidence < 1 for one in found)
    another = corpus.search(QUERY, 3, model=run, retriever=small_retriever(seed=5)).moments
    assert all(one.confidence is None for one in another)
    calibration(small_localizer().fingerprint).save(run)
    with pytest.raises(UsageError, match="calibration of another checkpoint"):
        corpus.search(QUERY, 3, model=run)
