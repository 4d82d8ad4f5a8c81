"""Fixtures of the page's tests: a server and a Chromium; errors in the browser fail the test."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import MadeOnce

from whenabouts.corpus import Corpus

playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("fastapi", reason="the server's packages are not installed")
CHROMIUM = Path("/usr/bin/chromium")
# On a busy machine an answer takes longer than the usual five seconds.
playwright_api.expect.set_options(timeout=20_000)
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

# A name and words that would run a script if the page inserted them as HTML.
HOSTILE_NAME = "<img src=x onerror=hacked()> & <script>hacked()<"
_HOSTILE_VTT = """WEBVTT

00:00.000 --> 00:02.000
The harbour &lt;img src=x onerror="hacked()"&gt; at dawn

00:02.000 --> 00:04.000
&lt;script&gt;hacked()&lt;/script&gt; boats leave "quoted' text

00:04.000 --> 00:06.000
The end of the harbour
"""
_RABBIT_SRT = """1
00:00:00,000 --> 00:00:01,000
Rabbits dig a burrow under the hedge

2
00:00:01,000 --> 00:00:02,000
and carry dry grass into it
"""


@pytest.fixture(scope="session")
def videos(made_once: MadeOnce, samples: Path) -> Path:
    """Sample videos, one with a hostile name, and one that no browser plays."""
    return made_once("page-videos", lambda folder: _write_videos(folder, samples))


def _write_videos(folder: Path, samples: Path) -> None:
    for name in ("friday.mp4", "friday.vtt", "nasa_13013.mp4", "nasa_13013.srt"):
        shutil.copy(samples / name, folder)
    for name in ("nasa_audio_only.mp3", "nasa_audio_only.srt", "flower.webm"):
        shutil.copy(samples / name, folder)
    shutil.copy(samples / "frog.webm", folder / f"{HOSTILE_NAME}.webm")
    (folder / f"{HOSTILE_NAME}.vtt").write_text(_HOSTILE_VTT, encoding="utf-8")
    _write_avi(folder / "rabbits.avi")
    (folder / "rabbits.srt").write_text(_RABBIT_SRT, encoding="utf-8")


def _write_avi(path: Path) -> None:
    """Write two seconds of MPEG-4 part 2, which Chromium does not play."""
    import av
    import numpy as np

    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=25)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for number in range(50):
            picture = np.full((120, 160, 3), (number * 5, 90, 160), np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))


@contextmanager
def _serving(corpus: Corpus, cache: Path, **more: Any) -> Iterator[str]:
    """Run a server in a thread while the context lasts; gives its address."""
    from whenabouts.server.app import Application
    from whenabouts.server.run import Server, listen
    from whenabouts.server.settings import Settings

    settings = Settings(**{"port": 0, "cache": cache, **more})
    bound = listen(settings)
    started = threading.Event()
    server = Server(Application(corpus, settings), settings, started.set)
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]))
    thread.start()
    try:
        assert started.wait(30), "the server did not start"
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
    assert not thread.is_alive(), "the server did not end"


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[str]]:
    """A context manager that serves a corpus with a cache folder; gives the address."""
    return _serving


@pytest.fixture(scope="session")
def corpus(videos: Path, made_once: MadeOnce) -> Corpus:
    """A corpus of the videos' words."""

    def fill(folder: Path) -> None:
        Corpus(folder / "page.corpus", create=True).add(videos, processes=1)

    return Corpus(made_once("page", fill) / "page.corpus")


@pytest.fixture(scope="session")
def address(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page."""
    with _serving(corpus, tmp_path_factory.mktemp("cache")) as at:
        yield at


@pytest.fixture(scope="session")
def ids(corpus: Corpus) -> dict[str, str]:
    """The id of each video by its file name."""
    return {Path(video.path).name: video.id for video in corpus.videos()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium from Debian.

    Each file of tests starts its own, because Playwright's event loop prevents others while it runs.
    """
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not here")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=_ARGUMENTS)
        yield browser
        browser.close()


class Watched:
    """A tab, and its faults: errors, violations of policies, requests to other hosts.

    `expected` are parts of console messages that the test itself causes.
    """

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.expected: list[str] = []
        self._faults: list[str] = []
        host = urlsplit(address).netloc
        page.on("console", lambda m: self._faults.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self._faults.append(str(error)))
        page.on("request", lambda r: None if _is_own(r.url, host) else self._faults.append(f"asked {r.url}"))
        page.expose_function("broken", lambda fault: self._faults.append(fault))
        page.expose_function("hacked", lambda *_: self._faults.append("data ran as a program"))
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) => "
            "window.broken(`policy ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}`))"
        )

    @property
    def faults(self) -> list[str]:
        """The faults so far that were not expected."""
        return [fault for fault in self._faults if not any(part in fault for part in self.expected)]


def _is_own(url: str, host: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "blob" or parts.netloc == host


@pytest.fixture()
def open_tab(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """A factory of tabs; at the end none may have a fault."""
    contexts, tabs = [], []

    def open_one(at: str = address, **settings: Any) -> Any:
        settings.setdefault("viewport", {"width": 1280, "height": 900})
        context = browser.new_context(**settings)
        context.set_default_timeout(20_000)
        contexts.append(context)
        tab = Watched(context.new_page(), at)
        tab.page.watched = tab
        tabs.append(tab)
        return tab.page

    yield open_one
    try:
        assert not [fault for tab in tabs for fault in tab.faults]
    finally:
        for context in contexts:
            context.close()


@pytest.fixture()
def page(open_tab: Callable[..., Any]) -> Any:
    """A wide tab with a mouse."""
    return open_tab()
