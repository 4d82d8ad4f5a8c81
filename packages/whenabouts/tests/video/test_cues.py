from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.video.cues import (
    LARGEST_BYTES,
    CueTrack,
    SubtitleError,
    last_time,
    read_cue_file,
    words_of,
)
from whenabouts.video.probe import Probe, SubtitleTrack, probe


def read(folder: Path, text: str, name: str = "a.srt", encoding: str = "utf-8") -> CueTrack:
    (folder / name).write_bytes(text.encode(encoding))
    return read_cue_file(folder / name)


def lines(track: CueTrack) -> list[tuple[float, float, str]]:
    return [(cue.start, cue.end, cue.text) for cue in track.cues]


def stamp(seconds: float) -> str:
    return f"{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{seconds % 60:06.3f}".replace(".", ",")


def srt(*cues: tuple[float, float, str]) -> str:
    return "\n".join(
        f"{number}\n{stamp(start)} --> {stamp(end)}\n{text}\n"
        for number, (start, end, text) in enumerate(cues, 1)
    )


def test_the_samples_are_read(samples: Path) -> None:
    track = read_cue_file(samples / "friday.vtt")
    assert track.source == "sidecar:friday.vtt"
    assert lines(track)[:2] == [(0.0, 0.999, "Hildy!"), (1.0, 1.499, "How are you?")]
    assert "<" not in " ".join(cue.text for cue in track.cues)
    assert "NASA\u2019s Goddard" in read_cue_file(samples / "nasa_13013.srt").cues[2].text


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
def test_the_encoding_is_found_and_noted(tmp_path: Path, encoding: str) -> None:
    text = srt((1, 2, "Où êtes-vous allés ? Ça n'a pas été facile."), (3, 4, "Le garçon a réussi à l'école."))
    track = read(tmp_path, text, encoding=encoding)
    assert track.cues[1].text == "Le garçon a réussi à l'école."
    assert (encoding == "utf-8-sig") == (track.notes == ())


def test_loose_stamps_are_decimals_and_do_not_run_into_the_text_before(tmp_path: Path) -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\none\n\n2\n00:00:05.5 --> 00:00:06\ntwo\n\n3\n"
    text += "1:07.25 --> 1:08,5 x:1\nthree"
    assert lines(read(tmp_path, text)) == [(1, 2, "one"), (5.5, 6, "two"), (67.25, 68.5, "three")]


def test_webvtt_without_its_header_is_read(tmp_path: Path) -> None:
    assert lines(read(tmp_path, "00:01.000 --> 00:02.000\nhello\n", "a.vtt")) == [(1, 2, "hello")]


def test_webvtt_names_notes_styles_settings_and_karaoke_are_no_words(tmp_path: Path) -> None:
    text = (
        "WEBVTT - a title\n\nSTYLE\n::cue { color: red }\n\nNOTE nothing here\nnor here\n\n"
        "intro\n00:01.000 --> 00:04.000 line:80% align:start\n"
        "<c.loud>Hel<00:00:01.500>lo</c> <b>there</b>\n\n"
        "12\n00:05.000 --> 00:06.000\n<v Fred Smith>Yes &amp; no &lt;3\n\n"
        "13\n00:07.000 --> 00:08.000\n<v Fred Smith>Maybe</v>\n"
    )
    assert lines(read(tmp_path, text, "a.vtt")) == [
        (1, 4, "Hello there"),
        (5, 6, "Fred Smith: Yes & no <3"),
        (7, 8, "Maybe"),
    ]


def test_html_is_taken_out_and_mathematics_stays(tmp_path: Path) -> None:
    text = srt(
        (1, 2, '<font color="#fff" onclick="x()">Hi</font><br/>you'),
        (2, 3, "<script>alert(1)</script>a < b and c > d"),
        (3, 4, "{\\an8}{\\i1}up{\\i0}\\Nthere"),
        (4, 5, "<!-- hidden -->Tom &amp; Jerry&#39;s\u200b &quot;x&quot;"),
    )
    assert [cue.text for cue in read(tmp_path, text).cues] == [
        "Hiyou",
        "a < b and c > d",
        "up there",
        'Tom & Jerry\'s "x"',
    ]


