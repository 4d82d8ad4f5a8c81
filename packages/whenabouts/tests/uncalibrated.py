"""Index runs that do not ask what unrelated sentences score, where a test is about something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def uncalibrated() -> Iterator[None]:
    """Corpora filled in here stay uncalibrated: asking hundreds of sentences takes longer than indexing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: False)
        yield
