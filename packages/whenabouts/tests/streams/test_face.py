"""Who is seen, on rendered films with planted models: clusters, names, filters, and forgetting for good."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("onnx")

from tests.cut_short import Dead, dies_before
from tests.planted_people import BLUE, RED, face_embedder, face_models, film
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.encoders.protocol import EncoderUnavailable
from whenabouts.index.checksums import CHECKSUMS_FILE
from whenabouts.index.records import EncoderMismatch
from whenabouts.types import UsageError

SCENES = [(6.0, [RED]), (4.0, []), (6.0, [BLUE]), (6.0, [RED, BLUE])]
WORDS = (
    "Morning",
    "Noon",
    "Evening",
    "Winter",
    "Summer",
    "Autumn",
    "Spring",
    "Today",
    "Monday",
    "Night",
    "May",
)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    film(folder / "both.mp4", SCENES)
    film(folder / "red.mp4", [(2.0, []), (5.0, [(240, 0, 90)])])
    film(folder / "nobody.mp4", [(3.0, [])])
    cues = [
        f"{n}\n00:00:{n * 2:02d},000 --> 00:00:{n * 2 + 2:02d},000\n{word} sees the glacier.\n"
        for n, word in enumerate(WORDS)
    ]
    (folder / "both.srt").write_text("\n".join(cues))
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return face_models(tmp_path / "models")


@pytest.fixture
def corpus(tmp_path: Path, films: Path, models: Path) -> Corpus:
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        summary = corpus.add(films, faces=str(models), processes=1)
    assert not summary.failed and summary.added == 3
    return corpus


def holding(corpus: Corpus, data: bytes) -> list[str]:
    """The files of a corpus that hold some bytes."""
    files = (path for path in Path(corpus.location).rglob("*") if path.is_file())
    return [path.name for path in files if data in path.read_bytes()]


def stored(corpus: Corpus, video: str, row: int = 0) -> bytes:
    """The vector of a clip as the files have it."""
    block = corpus.store.clips_of("face", [corpus.resolve(video).video_id])
    return bytes(block.vectors[row].astype(np.float16).tobytes())


@pytest.mark.slow
def test_faces_are_followed_told_apart_and_joined_over_films(corpus: Corpus) -> None:
    first, second = corpus.people.listed("face")
    assert first.name.startswith("face 1 (both") and len(first.videos) == 2
    assert second.name.startswith("face 2 (both") and len(second.videos) == 1
    turns = corpus.people.turns("face", corpus.resolve("both.mp4").video_id)
    assert [(round(start), round(end), name[:6]) for start, end, name in turns] == [
        (0, 6, "face 1"),
        (10, 22, "face 2"),
        (16, 22, "face 1"),
    ]
    block = corpus.store.clips_of("face", [corpus.resolve("red.mp4").video_id])
    assert block.box is not None and block.box[0, 0] < 0.5 and block.start[0] == pytest.approx(2)


@pytest.mark.slow
def test_a_search_is_narrowed_to_who_is_seen(corpus: Corpus) -> None:
    names = [person.name for person in corpus.people.listed("face")]
    corpus.people.name(names[0], "Ann")
    corpus.people.name(names[1], "Bob")
    for where, spans in (
        (["person=ann"], [(0, 6), (16, 22)]),
        (["person=Bob", "person!=Ann"], [(10, 16)]),
        (["person=Ann", "person=Bob"], [(16, 22)]),
    ):
        moments = corpus.search("glacier", where=where).moments
        assert moments
        for scored in moments:
            assert any(low <= scored.moment.start and scored.moment.end <= high for low, high in spans)


@pytest.mark.slow
def test_a_person_keeps_the_name_in_films_that_come_later(corpus: Corpus, tmp_path: Path) -> None:
    corpus.people.name(corpus.people.listed("face")[0].name, "Ann")
    film(tmp_path / "later.mp4", [(4.0, [RED])])
    with uncalibrated():
        corpus.add(tmp_path / "later.mp4", processes=1)
    (ann,) = (person for person in corpus.people.listed("face") if person.name == "Ann")
    assert len(ann.videos) == 3


def test_a_forgotten_face_is_in_no_file_any_more(corpus: Corpus) -> None:
    corpus.people.name(corpus.people.listed("face")[0].name, "Ann")
    red, blue = stored(corpus, "red.mp4"), stored(corpus, "both.mp4", 1)
    assert holding(corpus, red) and holding(corpus, blue)
    assert corpus.people.forget("Ann") == 3
    assert not holding(corpus, red) and holding(corpus, blue)
    assert not holding(corpus, b"Ann") and len(corpus.people.listed("face")) == 1
    assert not corpus.search("glacier", where="person=Ann").moments
    assert corpus.search("glacier").moments
    assert not Corpus(corpus.location).store.facts("erasing:")


@pytest.mark.slow
def test_a_forgetting_that_was_cut_short_is_finished_by_the_next_run(
    corpus: Corpus, films: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    red = stored(corpus, "red.mp4")
    name = corpus.people.listed("face")[0].name
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            "whenabouts.index.store.rewrite", lambda *of: (_ for _ in ()).throw(KeyboardInterrupt())
        )
        corpus.people.forget(name)
    assert holding(corpus, red)
    with uncalibrated():
        Corpus(corpus.location).add(films, processes=1)
    assert not holding(corpus, red)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "gone", "kept"),
    [
        (["people", "forget", "Ann"], "red.mp4", "both.mp4"),
        (["remove", "red.mp4"], "red.mp4", "both.mp4"),
        (["remove", "--stream", "face"], "both.mp4", ""),
    ],
    ids=["forget", "remove", "stream"],
)
def test_an_erasing_cut_short_at_any_write_is_finished_by_the_same_command(
    corpus: Corpus,
    tmp_path: Path,
    command: list[str],
    gone: str,
    kept: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus.people.name(corpus.people.listed("face")[0].name, "Ann")
    vector, other = stored(corpus, gone), stored(corpus, kept, 1) if kept else b""
    answers, writes = set[str](), 0
    while True:
        writes += 1
        place = shutil.copytree(corpus.location, tmp_path / f"copy {writes}")
        with dies_before(writes):
            code = main([*command, "--corpus", str(place), "--json"])
        said = capsys.readouterr()
        if code == 0:
            break
        assert "Dead" in said.err
        reader = Corpus(place)
        listed = {person.name: len(person.videos) for person in reader.people.listed("face")}
        if "forget" in command:  # whole or not there, and under no other name
            assert listed.pop("Ann", 2) == 2 and len(listed) == 1
        assert main([*command, "--corpus", str(place), "--json"]) == 0, writes
        answers.add(capsys.readouterr().out)
        after = Corpus(place)
        assert not holding(after, vector) and (not kept or holding(after, other)), writes
        assert "forget" not in command or not holding(after, b"Ann"), writes
        assert not after.store.facts("erasing")
        assert (place / "clips_face.lance").exists() == bool(kept), writes
        shutil.rmtree(place)
    assert writes >= 6
    assert answers == {said.out}


@pytest.mark.slow
def test_a_table_that_was_deleted_in_part_leaves_no_vector(corpus: Corpus) -> None:
    vector, place = stored(corpus, "both.mp4"), Path(corpus.location)
    with pytest.raises(Dead), dies_before(4):
        corpus.remove_stream("face")
    (place / CHECKSUMS_FILE).unlink(missing_ok=True)  # as a killed writer leaves it
    shutil.rmtree(place / "clips_face.lance" / "_versions")
    assert holding(corpus, vector)
    Corpus(place).remove_stream("face")
    assert not holding(corpus, vector) and not (place / "clips_face.lance").exists()


@pytest.mark.slow
def test_whoever_writes_next_finishes_an_erasing(corpus: Corpus) -> None:
    name, red = corpus.people.listed("face")[0].name, stored(corpus, "red.mp4")
    corpus.people.name(name, "Ann")
    with pytest.raises(Dead), dies_before(2):
        corpus.people.forget("Ann")
    assert holding(corpus, red)
    other = Corpus(corpus.location)
    other.people.name(other.people.listed("face")[0].name, "Bob")
    assert not holding(corpus, red) and not holding(corpus, b"Ann")
    assert [person.name for person in other.people.listed("face")] == ["Bob"]
    with pytest.raises(UsageError, match="nobody is called 'Ann'"):
        other.people.forget("Ann")


@pytest.mark.slow
def test_a_removed_video_and_a_removed_stream_leave_no_vector(corpus: Corpus) -> None:
    red, both = stored(corpus, "red.mp4"), stored(corpus, "both.mp4")
    corpus.remove("red.mp4")
    assert not holding(corpus, red) and holding(corpus, both)
    assert main(["remove", "--stream", "face", "--corpus", corpus.location, "--table"]) == 0
    again = Corpus(corpus.location)
    assert not holding(corpus, both) and "face" not in again.streams and not again.people.listed()
    assert again.search("glacier").moments


@pytest.mark.slow
def test_a_changed_film_leaves_no_vector_of_who_was_seen_before(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "mine.mp4"
    film(own, [(5.0, [(230, 0, 70)])])
    with uncalibrated():
        corpus.add(own, processes=1)
        before, both = stored(corpus, "mine.mp4"), stored(corpus, "both.mp4")
        film(own, [(3.0, []), (4.0, [BLUE])])
        with monkeypatch.context() as patch:  # a run that ends before its upkeep
            patch.setattr("whenabouts.index.store.Store.optimize", lambda *of, **more: None)
            assert corpus.add(own, processes=1).updated == 1
        assert holding(corpus, before)
        assert Corpus(corpus.location).add(own, processes=1).unchanged == 1
    assert not holding(corpus, before) and holding(corpus, both)


@pytest.mark.slow
def test_other_weights_and_missing_ones_are_refused_and_nothing_is_lost(
    corpus: Corpus, films: Path, models: Path
) -> None:
    face_embedder(models / "embedder.onnx", seed=9)
    with pytest.raises(EncoderMismatch, match="face was made with"):
        corpus.add(films, faces=str(models), processes=1)
    (models / "embedder.onnx").unlink()
    with pytest.raises(EncoderUnavailable, match="holds 1 ONNX files"):
        corpus.add(films, faces=str(models), processes=1)
    again = Corpus(corpus.location)
    with uncalibrated():
        summary = again.add(films, processes=1)
    assert "faces of these videos are not indexed" in " ".join(summary.notes)
    assert len(again.people.listed("face")) == 2 and again.search("glacier", where="person=face*").moments


@pytest.mark.slow
def test_a_model_that_runs_out_of_memory_fails_its_file_alone(
    tmp_path: Path, films: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cv2

    from whenabouts.video.faces import FaceFinder

    calls = []

    def faces(self: FaceFinder, images: object) -> object:
        calls.append(images)
        if len(calls) == 1:
            raise cv2.error("Failed to allocate 99999999999 bytes in function 'OutOfMemoryError'")
        return whole(self, images)  # type: ignore[arg-type]

    whole = FaceFinder.faces
    monkeypatch.setattr(FaceFinder, "faces", faces)
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        summary = corpus.add(films, faces=str(models), processes=1)
    assert len(summary.failed) == 1 and "Failed to allocate" in summary.failed[0][1]
    assert summary.added == 2 and corpus.people.listed("face")
