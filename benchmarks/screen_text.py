"""How well text on the screen is read and searched: text rendered into real videos, and what it costs.

    python -m benchmarks.screen_text DATA OUT.json [--films 6] [--side 640] [--choose]

DATA is the folder of `real_video` and `transcripts`. Slides, captions, lower thirds, signs and a ticker are
drawn into films of `real_video` in several fonts, sizes, speeds and compressions, encoded with x264, indexed
with `--screen-text` as a user would, and searched. `--choose` tries settings of the reader instead, with
other seeds, films and fonts than those that are reported on.

- Character error: edits that turn the nearest line that was read at that time into the true line, by its
  letters, at most 1; the mean over all true lines, with the share of lines without any error.
- Lines that nobody wrote: lines a minute that are like no true line.
- hit@1, hit@5: the right film and time among the first answers (at least half of the shorter span is shared).
  Words: two or three words that stand together. Part: some signs of a number plate. Meaning: the heading that
  an editor gave to the part of a talk whose sentences stand on a slide without it.
- How sure: of texts by how sure the reader was of them, the share of lines that are right to the letter.
- Scripts: one line in each language, in the font that fontconfig names for it.
- Cost: processor seconds for an hour of film beside those of decoding and of the words.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import resource
import subprocess
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import av
import matplotlib
import numpy as np
from benchmarks.machine import describe_machine
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from whenabouts import Corpus
from whenabouts.index.reading import FrameBatch, ReadTask, ReadVideo, read_file
from whenabouts.index.records import StreamInfo, VideoRecord
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Reads, StreamRun
from whenabouts.streams import stream
from whenabouts.video import text_reader
from whenabouts.video.cues import read_cue_file
from whenabouts.video.frames import sample_frames
from whenabouts.video.text_reader import TextLine, TextReader

Picture = NDArray[np.uint8]

SECONDS, RATE = 24.0, 5
FRAME_SECONDS = 2.0
FILMS = ("car-detection.mp4", "flower.webm", "man_green_wall.mp4", "bikes_vfr_vp9.webm", "dog_rot180_vfr.mp4")
OTHER_FILMS = ("bottle-detection.mp4", "frog.webm", "friday.mp4", "nasa_13013.mp4", "cockatoo_av1.mkv")
DEJAVU = Path("/usr/share/fonts/truetype/dejavu")
PLOT_FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
FONTS = (
    DEJAVU / "DejaVuSansCondensed-Bold.ttf",
    DEJAVU / "DejaVuSerif-Bold.ttf",
    PLOT_FONTS / "STIXGeneral.ttf",
    PLOT_FONTS / "cmss10.ttf",
)
OTHER_FONTS = (
    DEJAVU / "DejaVuSans.ttf",
    DEJAVU / "DejaVuSans-Bold.ttf",
    DEJAVU / "DejaVuSerif.ttf",
    PLOT_FONTS / "STIXGeneralBol.ttf",
)
NAMES = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Emmy Noether", "Katherine Johnson", "Hedy Lamarr")
ROLES = ("chief engineer", "head of research", "mayor of Springfield", "marine biologist", "head coach")


@dataclass(frozen=True)
class Shown:
    """Lines that stand in a film from `start` to `end`, and a query for their meaning ("": none)."""

    start: float
    end: float
    lines: tuple[str, ...]
    meaning: str = ""


@dataclass(frozen=True)
class Film:
    """A film that was made, of which condition, and what stands in it."""

    condition: str
    path: Path
    shown: tuple[Shown, ...]


@dataclass(frozen=True)
class Style:
    """How text is drawn: `height` of its letters as a share of the picture's, `blur` and shade."""

    kind: str
    size: tuple[int, int] = (1280, 720)
    height: float = 0.05
    crf: int = 26
    blur: float = 0.0
    speed: float = 0.0


