"""Text on the screen, from films to answers."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.server.conftest import Client
from tests.streams.written_film import slide, write_film
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.cli.main import main
from whenabouts.index.reading import FrameBatch
from whenabouts.index.records import StreamInfo
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Reads, StreamRun
from whenabouts.indexing import plan_index
from whenabouts.server.app import Application
from whenabouts.server.settings import Settings
from whenabouts.streams import all_streams, stream
from whenabouts.streams._picture_changes import cell_means, changed_strip
from whenabouts.types import UsageError
from whenabouts.video.text_reader import TextLine, TextReader

TALK = (
    ("Photosynthesis", "light becomes sugar", "in chloroplasts"),
    ("Volcanoes", "magma rises slowly", "lava flows"),
    ("Plate RE16 TGK", "seen at the harbour"),
)


class CountingReader:
    """Reads nothing, and counts what it was given."""

    def __init__(self) -> None:
        self.pictures = 0

    def read(self, pictures: Sequence[NDArray[np.uint8]]) -> list[list[TextLine]]:
        self.pictures += len(pictures)
        return [[TextLine(f"number {picture.mean():.0f}", 0.9, (0, 0, 1, 1))] for picture in pictures]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three slides of eight seconds each, and a film without text."""
    folder = tmp_path_factory.mktemp("films")
    write_film(folder / "talk.mp4", lambda number: slide(*TALK[number // 16], seed=number), 24)
    write_film(folder / "empty.mp4", lambda number: slide(seed=number), 6)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    place = tmp_path_factory.mktemp("screen") / "corpus"
    with uncalibrated():
        assert main(["index", str(folder), "--corpus", str(place), "--screen-text", "--processes", "1"]) == 0
    return place


@pytest.fixture(scope="module")
def corpus(place: Path) -> Corpus:
    return Corpus(place, create=False)


def test_each_slide_is_one_clip_with_its_lines_and_its_time(corpus: Corpus) -> None:
    video = corpus.resolve("talk.mp4")
    block = corpus.store.clips_of("screen_text", [video.video_id])
    assert block.text == ["\n".join(lines) for lines in TALK]
    np.testing.assert_allclose(block.start, [0, 7, 15], atol=1)
    np.testing.assert_allclose(block.end, [7, 15, 23], atol=1)
    assert np.linalg.norm(block.vectors, axis=1) == pytest.approx(1, abs=1e-3)


def test_a_film_without_text_is_indexed_and_has_no_clips(corpus: Corpus) -> None:
    video = corpus.resolve("empty.mp4")
    assert video.state == "done" and "screen_text" in video.streams
    assert len(corpus.store.clips_of("screen_text", [video.video_id])) == 0


@pytest.mark.parametrize(
    ("query", "slide_number"),
    [("magma", 1), ("photosynthesis", 0), ("how do plants make food", 0), ("RE16 TGK", 2)],
)
def test_what_is_written_is_found_by_word_and_by_meaning(
    corpus: Corpus, query: str, slide_number: int
) -> None:
    best = corpus.search(query).moments[0]
    assert best.evidence["screen_text"].text.startswith(TALK[slide_number][0])
    assert best.start - 1 <= 8 * slide_number + 4 <= best.end


@pytest.mark.parametrize("query", ["RE16", "E16T", "16 TG", "the plate RE16", "hloroplas"])
def test_a_part_of_a_word_finds_it(corpus: Corpus, query: str) -> None:
    best = corpus.search(query).moments[0].evidence["screen_text"]
    assert best.text.startswith("Photo" if query == "hloroplas" else "Plate RE16 TGK")


def test_candidates_for_a_system_without_keys_are_asked_for_parts_too(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieval, stores = corpus.searcher().retrieval, "whenabouts.index.store.Store"
    none = corpus.store.match_text("screen_text", "xyzzy", 1)
    monkeypatch.setattr(f"{stores}.nearest", lambda *arguments, **keywords: none)
    assert retrieval.videos("hloroplas", ["screen_text"]) == [corpus.resolve("talk.mp4").video_id]


def test_the_place_in_the_picture_is_evidence(
    corpus: Corpus, place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = corpus.search("magma")
    piece = result.moments[0].evidence["screen_text"]
    assert piece.box is not None
    left, top, right, bottom = piece.box
    assert 0.05 < left < 0.1 and 0.1 < top < 0.2 and 0.3 < right < 0.8 and 0.55 < bottom < 0.8
    assert result.instant(result.moments[0]) == pytest.approx((piece.start + piece.end) / 2)
    main(["search", "magma", "--corpus", str(place), "--json"])
    shown = json.loads(capsys.readouterr().out)["moments"][0]["evidence"]["screen_text"]["box"]
    assert shown == pytest.approx(piece.box, abs=1e-4)
    application = Application(corpus, Settings(cache=tmp_path))
    try:
        answered = Client(application, {}).json("/api/search", query="magma")["data"][0]
    finally:
        application.service.close()
    assert answered["evidence"]["screen_text"]["box"] == shown


def test_a_notebook_frames_the_place_in_the_picture(corpus: Corpus) -> None:
    piece = corpus.search("magma").moments[0].evidence["screen_text"]
    assert piece.box is not None
    left, top, right, _ = piece.box
    html = corpus.search("magma", k=1)._repr_html_()
    assert f"left:{100 * left:.1f}%;top:{100 * top:.1f}%;width:{100 * (right - left):.1f}%" in html


def test_a_second_run_has_nothing_to_do(corpus: Corpus, folder: Path) -> None:
    assert not plan_index(corpus, [folder]).work


def test_of_a_new_file_beside_those_that_were_read_only_that_is_read(corpus: Corpus, folder: Path) -> None:
    new = folder.parent / "new.mp4"
    new.write_bytes((folder / "empty.mp4").read_bytes() + b"\0" * 8)
    assert [work.task.path.name for work in plan_index(corpus, [folder, new]).work] == ["new.mp4"]


def test_the_stream_is_left_out_of_a_run_and_made_by_the_next(
    corpus: Corpus, folder: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.mp4"
    new.write_bytes((folder / "empty.mp4").read_bytes() + b"\0" * 8)
    plan = plan_index(corpus, [folder, new], without=["screen_text"])
    assert [work.streams for work in plan.work] == [("subtitle",)] and not plan.work[0].task.frames
    assert plan_index(corpus, [new]).work[0].streams == ("subtitle", "screen_text")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": ["smell"]}, "there is no stream 'smell' to leave out; there are subtitle"),
        (
            {"without": ["screen_text"], "screen_text": True},
            "--screen-text asks for screen_text, and --without",
        ),
        ({"without": list(all_streams())}, "every stream is left out"),
    ],
)
def test_what_cannot_be_left_out_is_refused(
    corpus: Corpus, folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        plan_index(corpus, [folder], **options)


def test_how_surely_a_text_was_read_is_kept_and_shown(
    corpus: Corpus, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sure = corpus.search("magma").moments[0].evidence["screen_text"].recognised
    assert sure is not None and 0.9 < sure <= 1
    main(["search", "magma", "--corpus", str(place), "--table"])
    assert f"(recognised, {int(100 * sure)} % sure of its words)" in " ".join(capsys.readouterr().out.split())


def test_another_reader_makes_the_texts_anew(
    corpus: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whenabouts.video.text_reader.LEAST_SCORE", 0.99)
    reasons = {reason for work in plan_index(corpus, [folder]).work for reason in work.reasons}
    assert reasons == {"texts on the screen added"}


def turned(path: Path, turn: tuple[int, int, int, int]) -> None:
    """Write into the header of an MP4 how its picture is to be turned: a, b, c, d of the matrix."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    one = 1 << 16
    a, b, c, d = (one * value for value in turn)
    data[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quarters", "turn"),
    [(1, (0, 1, -1, 0)), (2, (-1, 0, 0, -1)), (3, (0, -1, 1, 0))],
    ids=["90", "180", "270"],
)
def test_a_film_that_is_turned_is_read_upright_and_its_places_are_those_of_the_upright_picture(
    quarters: int, turn: tuple[int, int, int, int], tmp_path: Path
) -> None:
    film = tmp_path / "turned.mp4"
    write_film(film, lambda number: np.rot90(slide(*TALK[1], seed=number), quarters).copy(), 3)
    turned(film, turn)
    with uncalibrated():
        corpus = Corpus(tmp_path / "corpus", create=True)
        corpus.add(film, screen_text=True, processes=1)
    block = corpus.store.clips_of("screen_text", [corpus.records()[0].video_id])
    assert block.text == ["\n".join(TALK[1])] and block.box is not None
    left, top, right, bottom = block.box[0].tolist()
    assert 0.05 < left < 0.1 and 0.1 < top < 0.2 and 0.3 < right < 0.8 and 0.55 < bottom < 0.8


@pytest.mark.slow
def test_text_on_its_head_is_read_where_the_file_does_not_say_that_it_is_turned(tmp_path: Path) -> None:
    film = write_film(tmp_path / "f.mp4", lambda number: slide("magma rises", seed=number)[::-1, ::-1], 3)
    with uncalibrated():
        corpus = Corpus(tmp_path / "corpus", create=True)
        corpus.add(film, screen_text=True, processes=1)
    block = corpus.store.clips_of("screen_text", [corpus.records()[0].video_id])
    assert block.text == ["magma rises"] and block.box is not None
    assert block.box[0, 0] > 0.4 and block.box[0, 1] > 0.7


@pytest.mark.slow
def test_a_film_of_8k_is_read_at_720_lines(tmp_path: Path) -> None:
    picture = slide("magma rises", "lava flows", size=(7680, 4320))
    film = write_film(tmp_path / "large.mp4", lambda _: picture, 1, rate=1)
    with uncalibrated():
        corpus = Corpus(tmp_path / "corpus", create=True)
        corpus.add(film, screen_text=True, processes=1)
    block = corpus.store.clips_of("screen_text", [corpus.records()[0].video_id])
    assert block.text == ["magma rises\nlava flows"]


@pytest.mark.slow
def test_a_slide_that_stands_is_read_once_across_batches() -> None:
    reader, own = CountingReader(), stream("screen_text")
    settings = FrameSettings(2.0, 720)
    info = StreamInfo(own.name, "letters", "letters", 0, {"frame_seconds": 2.0})
    run = StreamRun(own, info, None, Reads(frames=settings), reader=reader)
    kept: list[Any] = []
    for first in range(0, 48, 16):
        images = tuple(slide("Agenda", "and questions", seed=number) for number in range(16))
        kept.append(own.encode(FrameBatch(settings, tuple(range(first, first + 16)), images), run, kept))
    assert reader.pictures == 1
    other = FrameBatch(settings, (48,), (slide("Agenda", "and answers", seed=3),))
    own.encode(other, run, kept)
    assert reader.pictures == 2


def test_a_line_in_a_corner_is_a_change_and_noise_and_brightness_are_none() -> None:
    before = slide(size=(1280, 720), seed=1).copy()
    cells = cell_means(before)
    assert changed_strip(cells, cell_means(slide(size=(1280, 720), seed=2))) is None
    assert changed_strip(cells, cell_means(np.clip(before + 8.0, 0, 255).astype(np.uint8))) is None
    with_line = before.copy()
    with_line[600:624, 1100:1260] = slide("12:45 EXIT", size=(960, 264), seed=1)[30:54, 80:240]
    strip = changed_strip(cells, cell_means(with_line))
    assert strip is not None and strip.top * 8 < 560 and strip.bottom * 8 > 700
    assert strip.of(with_line).shape[0] < 300


def test_a_film_that_changes_its_size_is_read_again() -> None:
    small = cell_means(slide(size=(320, 180)))
    strip = changed_strip(cell_means(slide()), small)
    assert strip is not None and (strip.top, strip.bottom) == (0, len(small))


@pytest.mark.slow
def test_beside_a_speaker_who_moves_only_a_strip_is_read_and_the_other_lines_stay() -> None:
    own, reader = stream("screen_text"), TextReader()
    settings = FrameSettings(2.0, 720)
    info = StreamInfo(own.name, "letters", "letters", 0, {"frame_seconds": 2.0})
    run = StreamRun(own, info, None, Reads(frames=settings), reader=reader)
    images = []
    for number, last in enumerate(("first words", "first words", "other words")):
        image = slide("Title above", "", "", last).copy()
        image[280:, 520:] = 40 + 60 * number
        images.append(image)
    kept = own.encode(FrameBatch(settings, (0, 1, 2), tuple(images)), run, ())
    read = [[line.text for line in lines] for _, lines in kept.read]
    assert read == [
        ["Title above", "first words"],
        ["Title above", "first words"],
        ["Title above", "other words"],
    ]
    (_, whole), (_, strip), _ = kept.read
    np.testing.assert_allclose(whole[1].box, strip[1].box, atol=0.02)
    assert whole[0] is strip[0], "the title was read once"


def test_without_the_package_the_option_ends_with_the_command_that_installs_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "whenabouts.video.text_reader.why_unavailable", lambda: "pip install 'whenabouts[screen]'"
    )
    assert main(["index", str(folder), "--corpus", str(tmp_path / "c"), "--screen-text"]) == 2
    assert "pip install 'whenabouts[screen]'" in capsys.readouterr().err


def test_without_the_package_a_corpus_that_has_texts_is_indexed_and_searched_all_the_same(
    corpus: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "whenabouts.video.text_reader.why_unavailable", lambda: "pip install 'whenabouts[screen]'"
    )
    plan = plan_index(corpus, [folder])
    assert "whenabouts[screen]" in " ".join(plan.notes) and not plan.work
    assert corpus.search("magma").moments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--screen-text", "--screen-seconds", "0"], "between 0.1 and 600"),
        (["--screen-seconds", "3"], "give --screen-text as well"),
    ],
)
def test_seconds_that_make_no_sense_are_refused(
    options: Sequence[str], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(folder), "--corpus", str(tmp_path / "c"), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_corpus_keeps_its_seconds(place: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(folder), "--corpus", str(place), "--screen-seconds", "5"]) == 2
    assert "every 2 s, not every 5 s" in capsys.readouterr().err


def test_the_plan_says_what_it_costs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estimates = []
    for options in ([], ["--screen-text"]):
        command = ["index", str(folder), "--corpus", str(tmp_path / "c"), "--dry-run", "--json", *options]
        assert main(command) == 0
        estimates.append(json.loads(capsys.readouterr().out)["estimated_seconds"])
    assert estimates[1] > estimates[0] + 1


def test_show_lists_the_texts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "talk.mp4", "--corpus", str(place), "--table"]) == 0
    out = capsys.readouterr().out
    assert "texts on the screen:" in out and "Volcanoes / magma rises slowly / lava flows" in out
    assert main(["show", "talk.mp4@0-3", "--corpus", str(place), "--json"]) == 0
    (text,) = json.loads(capsys.readouterr().out)["texts"]["screen_text"]
    assert text["text"] == "\n".join(TALK[0]) and text["start"] == 0


def test_the_table_shows_lines_on_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "magma", "--corpus", str(place), "--table"]) == 0
    assert "Volcanoes / magma" in " ".join(capsys.readouterr().out.split())


def test_stats_name_the_stream(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--corpus", str(place), "--table"]) == 0
    assert "screen_text: 3 clips" in capsys.readouterr().out
