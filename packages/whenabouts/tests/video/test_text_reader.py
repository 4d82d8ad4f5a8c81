"""Text in pictures, read by the real networks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from whenabouts.video.text_reader import TextReader, TextReaderUnavailableError, why_unavailable

LINES = ("Gradient descent converges", "RE16 TGK", "Total: 12.5 %")


def picture_with(lines: Sequence[str], size: tuple[int, int] = (960, 540)) -> NDArray[np.uint8]:
    picture = Image.new("RGB", size, "white")
    for number, line in enumerate(lines):
        place = (60, 80 + 120 * number)
        ImageDraw.Draw(picture).text(place, line, "black", ImageFont.load_default(44))
    return np.asarray(picture)


@pytest.fixture(scope="module")
def reader() -> TextReader:
    return TextReader(threads=2)


@pytest.mark.slow
def test_lines_are_read_from_top_to_bottom_with_their_places(reader: TextReader) -> None:
    empty = np.full((540, 960, 3), 200, np.uint8)
    lines, none = reader.read([picture_with(LINES), empty])
    assert none == []
    assert tuple(line.text for line in lines) == LINES
    assert all(line.score > 0.9 for line in lines)
    left, top, right, bottom = lines[1].box
    assert 0.05 < left < 0.08 and 0.25 < right < 0.35
    assert 0.35 < top < 0.42 and 0.44 < bottom < 0.5


@pytest.mark.slow
def test_a_picture_that_stands_on_its_head_is_read(reader: TextReader) -> None:
    upright = picture_with(LINES[:2])
    (lines,) = reader.read([np.ascontiguousarray(upright[::-1, ::-1])])
    assert {line.text for line in lines} == set(LINES[:2])


def test_noise_is_no_text(reader: TextReader) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (360, 640, 3), np.uint8)
    assert reader.read([noise]) == [[]]


@pytest.mark.parametrize("shape", [(1, 1), (4, 900), (900, 4), (17, 900), (16, 16), (2160, 3840)])
def test_pictures_of_any_shape_are_read_or_left_out(reader: TextReader, shape: tuple[int, int]) -> None:
    (lines,) = reader.read([np.full((*shape, 3), 90, np.uint8)])
    assert lines == []


def test_nothing_is_read_of_nothing(reader: TextReader) -> None:
    assert reader.read([]) == []


_MANY_SIZES = """
import random
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from whenabouts.resident import resident_bytes
from whenabouts.video.text_reader import TextReader
draw = random.Random(5)
reader, words = TextReader(2), "harbour light engine 12.5 glacier of the and RE16 TGK underground".split()
def picture():
    size = draw.choice([(1280, 720), (640, 360), (720, 1280), (1706, 720), (400, 300)])
    image = Image.new("RGB", size, draw.choice(["white", "navy"]))
    count = draw.choice([0, 2, 8, 20])
    for row in range(count):
        place, text = (5, size[1] * row // count), " ".join(draw.choices(words, k=draw.randint(1, 12)))
        ImageDraw.Draw(image).text(place, text, "orange", ImageFont.load_default(draw.randint(11, 30)))
    return np.asarray(image)[: 8 * draw.randint(20, size[1] // 8)]
for _ in range(10):
    reader.read([picture() for _ in range(draw.randint(2, 16))])
    print(resident_bytes() >> 20)
"""


@pytest.mark.slow
def test_pictures_of_many_sizes_leave_no_memory_behind() -> None:
    code = [sys.executable, "-c", _MANY_SIZES]
    sizes = subprocess.run(code, capture_output=True, text=True, check=True, timeout=900).stdout.split()
    assert max(map(int, sizes[3:])) < int(sizes[2]) + 100
    assert max(map(int, sizes)) < 450


@pytest.mark.slow
def test_reading_opens_no_connection(tmp_path: Path) -> None:
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('a connection was opened')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "import numpy as np\n"
        "from whenabouts.video.text_reader import TextReader\n"
        "print(TextReader().read([np.zeros((90, 160, 3), np.uint8)]))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[[]]" and done.stderr == ""
    assert not list(tmp_path.rglob("*onnxruntime*"))  # the id by which its maker would know this device


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'whenabouts[screen]'" in (why_unavailable() or "")
    with pytest.raises(TextReaderUnavailableError, match=r"whenabouts\[screen\]"):
        TextReader()


def test_a_package_without_the_networks_is_refused_before_anything_could_be_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whenabouts.video.text_reader._FILES", {"Det": "another.onnx"})
    with pytest.raises(TextReaderUnavailableError, match=r"lacks another\.onnx"):
        TextReader()