CONDITIONS = {
    "slides": Style("slide", height=0.05),
    "slides, 360 lines, crf 36": Style("slide", (640, 360), 0.05, 36),
    "slides, small letters": Style("slide", (1920, 1080), 0.02),
    "captions": Style("caption", height=0.055),
    "captions, small and soft": Style("caption", height=0.035, crf=34, blur=1.2),
    "captions, 360 lines, crf 36": Style("caption", (640, 360), 0.055, 36),
    "lower thirds": Style("lower third", height=0.045),
    "signs that move": Style("sign", height=0.06, speed=0.04),
    "small signs, fast": Style("sign", height=0.035, speed=0.15, crf=30),
    "ticker": Style("ticker", height=0.045, speed=0.12),
    "no text": Style("none"),
}


@dataclass(frozen=True)
class Words:
    """What is written: headings and sentences of talks."""

    sections: Sequence[tuple[str, Sequence[str]]]

    @classmethod
    def of(cls, folder: Path) -> Words:
        """Sections of the talks of a folder: heading, and sentences of it that fit on a slide."""
        sections = []
        queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
        for query in queries:
            if not query["recording"].startswith("btc_"):
                continue
            cues = read_cue_file(folder / f"{query['recording']}.vtt").cues
            own = [cue.text for cue in cues if query["start"] <= cue.start < query["end"]]
            short = [re.sub(r"^[^:]{0,30}: ", "", text) for text in own]
            fitting = [text for text in short if 25 <= len(text) <= 70 and text.isascii()]
            if len(fitting) >= 6:
                sections.append((query["query"], fitting))
        return cls(sections)


# Films that are drawn into ---------------------------------------------------------------------------


def background(path: Path, size: tuple[int, int]) -> list[Picture]:
    """The frames of a film at `RATE`, cut and scaled to a size, for as long as it lasts."""
    with sample_frames(path, RATE) as reader:
        frames = [frame.image for frame, _ in zip(reader, range(int(SECONDS * RATE)), strict=False)]
    wide = size[0] / size[1]
    cut = []
    for image in frames:
        height, width = image.shape[:2]
        new = (min(width, round(height * wide)), min(height, round(width / wide)))
        left, top = (width - new[0]) // 2, (height - new[1]) // 2
        picture = Image.fromarray(image).crop((left, top, left + new[0], top + new[1]))
        cut.append(np.asarray(picture.resize(size, Image.Resampling.BICUBIC)))
    return cut


def font_of(path: Path, pixels: float) -> Any:
    return ImageFont.truetype(str(path), max(8, round(pixels * 1.35)))


