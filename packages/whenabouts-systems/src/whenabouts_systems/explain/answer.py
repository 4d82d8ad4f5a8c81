"""Explain trained systems' answers to a query on a corpus: words, borders along a video, best moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whenabouts.search.understand import checked_query
from whenabouts.types import Moment, UsageError
from whenabouts_systems.explain import Explanation, ranked_of

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts_systems.trained_search.search import System


def explain(
    corpus: Corpus,
    query: str,
    model: System,
    *,
    other: System | None = None,
    retriever: System | None = None,
    video: str | None = None,
    moment: str | Moment | None = None,
    k: int = 5,
) -> Explanation:
    """Explain the answers of a trained system, and of an `other` one: words, borders, and `k` best moments.

    Borders are shown along `video`, by default that of the right `moment`, or else of the best answer.
    `retriever` chooses the videos for `model`. Raises UsageError if nothing is found and no video is given.
    """
    from whenabouts_systems.explain.corpus import explained as explained_in  # loads PyTorch
    from whenabouts_systems.trained_search.search import trained_on

    corpus.refresh()
    words, _ = checked_query(query, k, 0.0)
    truth = () if moment is None else (corpus.moment(moment),)
    systems = [trained_on(corpus, model, retriever)]
    systems += [] if other is None else [trained_on(corpus, other)]
    answers = [system.find(words, k, None) for system in systems]
    found_in = [scored.moment.video_id for answer in answers for scored in answer.moments]
    if video:
        chosen: str | None = corpus.resolve(video).video_id
    else:
        chosen = next(iter([*(true.video_id for true in truth), *found_in]), None)
    if chosen is None:
        raise UsageError(f"{systems[0].name} finds nothing for {words!r}; name a video")
    videos = corpus.store.videos(sorted({chosen, *found_in}))
    seconds = {record.video_id: record.duration for record in videos}
    explained = tuple(
        explained_in(system, words, chosen, answer, ranked_of(answer.moments, seconds, truth), truth)
        for system, answer in zip(systems, answers, strict=True)
    )
    return Explanation(words, "", chosen, seconds.get(chosen), truth, explained)