def test_reversed_negative_and_empty_cues_are_counted(tmp_path: Path) -> None:
    text = srt((5, 4, "backwards"), (6, 7, "<i></i>"), (8, 9, "fine"))
    text += "\n9\n-00:00:03,000 --> -00:00:01,000\nbefore all\n\n10\n-00:00:01,000 --> 00:00:02,000\nhalf\n"
    text += "\n11\n00:00:1x --> 00:00:02,000\nlost\n\n12\n00:0012,0 --> nonsense\nlost too\n"
    track = read(tmp_path, text)
    assert lines(track) == [(0, 2, "half"), (8, 9, "fine")]
    assert set(track.notes) >= {
        "1 cue(s) with reversed times",
        "1 cue(s) with no text",
        "2 cue(s) with times before 0",
    }


def test_overlapping_cues_are_kept_in_the_order_of_their_starts(tmp_path: Path) -> None:
    track = read(tmp_path, srt((3, 9, "long"), (1, 5, "first"), (4, 5, "inside"), (4, 6, "too")))
    assert [cue.text for cue in track.cues] == ["first", "long", "inside", "too"]


def test_a_cue_without_length_lasts_to_the_next_or_two_seconds(tmp_path: Path) -> None:
    track = read(tmp_path, srt((1, 1, "a"), (2, 2, "b"), (9, 9, "c")))
    assert lines(track) == [(1, 2, "a"), (2, 4, "b"), (9, 11, "c")]


def test_blank_lines_and_numbers_inside_subrip_text_stay(tmp_path: Path) -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\nfirst\n\nsecond\n\n2\n"
    text += "00:00:03,000 --> 00:00:04,000\n1984\n\n\n\n3\n00:00:05,000 --> 00:00:06,000\nend\n"
    assert [cue.text for cue in read(tmp_path, text).cues] == ["first second", "1984", "end"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
def test_any_line_end_is_read(tmp_path: Path, end: str) -> None:
    assert len(read(tmp_path, srt((1, 2, "a"), (3, 4, "b")).replace("\n", end)).cues) == 2


def test_rolling_captions_are_told_once(tmp_path: Path) -> None:
    said = [f"line number {number} of the talk" for number in range(20)]
    text, before = "WEBVTT\nKind: captions\nLanguage: en\n\n", " "
    for number, line in enumerate(said):
        text += (
            f"00:{number:02}.000 --> 00:{number:02}.990 align:start position:0%\n{before}\n{line}<c> </c>\n\n"
        )
        text += f"00:{number:02}.990 --> 00:{number + 1:02}.000 align:start position:0%\n{line}\n \n\n"
        before = line
    track = read(tmp_path, text, "a.vtt")
    assert [cue.text for cue in track.cues] == said
    assert any("rolling" in note for note in track.notes)


def test_captions_that_grow_word_by_word_are_told_once(tmp_path: Path) -> None:
    words = [
        "we",
        "choose",
        "to",
        "go",
        "to",
        "the",
        "moon",
        "in",
        "this",
        "decade",
        "and",
        "do",
        "the",
        "other",
        "things",
    ]
    cues = [(float(at), at + 1.0, " ".join(words[: at + 1])) for at in range(len(words))]
    track = read(tmp_path, srt(*cues))
    assert " ".join(cue.text for cue in track.cues) == " ".join(words)


def test_a_refrain_is_no_rolling_caption(tmp_path: Path) -> None:
    cues = [(float(at), at + 1.0, "Roger." if at % 7 < 2 else f"Message {at}") for at in range(70)]
    assert len(read(tmp_path, srt(*cues)).cues) == 70


def test_substation_alpha_is_read_without_comments_drawings_and_overrides(tmp_path: Path) -> None:
    text = (
        "[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\nFormat: Name, Fontname, Fontsize\n"
        "Style: Default,Arial,20\n\n[Events]\n"
        "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
        "Dialogue: 0,0:00:05.00,0:00:06.50,Default,,0,0,0,,Later, {\\b1}bold{\\b0}\\Nline\n"
        "Comment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,hidden\n"
        "Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\p1}m 0 0 l 9 9{\\p0}\n"
        "Dialogue: 0,0:00:02.00,0:00:03.00,Default,,0,0,0,,First\n"
    )
    for name in ("a.ass", "a.srt"):
        assert lines(read(tmp_path, text, name)) == [(2, 3, "First"), (5, 6.5, "Later, bold line")]


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ("Start, End, Text", "0:00:02.00,0:00:03.00,One, two"),
        ("Text, Start, Style, End,TEXT", "x,0:00:02.00,Default, 0:00:03.00,One, two"),
        ("Layer, End, Start, Style, Name, Text", "0,0:00:03.00,0:00:02.00,Default,,One, two"),
        ("Start, Text, End", "0,0:00:02.00,0:00:03.00,Default,,0,0,0,,One, two"),  # unusable
    ],
)
def test_the_format_line_names_the_fields_of_substation_alpha(
    tmp_path: Path, fields: str, event: str
) -> None:
    text = f"[V4+ Styles]\nFormat: Name\n\n[Events]\nFormat: {fields}\nDialogue: {event}\nDialogue: 0\n"
    assert lines(read(tmp_path, text, "a.ass")) == [(2, 3, "One, two")]


