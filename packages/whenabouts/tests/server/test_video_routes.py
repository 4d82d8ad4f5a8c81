"""Videos, words, thumbnails and clips over HTTP."""

from __future__ import annotations

import io
import re
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import av
import numpy as np
import pytest
from tests.server.conftest import HOSTILE, Client, Open, error_of, id_of

from whenabouts.corpus import Corpus
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.server import video_routes
from whenabouts.server.decoding import Decoders
from whenabouts.server.folders import ServedFolders
from whenabouts.video.aside import write_error


def picture(content: bytes) -> Any:
    with av.open(io.BytesIO(content), "r") as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


def test_the_list_has_every_video_once_and_only_those(client: Client, samples: Path) -> None:
    videos = client.json("/api/videos")["data"]
    media = {path.name for path in samples.iterdir() if path.suffix in (".mp4", ".webm", ".mp3")}
    assert {video["name"] for video in videos} == {*media, HOSTILE.replace("/", "_")}
    assert [video["video_id"] for video in videos] == sorted(video["video_id"] for video in videos)


def test_a_video_tells_its_length_streams_and_frame_rate(client: Client, friday: str) -> None:
    details = client.json(f"/api/videos/{friday}")
    assert details["duration"] == pytest.approx(6.166, abs=0.01)
    assert (details["frame_rate"], details["width"], details["height"]) == (30.0, 640, 480)
    assert (details["codec"], details["has_audio"], details["available"]) == ("h264", True, True)
    assert [(each["stream"], each["title"]) for each in details["indexed_streams"]] == [("subtitle", "words")]
    assert details["indexed_streams"][0]["since"] == details["indexed"]
    assert details["chapters"] == []
    assert details["streams"] == ["subtitle"]
    assert "path" not in details


