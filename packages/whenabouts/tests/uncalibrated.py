"""Index runs without calibration, for tests of other things."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def uncalibrated() -> Iterator[None]:
    """Corpora filled in the block stay uncalibrated, because calibration takes longer than indexing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: False)
        yield