def test_words_after_a_line_separator_of_unicode_are_kept(tmp_path: Path) -> None:
    text = "[Events]\r\nDialogue: 0,0:00:02.00,0:00:03.00,Default,,0,0,0,,One\u2028two\x85three\r\n"
    assert lines(read(tmp_path, text, "a.ass")) == [(2, 3, "One two three")]


def test_youtubes_own_format_is_read(tmp_path: Path) -> None:
    text = "0:00:01.000,0:00:03.500\nHello, world\nsecond line\n\n0:01:00.000,0:01:02.000\nBye\n"
    assert lines(read(tmp_path, text, "a.sbv")) == [(1, 3.5, "Hello, world second line"), (60, 62, "Bye")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sbv", "0:00:01.000,0:00:02.000\nOpen File -> Save [Events]\n"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nOpen File -> Save [Events]\n"),
    ],
)
def test_marks_of_another_format_in_spoken_lines_do_not_decide_the_format(
    tmp_path: Path, name: str, text: str
) -> None:
    assert lines(read(tmp_path, text, name)) == [(1, 2, "Open File -> Save [Events]")]


def test_a_line_break_of_youtubes_own_format_ends_a_line_and_no_cue(tmp_path: Path) -> None:
    text = "0:00:01.000,0:00:03.500\nHello,[br][br]world[br]0:00:07.000,0:00:08.000\n"
    assert lines(read(tmp_path, text, "a.sbv")) == [(1, 3.5, "Hello, world 0:00:07.000,0:00:08.000")]
    assert read(tmp_path, srt((1, 2, "a[br]b"))).cues[0].text == "a[br]b"


@pytest.mark.slow
def test_forty_thousand_cues_are_read_in_seconds(tmp_path: Path) -> None:
    text = srt(*((at, at + 0.9, f"<i>line</i> {at} &amp; more") for at in range(40_000)))
    began = time.process_time()
    track = read(tmp_path, text)
    assert len(track.cues) == 40_000 and track.cues[-1].text == "line 39999 & more"
    assert time.process_time() - began < 6


def test_a_file_too_large_for_subtitles_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "a.srt").open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(SubtitleError, match=r"a\.srt.*bytes are too many.*split"):
        read_cue_file(tmp_path / "a.srt")


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"just a letter to nobody\n" * 9, "no line with times"), (bytes(range(256)) * 90, "a.srt")],
)
def test_what_is_no_subtitle_file_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.srt").write_bytes(data)
    with pytest.raises(SubtitleError, match=reason):
        read_cue_file(tmp_path / "a.srt")


def test_a_missing_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(SubtitleError, match="check that it is there"):
        read_cue_file(tmp_path / "gone.srt")
    assert read(tmp_path, "").notes == ("the file is empty",)
    assert read(tmp_path, "WEBVTT\n", "a.vtt").cues == ()


