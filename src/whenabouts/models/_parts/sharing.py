"""A mark for methods that several processes can share, each doing its part of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

_MARK = "_whenabouts_by_rows"


def by_rows(method: Method) -> Method:
    """Mark a method `(self, queries)` or `(self, videos)` whose answer is made row by row.

    Row i of each tensor that it returns must depend on query or video i alone. With several processes each
    then computes some of the rows, and all get all (`training.distributed`); without, the mark does nothing.
    """
    setattr(method, _MARK, True)
    return method


def methods_by_rows(model: Any) -> list[str]:
    """The names of a model's marked methods, and of the two encoders of the protocol, which need no mark."""
    marked = {
        name for kind in type(model).__mro__ for name, method in vars(kind).items() if hasattr(method, _MARK)
    }
    encoders = {name for name in ("encode_queries", "encode_videos") if hasattr(model, name)}
    return sorted(marked | encoders)
