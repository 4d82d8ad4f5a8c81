"""Requests by chance, made of the server's own description by schemathesis with every check on."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from tests.fuzz.media import SAMPLES
from tests.server.test_openapi import CHECKS, EVERY, AsLocalhost

from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts.server.app import Application
from whenabouts.server.settings import Limits, Settings

_AT_ONCE = 20


def make_corpus(folder: Path) -> None:
    """Index a few samples into `my.corpus` of a folder, with a collection."""
    videos = folder / "videos"
    videos.mkdir()
    for name in ("friday.mp4", "friday.vtt", "flower.webm", "nasa_audio_only.mp3", "nasa_audio_only.srt"):
        shutil.copy(SAMPLES / name, videos / name)
    assert main(["index", str(videos), "--corpus", str(folder / "my.corpus"), "--json"]) == 0
    corpus = Corpus(folder / "my.corpus", create=False)
    corpus.collections.add("one", [corpus.moment("friday.mp4@0-1")], create=True)


class Attack:
    """Asks one route some questions a trial."""

    def __init__(self, folder: Path) -> None:
        make_corpus(folder)
        # A busy machine is no finding: nothing is refused for being slow.
        limits = Limits(clips_a_minute=100_000, job_seconds=3600.0, wait_seconds=3600.0)
        application = Application(
            Corpus(folder / "my.corpus", create=False), Settings(limits=limits, cache=folder / "cache")
        )
        self._described = schemathesis.openapi.from_asgi("/openapi.json", AsLocalhost(application))

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Ask a route by chance, as its description allows or not."""
        path, method = rng.choice(EVERY)
        operation = self._described[path][method]
        mode = rng.choice(list(GenerationMode))
        asked = 0

        @seed(rng.getrandbits(32))
        @settings(
            max_examples=_AT_ONCE,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: schemathesis.Case[Any]) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(checks=CHECKS)

        try:
            run()
        except Unsatisfiable:
            pass
        except Exception as error:
            return Counter(requests=asked), [f"{method} {path}: {error}"]
        return Counter(requests=asked), []