@pytest.mark.slow
def test_a_hostile_file_takes_no_long_time(tmp_path: Path) -> None:
    began = time.process_time()
    for evil in (
        "<" * 200_000,
        "{\\" * 100_000,
        "<script>" * 20_000,
        "<!--" * 50_000,
        "00:" * 100_000,
        "&" * 200_000,
        "," * 200_000,
        "0:00:01," * 20_000,
        " " * 200_000,
    ):
        read(tmp_path, srt((1, 2, evil), (3, 4, "after")))
        read(tmp_path, f"{evil}\n" + srt((1, 2, "a")))
        event = "Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,a"
        events = f"Format: {evil},Start,End,Text\nDialogue: {evil}"
        read(tmp_path, f"[Events]\n{event}\n{events}", "a.ass")
        last_time(tmp_path / "a.ass")
    assert time.process_time() - began < 20


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for body in (text, srt((1, 2, text), (3, 4, "x"))):
        (folder / "any.srt").write_text(body, errors="replace")
        try:
            cues = read_cue_file(folder / "any.srt").cues
        except SubtitleError:
            continue
        assert all(0 <= cue.start < cue.end and cue.text for cue in cues)


def test_embedded_tracks_are_read_like_their_sidecar(samples: Path) -> None:
    video = samples / "nasa_13013.mp4"
    track = words_of(video, (), probe(video))[0]
    assert track.source == "embedded:2" and track.language == "eng"
    assert lines(track) == lines(read_cue_file(samples / "nasa_13013.srt"))


def test_a_track_of_pictures_is_not_read(samples: Path) -> None:
    bitmap = SubtitleTrack(2, "dvdsub", "eng", None, False, True, False)
    assert words_of(samples / "nasa_13013.mp4", (), Probe("", None, None, False, (bitmap,))) == []


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mkv", "subrip"), ("a.mkv", "ass"), ("a.mp4", "mov_text"), ("a.mkv", "webvtt")]
)
def test_every_kind_of_embedded_text_is_read(tmp_path: Path, samples: Path, name: str, codec: str) -> None:
    """Tracks are copied in from a subtitle file, as `ffmpeg -i a.mp4 -i b.srt` does."""
    header = (
        b"[Script Info]\n\n[V4+ Styles]\nFormat: Name\nStyle: Default\n\n[Events]\n"
        b"Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
    )
    path = tmp_path / name
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec)
        stream.codec_context.subtitle_header = header
        for number, (start, text) in enumerate([(1000, "Hello & you"), (3000, "Two\\Nlines")]):
            dialogue = f"{number},0,Default,,0,0,0,,{{\\i1}}{text}{{\\i0}}".encode()
            subtitle = av.subtitles.subtitle.SubtitleSet.create(
                text=dialogue, start=0, end=1500, pts=start * 1000
            )
            packet = stream.codec_context.encode_subtitle(subtitle)
            packet.stream, packet.pts, packet.dts, packet.duration = stream, start, start, 1500
            packet.time_base = Fraction(1, 1000)
            container.mux(packet)
    with av.open(str(path)) as container:
        (index,) = [one.index for one in container.streams.subtitles]
    probed = Probe("", None, None, False, (SubtitleTrack(index, codec, None, None, True, True, False),))
    (track,) = words_of(path, (), probed)
    assert lines(track) == [(1, 2.5, "Hello & you"), (3, 4.5, "Two lines")]


def test_sidecars_come_first_then_tracks_and_bad_ones_last_with_a_note(tmp_path: Path, samples: Path) -> None:
    (tmp_path / "nasa_13013.srt").write_bytes((samples / "nasa_13013.srt").read_bytes())
    (tmp_path / "nasa_13013.de.forced.srt").write_text(srt((1, 2, "Schild")))
    (tmp_path / "nasa_13013.fr.srt").write_text("rien du tout, pas de temps")
    (tmp_path / "nasa_13013.pt-BR.srt").write_text(srt((1, 2, "Olá")))
    video = samples / "nasa_13013.mp4"
    sidecars = [tmp_path / f"nasa_13013{mark}.srt" for mark in ("", ".de.forced", ".fr", ".pt-BR")]
    tracks = words_of(video, sidecars, probe(video))
    assert [track.source.removeprefix("sidecar:nasa_13013") for track in tracks] == [
        ".srt",
        ".pt-BR.srt",
        "embedded:2",
        "embedded:5",
        ".de.forced.srt",
        ".fr.srt",
    ]
    assert tracks[1].language == "pt-br" and tracks[4].is_forced
    assert tracks[-1].cues == () and "nasa_13013.fr.srt" in tracks[-1].notes[0]
    assert words_of(video, sidecars, probe(video), language="pt")[0].language == "pt-br"
    assert words_of(video, sidecars, probe(video), language="en")[0].source == "embedded:2"


