"""Searching with a trained system by REST, and why it answered; only what is served may be named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.server.conftest import Client, error_of
from tests.small_pairs import save_pair, seeing_localizer, small_localizer, small_retriever
from tests.small_systems import Letters, Shades, small_xml, write_talk
from tests.small_systems import inputs as small_inputs
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus
from whenabouts.index.lock import CorpusBusy
from whenabouts.server.app import Application
from whenabouts.server.settings import Settings, named_models
from whenabouts.types import UsageError
from whenabouts_systems.explain.answer import explain
from whenabouts_systems.highlights import highlights_of
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.trained_search.opened import IndexedSystem

QUERY = "the penguin moves to the north"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four transcripts, indexed, and a trained system."""
    folder = tmp_path_factory.mktemp("explained")
    (folder / "talks").mkdir()
    for number in range(4):
        write_talk(folder / "talks", number)
    with uncalibrated():
        Corpus(folder / "c", encoders=[Letters()], create=True).add(
            folder / "talks", text=Letters(), processes=1
        )
    small_xml().save_pretrained(folder / "run")
    return folder


@pytest.fixture
def served(place: Path, tmp_path: Path) -> Iterator[Client]:
    corpus = Corpus(place / "c", create=False, encoders=[Letters()])
    application = Application(corpus, Settings(cache=tmp_path / "cache", models={"run": str(place / "run")}))
    yield Client(application, {})
    application.service.close()


def moment(served: Client, rank: int = 1) -> str:
    found = served.json("/api/search", query=QUERY, model="run")["data"][rank - 1]
    return f"{found['video_id']}@{found['start']:.3f}-{found['end']:.3f}"


@pytest.mark.slow
def test_a_search_with_a_model_is_that_of_the_corpus(served: Client, place: Path) -> None:
    body = served.json("/api/search", query=QUERY, model="run", k=6)
    corpus = Corpus(place / "c", create=False, encoders=[Letters()])
    expected = corpus.search(QUERY, 6, model=place / "run")
    assert [(one["video_id"], one["start"], one["score"]) for one in body["data"]] == [
        (one.moment.video_id, round(one.moment.start, 3), one.score) for one in expected.moments
    ]
    assert body["answer"] == "unsure"
    assert body["data"] != served.json("/api/search", query=QUERY, k=6)["data"]


@pytest.mark.slow
def test_segments_are_searched_where_the_index_has_them_and_none_are_made(
    served: Client, place: Path
) -> None:
    question = {"query": QUERY, "model": "run", "segments": 4}
    corpus = Corpus(place / "c", create=False, encoders=[Letters()])
    assert not corpus.has_segments(place / "run", 4)
    assert served.error("/api/search", **question) == (409, "no_segments", "segments")
    assert not corpus.has_segments(place / "run", 4)
    corpus.encode(place / "run", segments=4)
    assert corpus.has_segments(place / "run", 4)
    found = served.json("/api/search", **question)["data"]
    expected = corpus.search(QUERY, model=place / "run", segments=4)
    assert [(one["video_id"], one["start"], one["score"]) for one in found] == [
        (one.moment.video_id, round(one.moment.start, 3), one.score) for one in expected.moments
    ]
    exported = served.json("/api/export", **question, format="json")
    assert len(exported["moments"]) == min(5, len(found))
    assert served.error("/api/search", query=QUERY, model="run", segments=1)[0] == 400
    assert served.error("/api/search", query=QUERY, segments=4)[0] == 400
    assert served.error("/api/search", query=QUERY, model="run", segments=-4)[0] == 400


def test_pages_of_a_models_answer_follow_each_other(served: Client) -> None:
    whole = served.json("/api/search", query=QUERY, model="run", k=5)["data"]
    first = served.json("/api/search", query=QUERY, model="run", k=5, page_limit=3)
    token = first["page_info"]["next_page_token"]
    rest = served.json("/api/search", query=QUERY, model="run", k=5, page_limit=3, page_token=token)
    assert first["data"] + rest["data"] == whole
    _, code, _ = served.error("/api/search", query=QUERY, k=5, page_token=token)
    assert code != ""


def test_an_export_of_a_models_answer_has_its_moments(served: Client) -> None:
    found = served.json("/api/search", query=QUERY, model="run", k=3)["data"]
    exported = served.json("/api/export", query=QUERY, model="run", k=3, format="json")
    assert [one["start"] for one in exported["moments"]] == [one["start"] for one in found]


