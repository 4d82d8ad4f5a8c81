"""Choices of the index run are shown above the list of videos, and missing files are marked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from whenabouts.corpus import Corpus

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = playwright_api.expect


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_the_list_says_what_was_chosen_and_which_file_is_gone(
    open_tab: Callable[..., Any],
    serving: Callable[..., AbstractContextManager[str]],
    tmp_path: Path,
    samples: Path,
) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    shutil.copy(samples / "bottle-detection.mp4", folder / "film.mp4")
    for language in ("en", "de"):
        cues = "1\n00:00:00,000 --> 00:00:02,000\na bottle\n"
        (folder / f"film.{language}.srt").write_text(cues)
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(folder, processes=1)
    with serving(corpus, tmp_path / "cache") as address:
        page = open_tab(address)
        page.goto(address)
        expect(page.locator("#notes li")).to_contain_text("1 video has several subtitles; searched: en")
        expect(page.locator(".card")).not_to_contain_text("file gone")
        # The thumbnail of a missing file is answered with 410, which the browser logs.
        page.watched.expected.append("410")
        (folder / "film.mp4").unlink()
        page.goto(address)
        expect(page.locator("#notes li")).to_have_count(2)
        expect(page.locator("#notes")).to_contain_text("1 file is gone but still searched")
        expect(page.locator(".card")).to_contain_text("file gone")