def test_a_disk_that_fails_once_is_asked_again(
    opened: Open, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(indexed)
    place = f"/api/videos/{id_of(client, 'friday.mp4')}"
    with monkeypatch.context() as broken:
        broken.setattr(Decoders, "probe", Mock(side_effect=OSError(5, "Input/output error")))
        assert client.json(place)["width"] is None
    assert client.json(place)["width"] == 640


def test_cues_are_what_show_prints_and_may_be_narrowed(client: Client, indexed: Path, friday: str) -> None:
    words = Corpus(indexed, create=False).show(friday).to_json()["words"]
    assert client.json(f"/api/videos/{friday}/cues") == {"video_id": friday, "data": words}
    part = client.json(f"/api/videos/{friday}/cues", start=1.2, end=3.0)["data"]
    assert [cue["start"] for cue in part] == [1.0, 1.5]
    assert [cue["start"] for cue in client.json(f"/api/videos/{friday}/cues", start=5)["data"]] == [4.3]
    assert client.error(f"/api/videos/{friday}/cues", start=3, end=3) == (400, "invalid_span", "end")
    assert client.error(f"/api/videos/{friday}/cues", start="nan")[:2] == (400, "invalid_parameter")


def test_texts_on_the_screen_are_listed_without_the_words_that_are_said(opened: Open, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.corpus", create=True)
    streams = dict.fromkeys(("subtitle", "screen_text"), "")
    for name in streams:
        store.add_stream(StreamInfo(name, "", "", 0))
    time = np.arange(2.0)
    store.put_video(
        VideoRecord("talk", "/talk.mp4", size=1, content_hash="h", streams=streams, words="sidecar:talk.srt"),
        {name: ClipColumns(time, time + 1, [f"{name} 1", f"{name} 2"], None) for name in streams},
    )
    client = opened(tmp_path / "a.corpus")
    [texts] = client.json("/api/videos/talk/texts")["data"]
    assert (texts["stream"], texts["title"]) == ("screen_text", "texts on the screen")
    assert [(each["start"], each["end"]) for each in texts["texts"]] == [(0, 1), (1, 2)]
    assert [each["text"] for each in texts["texts"]] == ["screen_text 1", "screen_text 2"]
    cues = client.json("/api/videos/talk/cues")["data"]
    assert [each["text"] for each in cues] == ["subtitle 1", "subtitle 2"]


def test_the_words_are_a_file_in_three_formats(client: Client, friday: str) -> None:
    cues = client.json(f"/api/videos/{friday}/cues")["data"]
    answers = {
        form: client.get(f"/api/videos/{friday}/transcript", params={"format": form})
        for form in ("srt", "vtt", "txt")
    }
    assert answers["txt"].text.splitlines() == [cue["text"] for cue in cues]
    assert answers["srt"].text.startswith(f"1\n00:00:00,000 --> 00:00:00,999\n{cues[0]['text']}\n\n2\n")
    assert answers["vtt"].text.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:00.999\n")
    assert answers["vtt"].text.count(" --> ") == len(cues)
    assert all(f"friday.{form}" in answer.headers["content-disposition"] for form, answer in answers.items())
    assert client.error(f"/api/videos/{friday}/transcript", format="docx")[:2] == (400, "invalid_parameter")
    flower = id_of(client, "flower.webm")
    assert client.error(f"/api/videos/{flower}/transcript")[:2] == (404, "no_words")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["friday.mp4", "flower.webm", "bottle-detection.mp4"])
def test_a_thumbnail_shows_the_frame_of_its_instant(client: Client, samples: Path, name: str) -> None:
    url = f"/api/videos/{id_of(client, name)}/thumbnail"
    with av.open(str(samples / name)) as container:
        frames = {float(frame.time or 0): frame for frame in container.decode(video=0)}
    start = min(frames)
    for wanted in (0.0, 1.0, 3.37):
        answer = client.get(url, params={"at": wanted, "width": 320})
        assert answer.headers["content-type"] == "image/jpeg"
        shown = picture(answer.content)
        assert shown.shape[1] == 320
        # JPEG and an even height change the pixels a little; pictures a second away differ more or are equal.
        height, width = shown.shape[:2]
        time = min(at for at in frames if at - start >= wanted - 0.006)
        there = frames[time].reformat(width=width, height=height, format="rgb24").to_ndarray()
        assert np.abs(there.astype(int) - shown).mean() < 8, wanted


def test_a_thumbnail_at_the_very_end_is_the_last_picture(client: Client, friday: str, samples: Path) -> None:
    with av.open(str(samples / "friday.mp4")) as container:
        last = list(container.decode(video=0))[-1]
    duration = client.json(f"/api/videos/{friday}")["duration"]
    for at in (duration, duration - 0.001, duration + 0.5):
        shown = picture(client.get(f"/api/videos/{friday}/thumbnail?at={at}&width=640").content)
        there = last.reformat(width=640, height=480, format="rgb24").to_ndarray()
        assert np.abs(there.astype(int) - shown).mean() < 8, at


def test_a_thumbnail_is_never_larger_than_the_picture(client: Client) -> None:
    wide = client.get(f"/api/videos/{id_of(client, 'nasa_13013.mp4')}/thumbnail?at=1&width=1280")
    assert picture(wide.content).shape[1] == 320


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("at=9", (400, "beyond_the_end", "at")),
        ("at=1e300", (400, "invalid_parameter", "at")),
        ("at=-1", (400, "invalid_parameter", "at")),
        ("at=inf", (400, "invalid_parameter", "at")),
        ("width=0", (400, "invalid_parameter", "width")),
        ("width=100000", (400, "invalid_parameter", "width")),
        ("at=1&path=/etc/passwd", (400, "unknown_parameter", "path")),
    ],
)
def test_thumbnails_that_cannot_be_are_refused(
    client: Client, friday: str, query: str, error: tuple[int, str, str]
) -> None:
    assert error_of(client.get(f"/api/videos/{friday}/thumbnail?{query}")) == error


def test_sound_has_no_thumbnail(client: Client) -> None:
    sound = id_of(client, "nasa_audio_only.mp3")
    assert error_of(client.get(f"/api/videos/{sound}/thumbnail"))[:2] == (404, "no_picture")
    assert client.json(f"/api/videos/{sound}")["thumbnail_url"] is None