class Drawer:
    """Draws one film: chooses what is written and where, and each of its frames."""

    def __init__(self, style: Style, words: Words, fonts: Sequence[Path], rng: random.Random) -> None:
        self.style, self.words, self.rng = style, words, rng
        self.font_path = rng.choice(fonts)
        self.pixels = style.height * style.size[1] * rng.uniform(0.85, 1.15)
        self.font = font_of(self.font_path, self.pixels)
        self.dark = rng.random() < 0.5
        self.shown = tuple(self._plan())
        self.overlays = [self._overlay(text) for text in self.shown]
        self.path = [(rng.uniform(0.1, 0.3), rng.uniform(0.15, 0.6), rng.uniform(-8, 8)) for _ in self.shown]

    def _plan(self) -> Iterator[Shown]:
        rng, at = self.rng, 0.0
        if self.style.kind == "none":
            return
        if self.style.kind == "ticker":
            running = [rng.choice(rng.choice(self.words.sections)[1]) for _ in range(3)]
            yield Shown(0.0, SECONDS, tuple(running))
            return
        while at < SECONDS - 3:
            if self.style.kind == "slide":
                end = min(SECONDS, at + rng.uniform(6, 10))
                heading, sentences = rng.choice(self.words.sections)
                chosen = rng.sample(sentences, rng.randint(2, 4))
                yield Shown(at, end, tuple(self._wrapped(chosen)[:8]), heading)
                at = end
                continue
            at += rng.uniform(0.3, 2.0)
            length = {"caption": (2.2, 4.5), "lower third": (3.5, 6), "sign": (2.5, 5)}[self.style.kind]
            end = min(SECONDS, at + rng.uniform(*length))
            if end - at > 2:
                yield Shown(at, end, tuple(self._lines()))
            at = end

    def _wrapped(self, sentences: Sequence[str]) -> list[str]:
        most = int(self.style.size[0] * 0.62 / (self.pixels * 0.75))
        return [line for text in sentences for line in textwrap.wrap(text, most)]

    def _lines(self) -> list[str]:
        rng = self.rng
        if self.style.kind == "lower third":
            return [rng.choice(NAMES), rng.choice(ROLES)]
        if self.style.kind == "sign":
            letters = "ABCDEFGHJKLMNPRSTUVWXYZ"
            return [
                "".join(rng.choices(letters, k=2))
                + "".join(rng.choices("123456789", k=2))
                + " "
                + "".join(rng.choices(letters, k=3))
            ]
        sentence = rng.choice(rng.choice(self.words.sections)[1])
        return textwrap.wrap(sentence, int(self.style.size[0] * 0.8 / (self.pixels * 0.75)))[:2]

    def _overlay(self, shown: Shown) -> Image.Image:
        _width, _height = self.style.size
        if self.style.kind == "slide":
            return self._slide(shown)
        spacing = round(self.pixels * 0.5)
        text = ("      ".join(shown.lines)) if self.style.kind == "ticker" else "\n".join(shown.lines)
        left, top, right, bottom = ImageDraw.Draw(Image.new("RGB", (8, 8))).multiline_textbbox(
            (0, 0), text, self.font, spacing=spacing
        )
        pad = round(self.pixels * 0.5)
        image = Image.new("RGBA", (int(right - left) + 2 * pad, int(bottom - top) + 2 * pad), (0, 0, 0, 0))
        draw = ImageDraw.Draw(image)
        ink, stroke = (255, 255, 255, 255), 0
        if self.style.kind == "caption" and self.dark:
            stroke = max(1, round(self.pixels * 0.08))
        else:
            shade = {"sign": (240, 240, 235, 255), "ticker": (150, 20, 20, 255)}.get(
                self.style.kind, (20, 25, 40, 190)
            )
            draw.rectangle((0, 0, *image.size), shade)
            ink = (15, 15, 15, 255) if self.style.kind == "sign" else ink
        draw.multiline_text(
            (pad - left, pad - top),
            text,
            ink,
            self.font,
            spacing=spacing,
            align="center" if self.style.kind == "caption" else "left",
            stroke_width=stroke,
            stroke_fill=(0, 0, 0, 255),
        )
        return image.filter(ImageFilter.GaussianBlur(self.style.blur)) if self.style.blur else image

    def _slide(self, shown: Shown) -> Image.Image:
        width, height = self.style.size
        paper, ink = ((24, 28, 38), (235, 235, 235)) if self.dark else ((250, 250, 246), (25, 25, 30))
        image = Image.new("RGBA", self.style.size, (*paper, 255))
        draw = ImageDraw.Draw(image)
        step = self.pixels * 2.2
        top = (height - step * len(shown.lines)) / 2
        for number, line in enumerate(shown.lines):
            draw.text((width * 0.06, top + number * step), line, (*ink, 255), self.font)
        return image

    def frame(self, base: Picture, seconds: float) -> Picture:
        """One frame with what is written at that time."""
        picture = Image.fromarray(base)
        for number, shown in enumerate(self.shown):
            if shown.start <= seconds < shown.end:
                self._paste(picture, number, seconds - shown.start, base)
        return np.asarray(picture)

    def _paste(self, picture: Image.Image, number: int, since: float, base: Picture) -> None:
        overlay, (width, height) = self.overlays[number], self.style.size
        x, y, turn = self.path[number]
        match self.style.kind:
            case "slide":
                picture.paste(overlay, (0, 0))
                corner = Image.fromarray(base).resize((width // 5, height // 5))
                picture.paste(corner, (width - width // 5, 0))
            case "caption":
                place = (width - overlay.width) // 2, round(height * 0.94) - overlay.height
                picture.paste(overlay, place, overlay)
            case "lower third":
                picture.paste(overlay, (round(width * 0.07), round(height * 0.72)), overlay)
            case "ticker":
                moved = round(width * (0.6 - self.style.speed * since))
                picture.paste(overlay, (moved, round(height * 0.92) - overlay.height // 2), overlay)
            case "sign":
                turned = overlay.rotate(turn, expand=True, resample=Image.Resampling.BICUBIC)
                # A shutter of a fiftieth of a second smears what moves.
                smear = width * self.style.speed / 50
                turned = turned.filter(ImageFilter.BoxBlur((smear / 2, 0)))
                at = (x + self.style.speed * since) * width
                picture.paste(turned, (round(at), round(y * height)), turned)


def make_film(out: Path, drawer: Drawer, frames: Sequence[Picture]) -> None:
    """Encode a film of `SECONDS` at `RATE`; the background runs forth and back."""
    with av.open(str(out), "w") as container:
        encoded = container.add_stream(
            "libx264", rate=RATE, options={"crf": str(drawer.style.crf), "preset": "veryfast"}
        )
        encoded.width, encoded.height = drawer.style.size
        encoded.pix_fmt = "yuv420p"
        there_and_back = [*range(len(frames)), *range(len(frames) - 2, 0, -1)]
        for number in range(int(SECONDS * RATE)):
            base = frames[there_and_back[number % len(there_and_back)]]
            picture = av.VideoFrame.from_ndarray(drawer.frame(base, number / RATE), format="rgb24")
            container.mux(encoded.encode(picture))
        container.mux(encoded.encode(None))


def make_films(folder: Path, data: Path, count: int, *, choose: bool) -> list[Film]:
    """`count` films of each condition."""
    words = Words.of(data / "transcripts")
    half = [section for number, section in enumerate(words.sections) if number % 2 == choose]
    names, fonts = (OTHER_FILMS, OTHER_FONTS) if choose else (FILMS, FONTS)
    films, backgrounds = [], dict[tuple[str, tuple[int, int]], list[Picture]]()
    for condition, style in CONDITIONS.items():
        for number in range(count):
            name = names[number % len(names)]
            key = name, style.size
            if key not in backgrounds:
                backgrounds[key] = background(data / "real_video" / name, style.size)
            rng = random.Random(f"{condition} {number} {choose}")
            drawer = Drawer(style, Words(half), fonts, rng)
            path = folder / f"{re.sub('[^a-z0-9]+', '_', condition)}_{number}.mp4"
            make_film(path, drawer, backgrounds[key])
            films.append(Film(condition, path, drawer.shown))
    return films


# What was read ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clip:
    """A text that was read."""

    start: float
    end: float
    lines: tuple[str, ...]


def read_film(film: Film, reader: Any, size: int = 720) -> list[Clip]:
    """The clips that the stream makes of a film."""
    own = stream("screen_text")
    settings = FrameSettings(FRAME_SECONDS, size)
    info = StreamInfo(own.name, "letters", "letters", 0, {"frame_seconds": FRAME_SECONDS})
    run = StreamRun(own, info, None, Reads(frames=settings), reader=reader)
    kept: list[Any] = []
    for content in read_file(ReadTask(0, film.path, "media", frames=(settings,), content_hash="x")):
        if isinstance(content, FrameBatch):
            kept.append(own.encode(content, run, tuple(kept)))
    clips = own.clips(ReadVideo(VideoRecord("film", str(film.path)), SECONDS), kept, run)
    texts = clips.text or ()
    return [
        Clip(start, end, tuple(text.split("\n")))
        for start, end, text in zip(clips.start.tolist(), clips.end.tolist(), texts, strict=True)
    ]


def distance(first: str, second: str) -> int:
    """Levenshtein's."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def plain(text: str) -> str:
    return re.sub(r"\s+", "", text)


def character_error(line: str, clips: Sequence[Clip], shown: Shown) -> float:
    """Of the nearest line that was read while a line was shown."""
    read = {plain(text) for c in clips if c.start < shown.end and c.end > shown.start for text in c.lines}
    return min((distance(plain(line), text) / len(plain(line)) for text in read), default=1.0)


def like_any(text: str, film: Film) -> bool:
    """Whether a line that was read is a true one, or a part of one."""
    for line in (line for shown in film.shown for line in shown.lines):
        match = SequenceMatcher(None, plain(text), plain(line), autojunk=False)
        longest = sum(block.size for block in match.get_matching_blocks())
        if longest >= 0.5 * len(plain(text)):
            return True
    return False


def reading_quality(films: Sequence[Film], read: Mapping[Path, Sequence[Clip]]) -> dict[str, Any]:
    """Character error, lines without error, invented lines, time shared: of some films."""
    errors, shares, invented = [], [], 0
    for film in films:
        clips = read[film.path]
        for shown in film.shown:
            errors += [min(1.0, character_error(line, clips, shown)) for line in shown.lines]
            shares.append(max((_iou(clip, shown) for clip in clips), default=0.0))
        invented += sum(not like_any(text, film) for clip in clips for text in clip.lines)
    row: dict[str, Any] = {"invented_lines_a_minute": round(invented / (len(films) * SECONDS / 60), 2)}
    if errors:
        row |= {
            "lines": len(errors),
            "character_error": round(float(np.mean(errors)), 4),
            "lines_without_error": share([error == 0 for error in errors]),
            "time_iou": round(float(np.mean(shares)), 3),
        }
    return row


def _iou(clip: Clip, shown: Shown) -> float:
    shared = min(clip.end, shown.end) - max(clip.start, shown.start)
    return max(0.0, shared) / (max(clip.end, shown.end) - min(clip.start, shown.start))


def conditions_of(films: Sequence[Film]) -> dict[str, list[Film]]:
    grouped: dict[str, list[Film]] = {}
    for film in films:
        grouped.setdefault(film.condition, []).append(film)
    return grouped


class FilteredReader:
    """Reads each picture once, and hands on the lines with at least some score."""

    def __init__(self, reader: TextReader) -> None:
        self.reader, self.least = reader, 0.0
        self._read: dict[bytes, list[TextLine]] = {}

    def read(self, pictures: Sequence[Picture]) -> list[list[TextLine]]:
        """As `TextReader` does."""
        keys = [hashlib.blake2b(picture.tobytes()).digest() for picture in pictures]
        fresh = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self._read}
        self._read |= dict(zip(fresh, self.reader.read(list(fresh.values())), strict=True))
        return [[line for line in self._read[key] if line.score >= self.least] for key in keys]


def choose(films: Sequence[Film]) -> Iterator[dict[str, Any]]:
    """Settings of the reader, each with its quality and cost."""
    text_reader.LEAST_SCORE = 0.3
    for side in (640, 736, 960):
        reader = FilteredReader(TextReader(1, side))
        for condition, some in conditions_of(films).items():
            for least in (0.5, 0.6, 0.7, 0.8, 0.9):
                reader.least, began = least, processor_seconds()
                read = {film.path: read_film(film, reader) for film in some}
                cost = (processor_seconds() - began) / (len(some) * SECONDS) * 3600
                row = {"side": side, "least_score": least, "condition": condition}
                # Later scores are of lines that are read already.
                cost_row = {"seconds_an_hour": round(cost)} if least == 0.5 else {}
                yield row | reading_quality(some, read) | cost_row


def processor_seconds() -> float:
    """Of this process and those that it has waited for."""
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in own)


# What is searched -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A query, of which kind, and where its answer is."""

    kind: str
    text: str
    film: Film
    shown: Shown


def queries_of(films: Sequence[Film]) -> Iterator[Asked]:
    """A query of each kind for what is shown, with words that stand nowhere else."""
    counts = Counter(
        word for film in films for shown in film.shown for line in shown.lines for word in set(line.split())
    )
    rng = random.Random(1)
    for film in films:
        for shown in film.shown:
            lines = [line.split() for line in shown.lines]
            phrases = [words[at : at + 3] for words in lines for at in range(max(1, len(words) - 2))]
            rare = [phrase for phrase in phrases if min(counts[word] for word in phrase) == 1]
            if "sign" in film.condition:
                plate = shown.lines[0].replace(" ", "")
                at = rng.randint(0, len(plate) - 4)
                yield Asked("part", plate[at : at + 4], film, shown)
            if rare:
                yield Asked("words", " ".join(rng.choice(rare)), film, shown)
            if shown.meaning:
                yield Asked("meaning", shown.meaning, film, shown)


def is_hit(moment: Any, asked: Asked) -> bool:
    """Whether a moment shares at least half of the shorter span with what was shown."""
    if Path(moment.path) != asked.film.path:
        return False
    shared = min(moment.end, asked.shown.end) - max(moment.start, asked.shown.start)
    shorter = min(moment.end - moment.start, asked.shown.end - asked.shown.start)
    return bool(shared >= 0.5 * shorter)


def search_quality(corpus: Corpus, films: Sequence[Film]) -> list[dict[str, Any]]:
    """hit@1 and hit@5 by condition and kind of query, with Wilson's intervals (95 %)."""
    ranks: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for asked in queries_of(films):
        moments = corpus.search(asked.text, k=5, streams=("screen_text",)).moments
        rank = next((rank for rank, moment in enumerate(moments) if is_hit(moment, asked)), 99)
        ranks[asked.film.condition, asked.kind].append(rank)
        ranks["all", asked.kind].append(rank)
    return [
        {"condition": condition, "kind": kind, "queries": len(some)}
        | {f"hit@{k}": share([rank < k for rank in some]) for k in (1, 5)}
        for (condition, kind), some in ranks.items()
    ]


def share(hits: Sequence[bool]) -> list[float]:
    """The share of hits, and the ends of its interval."""
    n, mean, z = len(hits), sum(hits) / len(hits), 1.96
    middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * ((mean * (1 - mean) + z * z / (4 * n)) / n) ** 0.5
    return [round(value, 3) for value in (mean, middle - half, middle + half)]


def report(films: Sequence[Film], folder: Path) -> dict[str, Any]:
    """All numbers; the cost is that of the first film of each condition, read once more by itself."""
    reader = TextReader(1)
    corpus = Corpus(folder / "corpus", create=True)
    corpus.add(*[film.path for film in films], screen_text=True, processes=1)
    rows = []
    for condition, some in conditions_of(films).items():
        before = processor_seconds()
        read_film(some[0], reader)
        seconds = (processor_seconds() - before) / SECONDS * 3600
        row = {"condition": condition, "films": len(some)}
        row |= reading_quality(some, {film.path: clips_in(corpus, film) for film in some})
        rows.append(row | {"seconds_an_hour": round(seconds)})
        print(json.dumps(rows[-1]), flush=True)
    return {
        "machine": describe_machine("rapidocr", "onnxruntime", "av"),
        "date": time.strftime("%Y-%m-%d"),
        "reader": reader.fingerprint,
        "reading": rows,
        "sure": sure_and_right(corpus, films),
        "scripts": list(scripts(reader)),
        "search": search_quality(corpus, films),
    }


def sure_and_right(corpus: Corpus, films: Sequence[Film]) -> list[dict[str, Any]]:
    """Lines by how sure the reader was of their text, and the share of them that is a true line."""
    lines: list[tuple[float, bool]] = []
    for film in films:
        video = corpus.resolve(film.path.name)
        block = corpus.store.clips_of("screen_text", [video.video_id], vectors=False)
        true = {plain(line) for shown in film.shown for line in shown.lines}
        assert block.recognised is not None
        for text, sure in zip(block.text, block.recognised.tolist(), strict=True):
            lines += [(sure, plain(line) in true) for line in text.split("\n")]
    table = []
    for low, high in ((0.7, 0.9), (0.9, 0.97), (0.97, 0.99), (0.99, 1.01)):
        own = [right for sure, right in lines if low <= sure < high]
        if own:
            right = round(sum(own) / len(own), 3)
            table.append({"from": low, "to": min(high, 1.0), "lines": len(own), "right": right})
    return table


SCRIPTS = {
    "en": "The harbour opens at seven",
    "de": "Müller über große Straßen, Übergänge",
    "fr": "Où êtes-vous, garçon français à Noël ?",
    "es": "¿Dónde está el niño mañana?",
    "pl": "Zażółć gęślą jaźń w Łodzi",
    "cs": "Příliš žluťoučký kůň úpěl",
    "tr": "Işık ağaç çiçeği İstanbul",
    "sv": "Åsa går över ån på älven",
    "vi": "Tiếng Việt rất đẹp và khó",
    "zh-cn": "今天天气很好我们去公园",
    "zh-tw": "歡迎來到臺灣的圖書館",
    "ja": "こんにちは東京タワーへようこそ",
    "ko": "안녕하세요 서울 날씨가",
    "ru": "Привет мир, хорошая погода",
    "el": "Καλημέρα κόσμε από την Αθήνα",
    "ar": "مرحبا بالعالم الجميل",
    "he": "שלום עולם יפה",
    "hi": "नमस्ते दुनिया",
    "th": "สวัสดีชาวโลก",
}


def scripts(reader: TextReader) -> Iterator[dict[str, Any]]:
    """A line in each of some languages: what was read, and how like the truth it is."""
    for language, text in SCRIPTS.items():
        command = ["fc-match", "-f", "%{file}", f":lang={language}"]
        path = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        picture = Image.new("RGB", (1280, 360), (240, 240, 235))
        ImageDraw.Draw(picture).text((80, 140), text, (20, 20, 40), ImageFont.truetype(path, 44))
        (lines,) = reader.read([np.asarray(picture)])
        read = " ".join(line.text for line in lines)
        error = min(1.0, distance(plain(text), plain(read)) / len(plain(text)))
        row = {"language": language, "font": Path(path).name, "text": text, "read": read}
        yield row | {"character_error": round(error, 3)}


def clips_in(corpus: Corpus, film: Film) -> list[Clip]:
    """The clips of a film in a corpus."""
    video = corpus.resolve(film.path.name)
    block = corpus.store.clips_of("screen_text", [video.video_id], vectors=False)
    times = zip(block.start.tolist(), block.end.tolist(), block.text, strict=True)
    return [Clip(start, end, tuple(text.split("\n"))) for start, end, text in times]


def real_text(data: Path) -> dict[str, list[str]]:
    """What is read in the films as they are."""
    reader, read = TextReader(1), dict[str, list[str]]()
    for path in sorted((data / "real_video").iterdir()):
        if path.suffix in (".mp4", ".mkv", ".webm", ".mov", ".avi") and path.stat().st_size:
            clips = read_film(Film("real", path, ()), reader)
            read[path.name] = [f"{c.start:.0f}-{c.end:.0f} s: {' / '.join(c.lines)}" for c in clips]
    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--films", type=int, default=6, help="of each condition")
    parser.add_argument("--side", type=int, default=text_reader.LONGEST_SIDE, help="pixels that are read")
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    text_reader.LONGEST_SIDE = options.side
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        films = make_films(folder, options.data, options.films, choose=options.choose)
        if options.choose:
            numbers: Any = list(choose(films))
        else:
            numbers = {"real": real_text(options.data)} | report(films, folder)
        options.out.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
