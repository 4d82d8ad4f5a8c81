"""Chooses how much of each stream's vector index a search probes, with queries of the stream's kind."""

from __future__ import annotations

from collections.abc import Mapping

from whenabouts.calibration.banks import banks_of
from whenabouts.index.store import Store
from whenabouts.index.stream import QueryEncoder
from whenabouts.streams import stream as stream_named


def measure(store: Store, encoders: Mapping[str, QueryEncoder]) -> None:
    """Measure the streams whose vector index was trained since the last time.

    Queries are the unrelated sentences as vectors, or a stream's own clips if text cannot search it. A stream
    whose encoder is not in `encoders` waits for a later run.
    """
    waiting = store.streams_without_effort
    banks = banks_of(store, encoders) if waiting else {}
    for name in waiting:
        if name not in banks:
            store.measure_effort(name, None)
        elif name in encoders:
            sentences = [text for bank in banks[name].groups.values() for text in bank.sentences]
            store.measure_effort(name, stream_named(name).query_vectors(sentences, encoders[name]))
