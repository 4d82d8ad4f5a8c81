"""Which unrelated sentences belong to a stream: by the languages of its texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts.calibration.banks import banks_of
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store


@pytest.mark.parametrize(("text", "languages"), [("电LE 二", "en"), ("你好，今天我们去公园散步吧", "zh")])
def test_a_sign_or_two_read_in_a_picture_is_no_language_of_a_stream(
    tmp_path: Path, text: str, languages: str
) -> None:
    store = Store.open(tmp_path / "corpus", create=True)
    store.add_stream(StreamInfo("screen_text", "letters", "a", 0))
    video = VideoRecord("film", "/film.mp4", streams={"screen_text": "a"}, has_picture=True)
    store.put_video(video, {"screen_text": ClipColumns(np.zeros(1), np.ones(1), [text])})
    assert list(banks_of(store, {})["screen_text"].groups) == [languages]