def test_a_thumbnail_is_not_sent_twice_to_who_has_it(client: Client, friday: str) -> None:
    url = f"/api/videos/{friday}/thumbnail?at=1"
    first = client.get(url)
    assert "max-age" in first.headers["cache-control"]
    assert client.get(url, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert client("HEAD", url).headers["content-length"] == str(len(first.content))


def seconds_of(content: bytes) -> float:
    with av.open(io.BytesIO(content), "r") as container:
        stream = container.streams.video[0]
        times = [
            Fraction(packet.pts or 0) * packet.time_base for packet in container.demux(stream) if packet.size
        ]
    return float(max(times) - min(times))


def test_a_clip_has_the_frames_of_its_stretch(client: Client, friday: str) -> None:
    url = f"/api/videos/{friday}/clip?start=1.0&end=3.0"
    answer = client.get(url)
    assert answer.headers["content-type"] == "video/mp4"
    assert "friday_1.000-3.000.mp4" in answer.headers["content-disposition"]
    assert seconds_of(answer.content) == pytest.approx(2.0 - 1 / 30, abs=0.002)
    part = client.get(url, headers={"Range": "bytes=4-7"})
    assert part.content == answer.content[4:8] == b"ftyp"
    made = re.findall("whenabouts_cache_total.*clip.*miss.*", client.get("/metrics").text)
    assert client.get(url).content == answer.content
    assert re.findall("whenabouts_cache_total.*clip.*miss.*", client.get("/metrics").text) == made != []


def test_a_cached_clip_is_not_sent_after_a_change_of_how_clips_are_cut(
    client: Client, friday: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"/api/videos/{friday}/clip?start=2&end=3"
    tag = client.get(url).headers["etag"]
    assert client.get(url).headers["etag"] == tag
    monkeypatch.setattr(video_routes, "CUT_VERSION", "another")
    assert client.get(url).headers["etag"] != tag


def test_a_clip_ends_where_the_video_ends(client: Client, friday: str) -> None:
    duration = client.json(f"/api/videos/{friday}")["duration"]
    whole = client.get(f"/api/videos/{friday}/clip?start=5.5&end=60")
    assert whole.status_code == 200
    assert client.get(f"/api/videos/{friday}/clip?start=5.5&end={duration}").content == whole.content
    beyond = client.error(f"/api/videos/{friday}/clip", start=duration, end=duration + 1)
    assert beyond == (400, "beyond_the_end", "start")
    assert client.get(f"/api/videos/{friday}/clip?start=6.1&end={duration}").status_code == 200


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("start=3&end=3", (400, "invalid_span", "end")),
        ("start=3&end=2", (400, "invalid_span", "end")),
        ("start=3.0001&end=3.0002", (400, "invalid_span", "end")),
        ("start=3", (400, "missing_parameter", "end")),
        ("start=-1&end=2", (400, "invalid_parameter", "start")),
        ("start=0&end=nan", (400, "invalid_parameter", "end")),
    ],
)
def test_clips_that_cannot_be_are_refused(
    client: Client, friday: str, query: str, error: tuple[int, str, str]
) -> None:
    assert error_of(client.get(f"/api/videos/{friday}/clip?{query}")) == error


def test_a_clip_may_not_be_endless(client: Client, friday: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from whenabouts.server import video_routes

    monkeypatch.setattr(video_routes, "MOST_CLIP_SECONDS", 2.0)
    assert client.error(f"/api/videos/{friday}/clip", start=0, end=2.5) == (400, "clip_too_long", "end")


@pytest.mark.parametrize("route", ["thumbnail?at=1", "clip?start=0&end=0.2"])
def test_a_slow_disk_does_not_hold_up_other_requests(
    client: Client, friday: str, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    threads: list[str] = []
    opened = ServedFolders.open

    def noted(folders: ServedFolders, record: VideoRecord) -> Any:
        threads.append(threading.current_thread().name)
        return opened(folders, record)

    monkeypatch.setattr(ServedFolders, "open", noted)
    assert client.get(f"/api/videos/{friday}/{route}").status_code == 200
    assert threads and all(name.startswith("whenabouts-") for name in threads)


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob("*") if path.is_file()]


def test_a_disk_that_fills_while_a_clip_is_cut_leaves_nothing(
    opened: Open, indexed: Path, small_disk: Path
) -> None:
    client = opened(indexed, cache=small_disk)
    video = id_of(client, "car-detection.mp4")
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 990_000)
    answer = client.get(f"/api/videos/{video}/clip?start=0&end=6")
    assert error_of(answer)[:2] == (507, "disk_full")
    assert str(small_disk) not in answer.text
    assert leftovers(small_disk) == ["ballast"]
    ballast.unlink()
    assert client.get(f"/api/videos/{video}/clip?start=0&end=1").status_code == 200


def test_a_full_disk_is_told_wherever_the_cutter_notices_it(
    client: Client, friday: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(_: Decoders, path: Path, start: float, end: float, out: Path) -> None:
        out.write_bytes(b"half")
        error = OSError(28, "No space left on device")
        raise write_error(out, error) from error

    monkeypatch.setattr(Decoders, "cut", full)
    answer = client.get(f"/api/videos/{friday}/clip?start=0&end=1")
    assert error_of(answer)[:2] == (507, "disk_full")
    assert str(tmp_path) not in answer.text
    assert leftovers(tmp_path / "cache") == []


def test_a_video_that_cannot_be_decoded_is_told_without_its_place(
    opened: Open, big_file: tuple[Path, str], tmp_path: Path
) -> None:
    client = opened(big_file[0])
    answer = client.get(f"/api/videos/{big_file[1]}/clip?start=0&end=1")
    assert error_of(answer)[:2] == (409, "unreadable_video")
    assert str(tmp_path) not in answer.text
    assert leftovers(tmp_path / "cache") == []
