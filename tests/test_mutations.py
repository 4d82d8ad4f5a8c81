"""The tool that plants faults: the kinds of faults, and the count of noticed ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import mutations
from benchmarks.mutations import Room, measure, places_in, planted, room_named

SOURCE = '''"""A module of 3 lines."""
if TYPE_CHECKING:
    WIDTH: Literal[7] = 7


def least(values: list[int], most: Literal[5] = 9) -> int:
    """Of 4."""
    if not values or values[0] < 2:
        return values[0] + len(values)
    return None
'''


def test_each_kind_of_fault_is_planted_and_nothing_in_annotations_or_for_types_alone() -> None:
    made = {(fault.was, fault.now) for fault in (planted("a.py", SOURCE, at) for at in places_in(SOURCE))}
    assert made == {
        ("9", "10"),
        ("0", "1"),
        ("2", "3"),
        ("not values", "values"),
        ("values[0] < 2", "values[0] >= 2"),
        ("not values or values[0] < 2", "not values and values[0] < 2"),
        ("values[0] + len(values)", "values[0] - len(values)"),
        ("return values[0] + len(values)", "return None"),
    }


def test_a_fault_changes_one_place_and_knows_its_line() -> None:
    by_line = [planted("a.py", SOURCE, at) for at in places_in(SOURCE)]
    fault = next(each for each in by_line if each.was == "2")
    assert (fault.file, fault.line) == ("a.py", 8)
    assert "values[0] < 3" in fault.source and "not values or" in fault.source


def test_faults_are_counted_by_what_the_tests_say_and_the_source_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    outcomes = iter([0, 0, 1, None])  # sound, not noticed, noticed, too slow
    read: list[str] = []

    def run_tests(room: Room, tree: Path, limit: float | None) -> tuple[int | None, float]:
        read.append((tree / "a.py").read_text())
        return next(outcomes), 1.0

    monkeypatch.setattr(mutations, "run_tests", run_tests)
    found = measure(Room("p/a", ["a.py"], ["tests"]), tmp_path, 3, 0, lambda line: None)
    assert (found["planted"], found["noticed"], found["of_these_by_time"]) == (3, 2, 1)
    assert len(found["not_noticed"]) == 1 and found["possible_faults"] == 9
    assert read[0] == SOURCE and len({*read}) == 4
    assert (tmp_path / "a.py").read_text() == SOURCE


def test_tests_that_fail_without_a_fault_measure_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    monkeypatch.setattr(mutations, "run_tests", lambda *_: (1, 1.0))
    with pytest.raises(SystemExit, match="p/a: its tests end with 1 without a fault"):
        measure(Room("p/a", ["a.py"], ["tests"]), tmp_path, 3, 0)


def test_a_room_is_a_folder_or_a_module_with_the_tests_that_mirror_it() -> None:
    folder = room_named("whenabouts/confidence", mutations.ROOT)
    assert folder.tests == ["packages/whenabouts/tests/confidence"] and len(folder.sources) > 3
    module = room_named("whenabouts/choices", mutations.ROOT)
    assert module.sources == ["packages/whenabouts/src/whenabouts/choices.py"]
    assert module.tests == ["packages/whenabouts/tests/test_choices.py"]
    with pytest.raises(SystemExit, match=r"nobody\.py, .*test_nobody\.py: there is no such file"):
        room_named("whenabouts/nobody", mutations.ROOT)
    given = room_named("benchmarks/mutations.py:tests/test_mutations.py", mutations.ROOT)
    assert (given.sources, given.tests) == (["benchmarks/mutations.py"], ["tests/test_mutations.py"])
