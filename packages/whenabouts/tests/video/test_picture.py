"""Single pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from whenabouts.video.picture import decode_picture, read_picture
from whenabouts.video.probe import MediaError


@pytest.fixture(scope="module")
def halves() -> Image.Image:
    """Red on the left, blue on the right."""
    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[:, :40, 0] = 255
    pixels[:, 40:, 2] = 255
    return Image.fromarray(pixels)


def _bytes(picture: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_each_kind_is_read(halves: Image.Image, kind: str) -> None:
    image = decode_picture(_bytes(halves, kind), kind)
    assert image.shape == (60, 80, 3)
    assert np.abs(image[30, 10].astype(int) - (255, 0, 0)).max() < 20
    assert np.abs(image[30, 70].astype(int) - (0, 0, 255)).max() < 20


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_picture_is_turned_as_its_exif_says(halves: Image.Image, kind: str, orientation: int) -> None:
    halves = halves.copy()
    halves.paste((0, 255, 0), (0, 0, 80, 20))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = _bytes(halves, kind, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    image = decode_picture(data, "turned")
    assert image.shape == expected.shape
    assert np.abs(image.astype(int) - expected).mean() < 12


def test_exif_data_that_is_cut_off_turns_nothing(halves: Image.Image) -> None:
    data = _bytes(halves, "JPEG") + b"Exif\0\0II*\0\xff\xff\xff\x7f"
    assert decode_picture(data, "odd.jpg").shape == (60, 80, 3)


@pytest.mark.parametrize("kind", ["GIF", "PNG"])
def test_of_an_animated_picture_the_first_is_taken(halves: Image.Image, kind: str) -> None:
    later = Image.new("RGB", halves.size, (0, 255, 0))
    data = _bytes(halves, kind, save_all=True, append_images=[later], duration=100)
    assert decode_picture(data, "moving")[30, 10, 0] > 200


def test_an_animated_webp_is_refused_with_a_remedy(halves: Image.Image) -> None:
    later = Image.new("RGB", halves.size, (0, 255, 0))
    data = _bytes(halves, "WEBP", save_all=True, append_images=[later], duration=100)
    with pytest.raises(MediaError, match="an animated WebP, which is not read; give one of its pictures"):
        decode_picture(data, "moving.webp")


def test_a_large_picture_is_made_smaller(halves: Image.Image) -> None:
    image = decode_picture(_bytes(halves.resize((800, 600)), "PNG"), "large.png", 120)
    assert image.shape == (120, 160, 3)


@pytest.mark.slow
def test_an_8k_picture_is_read_and_a_larger_one_refused(halves: Image.Image) -> None:
    assert decode_picture(_bytes(halves.resize((7680, 4320)), "PNG"), "8k.png", 100).shape == (100, 178, 3)
    with pytest.raises(MediaError, match=r"16k\.png: pictures of 16000 x 4000 are larger than the limit"):
        decode_picture(_bytes(Image.new("1", (16000, 4000)), "PNG"), "16k.png")


def test_grey_and_see_through_pictures_become_rgb(halves: Image.Image) -> None:
    for mode in ("L", "RGBA", "P", "1"):
        assert decode_picture(_bytes(halves.convert(mode), "PNG"), mode).shape == (60, 80, 3)


def test_a_comment_in_another_encoding_is_no_damage(halves: Image.Image, tmp_path: Path) -> None:
    halves.convert("P").save(tmp_path / "a.gif", comment="café".encode("latin-1"))
    assert read_picture(tmp_path / "a.gif").shape[:2] == halves.size[::-1]


def test_what_is_no_picture_or_damaged_is_refused(halves: Image.Image, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="not a picture"):
        decode_picture(b"", "empty")
    with pytest.raises(MediaError, match="damaged"):
        decode_picture(_bytes(halves, "PNG")[:40], "cut.png")
    with pytest.raises(MediaError, match="not a picture"):
        decode_picture(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "drawn.svg")
    with pytest.raises(MediaError, match="no such file"):
        read_picture(tmp_path / "nowhere.png")
    with pytest.raises(MediaError, match="folder"):
        read_picture(tmp_path)