def test_a_video_without_words_has_no_tracks(samples: Path) -> None:
    assert words_of(samples / "frog.webm", [], probe(samples / "frog.webm")) == []


class CountingContainer:
    """A container that counts how many packets of which kind are decoded."""

    def __init__(self, container: Any, counts: dict[str, int]) -> None:
        self._container, self._counts = container, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def __enter__(self) -> CountingContainer:
        return self

    def __exit__(self, *_: object) -> None:
        self._container.close()

    def demux(self, *streams: Any) -> Any:
        for packet in self._container.demux(*streams):
            self._counts[packet.stream.type] = self._counts.get(packet.stream.type, 0) + 1
            yield packet

    def decode(self, *streams: Any, **_: Any) -> Any:
        raise AssertionError(f"{streams} were to be decoded")


def test_words_alone_never_touch_a_picture(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: dict[str, int] = {}
    real_open = av.open
    monkeypatch.setattr(
        av, "open", lambda *args, **options: CountingContainer(real_open(*args, **options), counts)
    )
    video = samples / "nasa_13013.mp4"
    tracks = words_of(video, [samples / "nasa_13013.srt"], probe(video))
    assert len(tracks) == 3
    assert counts.keys() == {"subtitle"}


@pytest.mark.parametrize(
    ("name", "text", "end"),
    [
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nOne\n\n2:30:00.000 --> 2:30:04.500\nTwo\n", 9004.5),
        ("a.srt", srt((1, 2, "One"), (3600, 3605, "Two")), 3605.0),
        ("a.sbv", "0:00:01.000,0:00:02.000\nOne\n\n1:00:00.000,1:00:09.000\nTwo\n", 3609.0),
        ("a.ass", "[Events]\nDialogue: 0,0:00:01.00,1:00:02.50,Default,,0,0,0,,One, two\n", 3602.5),
        ("a.ass", "[Events]\nFormat: Start, End, Text\nDialogue: 0:00:01.00,1:00:02.50,One\n", 3602.5),
        ("a.srt", "no times at 12:30 --> here\n", 0.0),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_the_last_time_is_read_from_the_end_of_a_file(
    tmp_path: Path, name: str, text: str, end: float, encoding: str
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    assert last_time(path) == end
    path.write_bytes(("x" * 100_000 + "\n" + text).encode(encoding))
    assert last_time(path) == end
    assert last_time(tmp_path / "absent.srt") == 0.0


def test_cues_beyond_100_hours_are_left_out_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    times = (
        "00:00:01,000 --> 00:00:02,000",
        "99:59:58,000 --> 99:59:59,000",
        "99999:00:00,000 --> 99999:00:01,000",
    )
    path.write_text("".join(f"{number}\n{line}\nwords {number}\n\n" for number, line in enumerate(times)))
    track = read_cue_file(path)
    assert [cue.text for cue in track.cues] == ["words 0", "words 1"]
    assert "1 cue(s) with times beyond 100 hours" in track.notes
    assert last_time(path) == track.cues[-1].end


def test_the_last_time_of_cues_before_0_is_0(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("1\n-00:00:09,000 --> -00:00:05,000\nearly\n")
    assert last_time(tmp_path / "a.srt") == 0


def test_the_last_time_is_not_that_of_a_reversed_cue(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(srt((1, 2, "kept"), (9, 5, "dropped")))
    assert last_time(tmp_path / "a.srt") == 2
