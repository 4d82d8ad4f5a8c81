"""Merging a table while the writer's lease is renewed in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whenabouts.index.upkeep import tidy


class Busy:
    """A table in which another write comes between, so many times."""

    def __init__(
        self, times: int, message: str = "lance error: Retryable commit conflict for version 10"
    ) -> None:
        self.left, self.message = times, message
        self.calls: list[str] = []

    def optimize(self, **_: Any) -> None:
        self.calls.append("optimize")
        if self.left:
            self.left -= 1
            raise RuntimeError(self.message)

    def checkout_latest(self) -> None:
        self.calls.append("checkout")


def test_a_merge_that_another_write_came_between_begins_anew(tmp_path: Path) -> None:
    table = Busy(2)
    tidy(table, str(tmp_path))
    assert table.calls == ["optimize", "checkout", "optimize", "checkout", "optimize"]


def test_it_is_not_tried_for_ever_and_other_faults_end_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Retryable"):
        tidy(Busy(100), str(tmp_path))
    table = Busy(1, "no space left")
    with pytest.raises(RuntimeError, match="no space"):
        tidy(table, str(tmp_path))
    assert table.calls == ["optimize"]
