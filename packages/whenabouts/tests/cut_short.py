"""Simulates a process that dies between two writes to the tables of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Dead(BaseException):
    """Raised by each write after the simulated death."""


@contextmanager
def dies_before(write: int) -> Iterator[Callable[[], int]]:
    """Let write number `write` (from 1) and all later ones to tables raise `Dead`; yields their count."""
    from lancedb.db import LanceDBConnection
    from lancedb.merge import LanceMergeInsertBuilder
    from lancedb.table import LanceTable

    writes = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes >= write:
                raise Dead
            return call(*arguments, **options)

        return counting

    with pytest.MonkeyPatch.context() as patch:
        for owner, names in (
            (LanceTable, ("add", "delete", "update", "optimize", "create_index", "add_columns")),
            (LanceMergeInsertBuilder, ("execute",)),
            (LanceDBConnection, ("create_table", "drop_table")),
        ):
            for name in names:
                patch.setattr(owner, name, counted(getattr(owner, name)))
        yield lambda: writes
