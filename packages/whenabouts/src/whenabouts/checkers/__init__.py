"""Opens optional models that help a search: checkers, rerankers and rewriters.

Checkers say whether a moment matches, rerankers put moments in order, rewriters write other queries. A kind
is a module of this folder with `recognises`, or a plugin (`protocol.Kind`).
"""

from __future__ import annotations

from typing import Any

from whenabouts import plugins
from whenabouts.checkers.protocol import Checker, CheckerError, CheckerUnavailable, View, look
from whenabouts.checkers.reranker import KeepsScores, Reranker
from whenabouts.checkers.rewriter import Rewriter
from whenabouts.intake.hub import ModelCard

__all__ = [
    "Checker",
    "CheckerError",
    "CheckerUnavailable",
    "Reranker",
    "Rewriter",
    "View",
    "check_models",
    "look",
    "open_checker",
    "open_reranker",
    "open_rewriter",
]


def open_checker(name: str, *, send_frames: bool = False) -> Checker:
    """Open a checker by hub name, folder, or address followed by '#' and the model.

    `send_frames` permits sending frames and words of videos to another machine. Raises CheckerUnavailable or
    UsageError with a remedy.
    """
    for kind in _kinds("open"):
        if name.strip() and kind.recognises(name):  # the path "" is the current folder
            checker: Checker = kind.open(name, send_frames=send_frames)
            return checker
    raise CheckerUnavailable(
        f"{name!r}: no such model to check with; give a folder, a hub's name (owner/name) or an address "
        "such as http://127.0.0.1:8000/v1#MODEL"
    )


def open_reranker(name: str) -> Reranker:
    """Open a reranker by hub name, folder, or `tokens:` and an encoder's name; its scores are cached.

    Raises CheckerUnavailable with a remedy.
    """
    from whenabouts.encoders import EncoderUnavailable, weight_files  # with NumPy, which few verbs need

    if not name.strip() or not name.isprintable():
        raise CheckerUnavailable(f"{name!r} is not a reranker's name; give a hub name or a folder")
    for kind in _kinds("open_reranker"):
        if kind.recognises(name):
            try:
                return KeepsScores(kind.open_reranker(name))
            except EncoderUnavailable as error:
                raise CheckerUnavailable(str(error)) from error
    is_model = weight_files.folder_at_hand(name) is not None
    raise CheckerUnavailable(
        f"{name!r}: {'this model does not rerank' if is_model else 'no such reranker'}; give the folder or "
        "the hub name (owner/name) of a CrossEncoder or MultiVectorEncoder of sentence-transformers, or "
        "tokens: and a sentence encoder (tokens:minilm)"
    )


def open_rewriter(name: str, *, send_query: bool = False) -> Rewriter:
    """Open the rewriter at an address followed by '#' and the model.

    `send_query` permits sending queries to another machine. Raises CheckerUnavailable or UsageError with a
    remedy.
    """
    for kind in _kinds("open_rewriter"):
        if kind.recognises(name):
            rewriter: Rewriter = kind.open_rewriter(name, send_query=send_query)
            return rewriter
    raise CheckerUnavailable(
        f"{name!r}: no such model to rewrite queries; give an address such as http://127.0.0.1:8000/v1#MODEL"
    )


def check_models() -> list[ModelCard]:
    """The models for `whenabouts models list`; others of their kinds work as well."""
    return [model for kind in _kinds() for model in getattr(kind, "MODELS", ())]


def _kinds(way: str = "recognises") -> list[Any]:
    """The kinds that declare `way`, in order of precedence."""
    kinds = plugins.modules_declaring(__name__, "recognises", "checkers")
    able = (kind for kind in kinds if hasattr(kind, way))
    return sorted(able, key=lambda kind: getattr(kind, "ORDER", 0))
