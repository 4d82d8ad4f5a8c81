"""The state after events, against one computed from the events that were not undone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.types import UsageError
from whenabouts_bench.judging.events import Event, State

STEPS = st.lists(
    st.tuples(st.sampled_from(["ann", "bea"]), st.sampled_from(["t0", "t1"]), st.integers(-2, 4)), max_size=20
)


def events_of(steps: list[tuple[str, str, int]]) -> list[Event]:
    """Grades; -1 drags borders, -2 takes back the annotator's last step, where there is one."""
    events: list[Event] = []
    standing: dict[str, list[int]] = {}
    for annotator, task_id, value in steps:
        seq = len(events) + 1
        if value == -2:
            if standing.get(annotator):
                undone = standing[annotator].pop()
                events.append(Event("undo", annotator, undone=undone, seq=seq))
            continue
        standing.setdefault(annotator, []).append(seq)
        if value == -1:
            events.append(Event("borders", annotator, task_id, start=float(seq), end=seq + 1.0, seq=seq))
        else:
            events.append(Event("grade", annotator, task_id, grade=value, seq=seq))
    return events


@given(STEPS)
def test_undone_events_leave_no_trace_in_the_state(steps: list[tuple[str, str, int]]) -> None:
    events = events_of(steps)
    undone = {event.undone for event in events}
    standing = [event for event in events if event.kind != "undo" and event.seq not in undone]
    state, plain = State.of(events), State.of(standing)
    for annotator in ("ann", "bea"):
        for task_id in ("t0", "t1"):
            assert state.answer(annotator, task_id) == plain.answer(annotator, task_id)
    assert [state.grades(task_id) for task_id in ("t0", "t1")] == [
        plain.grades(task_id) for task_id in ("t0", "t1")
    ]


@given(STEPS, st.integers(0, 20))
def test_a_state_that_goes_on_is_that_of_all_events(steps: list[tuple[str, str, int]], cut: int) -> None:
    events = events_of(steps)
    state = State.of(events[:cut])
    state.grades("t0")  # cached grades are dropped with the next event
    for event in events[cut:]:
        state.apply(event)
    assert state.answers == State.of(events).answers
    assert state.grades("t0") == State.of(events).grades("t0")


@pytest.mark.parametrize("undone", [1, 7, None])
def test_an_undo_of_another_step_is_refused(undone: int | None) -> None:
    state = State.of(Event("grade", "ann", "t0", grade=seq, seq=seq) for seq in (1, 2))
    with pytest.raises(UsageError, match="is not the last step of annotator 'ann'"):
        state.apply(Event("undo", "ann", undone=undone, seq=3))