@pytest.mark.slow
def test_highlights_over_http_are_those_of_the_corpus(place: Path, served: Client, tmp_path: Path) -> None:
    """And a system without saliency, or one that is not served, is refused."""
    config = config_of("moment_detr", {"streams": {"subtitle": 16}, "query_width": 16, "hidden": 16})
    trained = Trained("moment_detr", new_model("moment_detr", config), small_inputs(), Decoding())
    run = trained.save_pretrained(tmp_path / "windows")
    corpus = Corpus(place / "c", create=False, encoders=[Letters()])
    application = Application(corpus, Settings(cache=tmp_path / "more", models={"windows": str(run)}))
    video = corpus.videos()[0].id
    client, address = Client(application, {}), f"/api/videos/{video}/highlights"
    found = client.json(address, model="windows", query=QUERY, k=2)
    assert found == highlights_of(corpus, video, run, QUERY, 2).to_json()
    assert len(found["curve"]["score"]) > 2
    assert client.json(address, model="windows")["query"] == ""
    assert client.error(address, model="run")[:2] == (404, "no_such_model")
    assert served.error(address, model="run")[0] == 400
    application.service.close()


@pytest.mark.slow
def test_the_models_that_are_served_are_listed(served: Client, client: Client) -> None:
    assert served.json("/api/stats")["models"] == ["run"]
    assert client.json("/api/stats")["models"] == []


@pytest.mark.slow
def test_a_result_is_explained_by_words_and_probabilities(served: Client, place: Path) -> None:
    body = served.json("/api/explain", query=QUERY, model="run", moment=moment(served, 2))
    assert (body["found"], body["rank"], body["model"]) == (True, 2, "run")
    assert len(body["lost_to"]) == 1
    system = explain(
        Corpus(place / "c", create=False, encoders=[Letters()]), QUERY, place / "run", video=body["video_id"]
    ).systems[0]
    assert system.token_weights is not None
    assert system.borders is not None
    assert body["heard"] == system.token_weights.to_json()
    assert set(body["curves"]) == {"start", "end"}
    curve = body["curves"]["start"]
    assert curve["score"] == system.borders.to_json()["start_probability"]
    assert len(curve["start"]) == len(curve["end"]) == len(curve["score"])
    assert curve["chance_percentile"] == []
    assert body["said"][0].startswith("It starts at 0:")
    assert body["said"][1].startswith("It ends at 0:")


@pytest.mark.slow
def test_streams_that_are_weighed_clip_by_clip_say_how_much_they_count(tmp_path: Path, samples: Path) -> None:
    corpus = Corpus(tmp_path / "c", encoders=[Letters(), Shades()], create=True)
    with uncalibrated():
        corpus.add(samples / "friday.mp4", text=Letters(), vision=Shades(), clip_seconds=2.0, processes=1)
    trained, run = seeing_localizer(Shades(), 2.0), tmp_path / "run"
    trained.save_pretrained(run)
    application = Application(corpus, Settings(cache=tmp_path / "cache", models={"run": str(run)}))
    served = Client(application, {})
    body = served.json("/api/explain", query=QUERY, model="run", moment=moment(served))
    system = explain(corpus, QUERY, run, video=body["video_id"]).systems[0]
    application.service.close()
    assert system.borders is not None
    shares = {stream: curve["score"] for stream, curve in body["shares"].items()}
    assert shares == system.borders.to_json()["stream_shares"]
    assert set(shares) == {"subtitle", "vision"} and len(set(shares["vision"])) > 1
    np.testing.assert_allclose(np.add(*shares.values()), 1, atol=2e-4)
    assert body["shares"]["vision"]["start"] == body["curves"]["start"]["start"]
    assert body["said"][2].startswith("What counts there: subtitle ")


def test_one_stream_has_nothing_to_share_with(served: Client) -> None:
    body = served.json("/api/explain", query=QUERY, model="run", moment=moment(served))
    assert body["shares"] == {} and len(body["said"]) == 2


def test_a_moment_that_is_no_result_is_told_what_came_first(served: Client) -> None:
    video = served.json("/api/search", query=QUERY, model="run")["data"][0]["video_id"]
    body = served.json("/api/explain", query=QUERY, model="run", moment=f"{video}@0.5-0.6", k=3)
    assert (body["found"], body["rank"]) == (False, None)
    assert len(body["lost_to"]) == 3
    assert {"video_id", "start", "end", "text"} == set(body["lost_to"][0])


