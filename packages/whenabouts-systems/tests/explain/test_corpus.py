"""Explanations of a corpus's answers: the very moments of a search, along any of its videos."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.small_systems import Chooser, Letters, Pairs, inputs, small_system, small_xml, write_talk
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.types import Moment, UsageError
from whenabouts_systems.explain.answer import explain
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained

QUERY = "the penguin moves to the north"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("explained")
    (folder / "talks").mkdir()
    for number in range(4):
        write_talk(folder / "talks", number)
    made = Corpus(folder / "my.corpus", encoders=[Letters()], create=True)
    with uncalibrated():
        made.add(folder / "talks", text=Letters(), processes=1)
    return made


@pytest.mark.slow
def test_the_moments_are_those_of_the_search_and_borders_are_told_along_the_best(corpus: Corpus) -> None:
    trained = small_xml()
    found = corpus.search(QUERY, 4, model=trained).moments
    told = explain(corpus, QUERY, trained, k=4)
    (system,) = told.systems
    assert [(one.moment, one.score) for one in system.moments] == [(one.moment, one.score) for one in found]
    assert told.video_id == found[0].moment.video_id
    assert system.borders is not None
    assert system.borders.answered is not None
    assert system.borders.start.sum() == pytest.approx(1)
    assert [one.duration for one in system.moments] == [
        corpus.resolve(one.moment.video_id).duration for one in found
    ]


def test_borders_are_those_of_the_model_on_the_videos_clips(corpus: Corpus, tmp_path: Path) -> None:
    from whenabouts_systems.features import open_features

    trained, video = small_xml(), corpus.resolve("talk_002.vtt")
    corpus.export_features("subtitle", 2.0, tmp_path / "features")
    with open_features(tmp_path / "features") as source, torch.no_grad():
        query = trained.model.encode_queries(trained.inputs.queries(Letters().encode_tokens([QUERY])))
        clips = trained.inputs.clips([{"subtitle": source.get(video.video_id)}])
        scores = trained.model.score_spans(query, trained.model.encode_videos(clips))
    borders = explain(corpus, QUERY, trained, video="talk_002.vtt").systems[0].borders
    assert borders is not None
    # What the index keeps is in half precision.
    np.testing.assert_allclose(borders.start, scores.start[0].exp(), atol=5e-3)
    np.testing.assert_allclose(borders.end, scores.end[0].exp(), atol=5e-3)
    assert borders.high[-1] == pytest.approx(video.duration)


def test_a_known_moment_is_the_truth_and_its_video_is_told(corpus: Corpus) -> None:
    told = explain(corpus, QUERY, small_xml(), moment="talk_001.vtt@10-17")
    video = corpus.resolve("talk_001.vtt").video_id
    assert told.truth == (Moment(video, 10.0, 17.0),)
    assert told.video_id == video
    assert all(one.iou is not None for one in told.systems[0].moments)


@pytest.mark.slow
def test_a_localizer_of_a_retrievers_videos_is_searched_and_explained(corpus: Corpus) -> None:
    """SQuiDNet with a score of its own for each video, after XML."""
    settings = {"streams": {"subtitle": 16}, "query_width": 16, "hidden": 32, "heads": 4}
    torch.manual_seed(0)
    model = new_model("squidnet", config_of("squidnet", {**settings, "measure": "moment_video"})).eval()
    trained = Trained("squidnet", model, inputs(), Decoding(max_clips=6, top_videos=2))
    found = corpus.search(QUERY, 50, model=trained, retriever=small_xml()).moments
    other = replace(trained, system="pairs", model=Pairs())
    looked = corpus.search(QUERY, 50, model=other, retriever=small_xml()).moments
    listed = {one.moment.video_id for one in looked}
    assert len(listed) == 2
    assert {one.moment.video_id for one in found} == listed
    (system,) = explain(corpus, QUERY, trained, k=50, retriever=small_xml()).systems
    assert [(one.moment, one.score) for one in system.moments] == [(one.moment, one.score) for one in found]
    assert system.borders is not None
    assert system.borders.start.sum() == pytest.approx(1)


@pytest.mark.slow
def test_prem_is_told_beside_reloclnet(corpus: Corpus) -> None:
    """Figure 6 of paper 003: two stages of one system, and another system in the same video."""
    settings = {"streams": {"subtitle": 16}, "query_width": 16, "hidden": 32, "heads": 4}
    torch.manual_seed(0)
    model = new_model("prem_localizer", config_of("prem_localizer", settings)).eval()
    localizer = Trained("prem_localizer", model, inputs(), Decoding(max_clips=6, top_videos=2))
    retriever, other = small_system("prem_retriever"), small_system("reloclnet")
    told = explain(corpus, QUERY, localizer, retriever=retriever, other=other)
    prem, reloclnet = told.systems
    assert (prem.system, reloclnet.system) == ("prem_retriever + prem_localizer", "reloclnet")
    for system in told.systems:
        assert system.token_weights is not None and system.moments
        assert system.borders is not None and system.borders.start.sum() == pytest.approx(1)
    assert {one.moment for one in prem.moments} != {one.moment for one in reloclnet.moments}


def test_a_localizer_tells_borders_and_no_words(corpus: Corpus) -> None:
    system = explain(corpus, QUERY, Trained("pairs", Pairs(), inputs(), Decoding(max_clips=6))).systems[0]
    assert system.token_weights is None
    assert system.borders is not None


def test_a_system_that_only_chooses_videos_tells_neither(corpus: Corpus) -> None:
    system = explain(corpus, QUERY, Trained("chooser", Chooser(), inputs(), Decoding())).systems[0]
    assert system.token_weights is None
    assert system.borders is None
    assert system.moments


def test_a_video_that_is_not_there_is_refused(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="has no video"):
        explain(corpus, QUERY, small_xml(), video="none.mp4")


def test_an_empty_query_is_refused(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="empty"):
        explain(corpus, "  ", small_xml())
