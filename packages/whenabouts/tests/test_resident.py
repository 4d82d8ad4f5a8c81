"""The memory of this process, as Linux lists it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from whenabouts.resident import peak_bytes, resident_bytes


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems list no memory there")
def test_the_peak_is_read_whatever_the_program_is_called() -> None:
    name = Path("/proc/self/comm")
    before = name.read_bytes()
    try:
        name.write_bytes("größe".encode())
        assert peak_bytes() >= resident_bytes() // 2 > 0
    finally:
        name.write_bytes(before.strip())
