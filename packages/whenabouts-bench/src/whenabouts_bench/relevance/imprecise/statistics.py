"""Statistics of query sets: tables 1, 3 and 4 of paper 004, and the agreement of its section 3.4."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.relevance.imprecise.names import open_tagger

_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_FIRST_BATCH = 20


def count_words(texts: Iterable[str]) -> tuple[int, int]:
    """(distinct words, distinct verb forms) of texts, ignoring case."""
    tagger = open_tagger()
    words: set[str] = set()
    verbs: set[str] = set()
    for text in set(texts):
        words_of_text = _WORD.findall(text)
        words.update(word.lower() for word in words_of_text)
        if words_of_text:
            tags = tagger.tags(words_of_text)
            verbs.update(
                word.lower() for word, tag in zip(words_of_text, tags, strict=True) if tag.startswith("V")
            )
    return len(words), len(verbs)


def table(annotations: Annotations) -> dict[str, Any]:
    """Tables 1 and 4 for one set.

    Hours of moments count distinct moments, hours of videos those with a moment. A query with more than 20
    judged moments was judged in two batches.
    """
    usable = annotations.start < annotations.end
    keys = np.stack([annotations.video, annotations.start, annotations.end], axis=1)[usable]
    moments = np.unique(keys, axis=0)
    video = np.unique(annotations.video)
    durations = np.array([annotations.videos[number].duration or np.nan for number in video.tolist()])
    of_moment = np.array([annotations.videos[int(number)].duration or np.nan for number in moments[:, 0]])
    lengths = moments[:, 2] - moments[:, 1]
    words = np.array([len(query.text.split()) for query in annotations.queries], np.float64)
    vocabulary, verbs = count_words(query.text for query in annotations.queries)
    relevant = np.bincount(annotations.query[annotations.relevance > 0], minlength=len(annotations.queries))
    judged = np.bincount(annotations.query, minlength=len(annotations.queries))
    return {
        "queries": len(annotations.queries),
        "different queries": len({query.text for query in annotations.queries}),
        "moments": len(moments),
        "videos": len(video),
        "vocabulary": vocabulary,
        "verbs": verbs,
        "hours of moments": round(float(lengths.sum()) / 3600, 2),
        "hours of videos": round(float(np.nansum(durations)) / 3600, 2),
        "words of a query": _spread(words),
        "seconds of a moment": _spread(lengths),
        "seconds of a video": _spread(durations),
        "moment to video": _mean(lengths / of_moment),
        "relevant moments of a query": _mean(relevant),
        "queries judged in one batch": int((judged <= _FIRST_BATCH).sum()),
        "queries judged in two batches": int((judged > _FIRST_BATCH).sum()),
    }


def line_of(name: str, numbers: Mapping[str, Any]) -> str:
    """A set of `table` in one line of text."""
    words = numbers["words of a query"]
    return (
        f"{name}: {numbers['queries']:,} queries of {words['min']:g} to {words['max']:g} words "
        f"(mean {words['mean']:g}), {numbers['moments']:,} moments, {numbers['videos']:,} videos, "
        f"{numbers['vocabulary']:,} words, {numbers['verbs']:,} verbs, "
        f"{numbers['hours of moments']:g} h of moments, {numbers['hours of videos']:g} h of videos"
    )


def agreement(raw: Sequence[Sequence[int]], final: Sequence[int | None]) -> dict[str, Any]:
    """Agreement of annotators (section 3.4): query-moment pairs by how they were settled.

    `raw` are the grades considered for each pair: two, four if the first two were more than 1 apart, none if
    annotators are missing. `final` are the final grades, or None.
    """
    settled = [(len(grades), grade) for grades, grade in zip(raw, final, strict=True) if grades]
    agreed = Counter(grade for _, grade in settled if grade is not None)
    count = agreed.total()
    return {
        "settled": len(settled),
        "agreed": count,
        "agreed with more than two annotators": sum(n > 2 and grade is not None for n, grade in settled),
        "discarded": len(settled) - count,
        "share agreed": round(count / len(settled), 4) if settled else None,
        "final grades": {grade: agreed[grade] for grade in sorted(agreed)},
    }


def _spread(values: NDArray[np.float64]) -> dict[str, float] | None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    spread = {"min": finite.min(), "mean": finite.mean(), "max": finite.max()}
    return {name: round(float(value), 2) for name, value in spread.items()}


def _mean(values: NDArray[Any]) -> float | None:
    finite = values[np.isfinite(values)]
    return round(float(finite.mean()), 2) if len(finite) else None


def replacements(captions: Mapping[str, str], descriptions: Sequence[str], most: int = 12) -> dict[str, Any]:
    """Table 3: the `most` frequent words that captions have and their `descriptions` (repeated) lack."""
    words: Counter[str] = Counter()
    removed = changed = 0
    for text in descriptions:
        before, after = (
            Counter(word.lower().removesuffix("'s") for word in _WORD.findall(part))
            for part in (text, captions[text])
        )
        words.update(after - before)
        removed += (before - after).total()
        changed += before != after
    for article in ("a", "an", "the"):
        del words[article]
    return {
        "descriptions": len(descriptions),
        "changed": changed,
        "words replaced": removed,
        "words replaced in a description": round(removed / max(1, len(descriptions)), 2),
        "most frequent": dict(words.most_common(most)),
    }
