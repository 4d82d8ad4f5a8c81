"""Step 4 of a query: moments on the curves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from whenabouts.index.records import ClipBlock
from whenabouts.search.candidates import EVERYWHERE
from whenabouts.search.curves import Curve
from whenabouts.search.moments import Localization
from whenabouts.search.understand import EncodedQuery
from whenabouts.streams import stream


def test_a_language_with_few_clips_is_not_crowded_out_by_one_with_many() -> None:
    """The English clips are near a German word by chance, which a sentence model does not know."""
    count = 80
    names = [f"en{number}" for number in range(count)] + ["de"]
    start, scores = np.zeros(count + 1), np.append(np.linspace(9, 5, count), 3.0)
    words, vectors = [*["words"] * count, "der Kran"], np.zeros((count + 1, 0), np.float32)
    index = np.zeros(count + 1, np.int32)
    block = ClipBlock(names, np.arange(count + 2), index, start, start + 9, words, vectors)
    ledger = SimpleNamespace(language_of={name: name[:2] for name in names})
    store: Any = SimpleNamespace(ledger=lambda: ledger)
    localization = Localization(store, understanding=None)  # type: ignore[arg-type]
    curve = Curve(stream("subtitle"), None, None, block, scores)
    answer = localization.of_curve(curve, EncodedQuery("", {}), EVERYWHERE)
    assert [answer.moment(row).video_id for row in range(len(answer.moments))] == [*names[:60], "de"]
    assert answer.text(60) == "der Kran"
