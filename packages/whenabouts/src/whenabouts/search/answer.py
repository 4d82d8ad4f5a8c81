"""Step 6: the moments that are shown, with evidence, paths, notes and coverage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from whenabouts.index.records import VideoRecord, unambiguous
from whenabouts.index.store import Store
from whenabouts.search.choices import is_gone
from whenabouts.search.coverage import Coverage, coverage_of, with_clips
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.snippet import weights_of
from whenabouts.search.understand import Understanding
from whenabouts.types import ScoredMoment


class Answering:
    """Completes the answers of one store."""

    def __init__(self, store: Store, understanding: Understanding, localization: Localization) -> None:
        self._store, self._understanding, self._localization = store, understanding, localization
        self._covered: tuple[tuple[int, tuple[str, ...]], Coverage] | None = None
        self._holding: tuple[int, Mapping[str, Collection[str]]] | None = None

    def with_snippets(
        self, query: str, moments: Sequence[ScoredMoment], answers: Sequence[StreamAnswer]
    ) -> list[ScoredMoment]:
        """The moments with the line that answers as evidence of streams whose clips have words."""
        spoken = {a.stream: a for a in answers if self._understanding.streams[a.stream].shows_words(a.block)}
        rarity = self._localization.rarity(spoken)
        weights = {name: weights_of(query, rarity[name]) for name in spoken}
        return [
            replace(
                scored,
                evidence={
                    name: spoken[name].snippet(scored.video_id, piece, weights[name])
                    if name in spoken
                    else piece
                    for name, piece in scored.evidence.items()
                },
            )
            for scored in moments
        ]

    def with_records(
        self, moments: Iterable[ScoredMoment]
    ) -> tuple[tuple[ScoredMoment, ...], dict[str, VideoRecord]]:
        """Moments with path and title of their videos, and these; videos that are gone are left out."""
        moments = list(moments)
        ids = sorted({scored.video_id for scored in moments})
        # A video may be taken out between the two reads; what is gone is no answer.
        videos = {record.video_id: record for record in self._store.ledger().of(ids)}
        return tuple(
            replace(scored, path=videos[scored.video_id].path, title=videos[scored.video_id].title)
            for scored in moments
            if scored.video_id in videos
        ), videos

    def coverage(self, allowed: Sequence[str] | None = None, streams: Sequence[str] = ()) -> Coverage:
        """Which videos a search speaks for, and by which streams; of the whole corpus it is kept."""
        key = (self._store.version, tuple(streams))
        if allowed is None and self._covered is not None and self._covered[0] == key:
            return self._covered[1]
        ledger = self._store.ledger()
        videos = ledger.records if allowed is None else ledger.of(allowed)
        if self._holding is None or self._holding[0] != key[0]:
            self._holding = key[0], with_clips(self._store, self._understanding.text_streams)
        coverage = coverage_of(videos, streams, streams or self._understanding.text_streams, self._holding[1])
        if allowed is None:
            self._covered = key, coverage
        return coverage


def gone_notes(records: Iterable[VideoRecord]) -> list[str]:
    """What to say of videos whose files are not there any more."""
    names = [unambiguous(record.path).rsplit("/", 1)[-1] for record in records if is_gone(record)]
    if not names:
        return []
    return [f"{', '.join(names)}: the file is gone; `whenabouts index PATH --prune` takes it out"]