@pytest.mark.parametrize("name", ["other", "/etc", "../run", "owner/name"])
@pytest.mark.parametrize("path", ["/api/search", "/api/export", "/api/explain"])
def test_a_model_that_is_not_served_is_never_opened(served: Client, path: str, name: str) -> None:
    more = {"moment": moment(served)} if path == "/api/explain" else {}
    status, code, field = served.error(path, query=QUERY, model=name, **more)
    assert (status, code, field) == (404, "no_such_model", "model")


def test_where_a_model_lies_is_not_told(served: Client, place: Path) -> None:
    for path in ("/api/search", "/api/stats"):
        answer = served.get(path, params={"query": QUERY, "model": "run"} if path == "/api/search" else {})
        assert str(place / "run") not in answer.text


@pytest.mark.slow
def test_a_note_on_another_writer_does_not_tell_where_the_corpus_lies(
    served: Client, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, busy = IndexedSystem.corpus, CorpusBusy(str(place / "c"), None)
    assert str(place) in str(busy)
    monkeypatch.setattr(IndexedSystem, "corpus", lambda system: (current(system)[0], [f"1 video ({busy})"]))
    notes = served.json("/api/explain", query=QUERY, model="run", moment=moment(served))["notes"]
    assert any(note.startswith("1 video (c is being written") for note in notes)
    assert str(place) not in " ".join(notes)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"moment": "nowhere"}, "invalid_parameter"),
        ({"moment": "none@1-2"}, "no_such_video"),
        ({"query": " "}, "invalid_parameter"),
        ({"k": "0"}, "invalid_parameter"),
        ({"model": None}, "missing_parameter"),
        ({"stream": "vision"}, "unknown_parameter"),
    ],
)
def test_a_wrong_question_is_refused(served: Client, changes: dict[str, str | None], code: str) -> None:
    question = {"query": QUERY, "model": "run", "moment": moment(served), **changes}
    given = {name: value for name, value in question.items() if value is not None}
    assert served.error("/api/explain", **given)[1] == code


def test_a_model_and_a_stream_together_are_refused(served: Client) -> None:
    status, code, _ = served.error("/api/search", query=QUERY, model="run", stream="subtitle")
    assert (status, code) == (400, "invalid")


def test_a_model_whose_folder_is_gone_says_so_and_not_where_it_was(place: Path, tmp_path: Path) -> None:
    models = {"gone": str(tmp_path / "gone")}
    corpus = Corpus(place / "c", create=False, encoders=[Letters()])
    application = Application(corpus, Settings(cache=tmp_path / "cache", models=models))
    try:
        answer = Client(application, {}).get("/api/search", params={"query": QUERY, "model": "gone"})
        assert error_of(answer)[:2] == (400, "invalid")
        assert str(tmp_path) not in answer.text
    finally:
        application.service.close()


def test_models_are_named_by_their_folders_and_no_two_alike() -> None:
    assert named_models(["runs/xml/", "owner/other"]) == {"xml": "runs/xml/", "other": "owner/other"}
    with pytest.raises(UsageError, match="'xml' as well"):
        named_models(["a/xml", "b/xml"])


@pytest.mark.slow
def test_a_staged_run_is_served_words_by_its_retriever_and_borders_by_its_localizer(
    place: Path, tmp_path: Path
) -> None:
    run = save_pair(tmp_path / "prem", small_retriever(), small_localizer())
    corpus = Corpus(place / "c", create=False, encoders=[Letters()])
    application = Application(corpus, Settings(cache=tmp_path / "cache", models={"prem": str(run)}))
    served = Client(application, {})
    try:
        found = served.json("/api/search", query=QUERY, model="prem", k=3)["data"]
        named = f"{found[0]['video_id']}@{found[0]['start']:.3f}-{found[0]['end']:.3f}"
        body = served.json("/api/explain", query=QUERY, model="prem", moment=named)
    finally:
        application.service.close()
    expected = explain(corpus, QUERY, run, moment=named, k=3).systems[0]
    assert [(one["video_id"], one["start"]) for one in found] == [
        (one.moment.video_id, round(one.moment.start, 3)) for one in expected.moments
    ]
    alone = explain(corpus, QUERY, small_retriever(), moment=named).systems[0]
    assert alone.token_weights is not None and expected.borders is not None
    assert body["heard"]["weights"] == alone.token_weights.to_json()["weights"]
    assert body["curves"]["start"]["score"] == expected.borders.to_json()["start_probability"]
    assert body["rank"] == 1
