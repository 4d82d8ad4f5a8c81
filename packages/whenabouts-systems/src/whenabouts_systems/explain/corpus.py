"""Explain a trained system's answer to a query on a corpus."""

from __future__ import annotations

from collections.abc import Sequence

from whenabouts.search.finder import RankedMoments
from whenabouts.types import Moment, UsageError
from whenabouts_systems.explain.explained import Explained, Ranked, TokenWeights
from whenabouts_systems.explain.readout import borders, pieces_for, similar_clips, token_weights
from whenabouts_systems.trained_search.opened import IndexedSystem
from whenabouts_systems.trained_search.search import TrainedSearch


def explained(
    search: TrainedSearch,
    text: str,
    video_id: str,
    answers: RankedMoments,
    moments: Sequence[Ranked],
    truth: Sequence[Moment],
) -> Explained:
    """The weights of the query's tokens, start and end probabilities along `video_id`, the moments and notes.

    The weights are the retriever's if it has any, else the localizer's, else None. The most similar clips are
    those of the retriever, if any. Raises UsageError for a video that the localizer has not encoded.
    """
    localizer, retriever = search.localizer, search.retriever
    corpus, _ = localizer.corpus()
    row = corpus.rows_of([video_id])
    if not corpus.kept(row):
        raise UsageError(
            f"{video_id} has no features for {search.name}, or is not yet encoded with it; give another video"
        )
    trained = localizer.trained
    weights = None if retriever is None else _weights(retriever, text)
    along = borders(trained, localizer.encode(text), corpus.select(row), video_id)
    chooser = retriever or localizer
    videos, _ = chooser.corpus()
    row = videos.rows_of([video_id])
    return Explained(
        search.name,
        trained.system if retriever is None else f"{retriever.trained.system} + {trained.system}",
        weights or _weights(localizer, text),
        along,
        tuple(moments),
        tuple(answers.notes),
        similar_clips(chooser.trained, chooser.encode(text), videos.select(row), video_id, truth, along)
        if videos.kept(row)
        else (),
    )


def _weights(system: IndexedSystem, text: str) -> TokenWeights | None:
    """A system's weights of the query's tokens; None if the system has no such weights."""
    return token_weights(
        system.trained, system.encode(text), text, pieces_for(system.trained, text, system.encoder)
    )
