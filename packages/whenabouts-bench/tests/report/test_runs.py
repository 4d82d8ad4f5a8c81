"""A run with several readers is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whenabouts_bench.formats.runs import Task
from whenabouts_bench.report.runs import KeptRun


class _Counted:
    """A source that counts how often it is read."""

    tasks: tuple[Task, ...] = ("VCMR",)
    answered = None
    name = "counted"

    def __init__(self, blocks: tuple[Any, ...]) -> None:
        self._blocks = blocks
        self.reads = 0

    def blocks(self, task: Any = "VCMR") -> Iterator[Any]:
        self.reads += 1
        yield from self._blocks

    def saliency(self) -> dict[str, int]:
        return {"q": 1}


@pytest.fixture()
def counted(case: Callable[..., Any]) -> _Counted:
    return _Counted(case(0).run.lists["VCMR"])


def test_the_second_reading_comes_from_memory(counted: _Counted) -> None:
    kept = KeptRun(counted)
    first, second = list(kept.blocks()), list(kept.blocks())
    assert first == second == list(counted._blocks)
    assert counted.reads == 1


def test_a_long_list_is_read_again_and_whole(counted: _Counted) -> None:
    kept = KeptRun(counted, most_rows=20)
    assert len(list(kept.blocks())) == len(list(kept.blocks())) == len(counted._blocks)
    assert counted.reads == 2


def test_a_reading_that_was_broken_off_is_not_kept(counted: _Counted) -> None:
    kept = KeptRun(counted)
    next(iter(kept.blocks()))
    assert len(list(kept.blocks())) == len(counted._blocks)
    assert counted.reads == 2


def test_what_else_a_source_tells_is_still_told(counted: _Counted) -> None:
    assert KeptRun(counted).saliency() == {"q": 1}
    with pytest.raises(AttributeError):
        KeptRun(counted).highlights  # noqa: B018
