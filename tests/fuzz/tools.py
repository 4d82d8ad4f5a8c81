"""The tools of the MCP server, called with arguments by chance, one after another on one corpus."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.apart import Apart
from tests.fuzz.requests import make_corpus
from tests.fuzz.texts import text

from whenabouts.types import WhenaboutsError

_MOST_BYTES = 700 << 20
_NUMBERS = (-1, 0, 1, 2, 51, 1 << 31, 1 << 63, 10**400)
_MOMENTS = ("friday.mp4@0-1", "friday.mp4@0.5-0.6", "flower.webm@1-2", "friday.mp4@0-1e9", "nobody@0-1")


@cache
def _tools(place: Path) -> Any:
    from whenabouts.agents.tools import CorpusTools
    from whenabouts.corpus import Corpus

    corpus = Corpus(place / "my.corpus", create=False)
    return CorpusTools(lambda: corpus, place / "out")


def call(given: tuple[Path, str, dict[str, Any]]) -> None:
    """Call a tool; what the server would refuse in words is a WhenaboutsError."""
    from whenabouts.server.errors import ServerError

    place, name, arguments = given
    before = {path for path in place.rglob("*") if "my.corpus" not in path.parts}
    try:
        getattr(_tools(place), name)(**arguments)
    except ServerError as error:
        raise WhenaboutsError(str(error)) from error
    finally:
        made = {path for path in place.rglob("*") if "my.corpus" not in path.parts} - before
        if astray := [path for path in made if (place / "out") not in (path, *path.parents)]:
            raise RuntimeError(f"made {astray}")


class Attack:
    """Calls one tool a trial."""

    def __init__(self, folder: Path) -> None:
        self._place = folder
        make_corpus(folder)
        self._apart = Apart(call, _MOST_BYTES)

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Choose a tool and its arguments."""

        def moment() -> str:
            return rng.choice((*_MOMENTS, text(rng), f"friday.mp4@{text(rng, 2)}-{text(rng, 2)}"))

        def moments() -> list[str] | None:
            return rng.choice((None, [], [moment()], [moment() for _ in range(3)]))

        collection = rng.choice(("one", "one", text(rng)))
        number = rng.choice(_NUMBERS)
        calls: dict[str, dict[str, Any]] = {
            "search": {"query": text(rng, 9), "k": number, "within": rng.choice((None, text(rng)))},
            "places": {"phrase": text(rng, 9), "k": number},
            "show": {"what": moment(), "pictures": number},
            "list_videos": {"contains": text(rng), "offset": number, "limit": rng.choice(_NUMBERS)},
            "list_collections": {"name": rng.choice((None, collection))},
            "collect": {"collection": collection, "moments": moments() or []},
            "export_list": {
                "format": rng.choice(("edl", "otio", "fcpxml", "csv", text(rng))),
                "moments": moments(),
                "collection": rng.choice((None, collection)),
            },
            "cut_moments": {"moments": moments(), "collection": rng.choice((None, collection))},
            "play": {"moment": moment()},
            "film": {"moment": moment()},
        }
        name = rng.choice(sorted(calls))
        came, findings = self._apart((self._place, name, calls[name]))
        return Counter({came: 1}), [f"{name}({calls[name]!r:.600}): {finding}" for finding in findings]
