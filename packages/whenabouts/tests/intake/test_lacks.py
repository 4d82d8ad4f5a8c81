"""What the machine lacks is told from faults of files."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from whenabouts.intake import lacks
from whenabouts.intake.lacks import MachineLack, check_files, check_room, lack_of
from whenabouts.types import WhenaboutsError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "files at once"),
        (RuntimeError("io error: Too many open files (os error 24)"), "files at once"),
        (MemoryError(), "not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory"),
        (RuntimeError("Exception during initialization: std::bad_alloc"), "not enough memory"),
        (RuntimeError("can't start new thread"), "no thread or process"),
        (RuntimeError("cannot spawn (os error 11)"), "no thread or process"),
    ],
)
def test_each_lack_is_named(error: Exception, words: str) -> None:
    assert words in (lack_of(error) or "")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("moov atom not found"),
        RuntimeError("Connection refused (os error 111)"),
        RuntimeError("Disk quota exceeded (os error 122)"),
        OSError(errno.ENOSPC, "No space left on device"),
        WhenaboutsError("no such video"),
    ],
)
def test_other_errors_are_no_lack(error: Exception) -> None:
    assert lack_of(error) is None


def test_the_cause_of_an_error_of_ours_counts() -> None:
    error = WhenaboutsError("cannot be read")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    assert "ulimit -n" in (lack_of(error) or "")


@pytest.mark.parametrize(("limit", "advised"), [(16, 1024), (1024, 4096), (20_000, 80_000)])
def test_more_files_are_advised_than_are_allowed(
    monkeypatch: pytest.MonkeyPatch, limit: int, advised: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    lack = lack_of(OSError(errno.EMFILE, "Too many open files")) or ""
    assert f"may open {limit} files" in lack and lack.endswith(f"`ulimit -n {advised}`")


def test_room_is_checked_only_under_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lacks, "memory_limit", lambda: None)
    check_room(1 << 60)
    monkeypatch.setattr(lacks, "memory_limit", lambda: 5_000_000_000)
    check_room(1 << 20)
    with pytest.raises(MachineLack, match=r"this process may use 5,000 MB \(`ulimit -v`\)"):
        check_room(1 << 60)


def test_files_are_counted_and_given_back() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = sum(1 for _ in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, hard))
    try:
        check_files(20)
        with pytest.raises(MachineLack, match=f"may open {before + 40} files at once"):
            check_files(60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sum(1 for _ in Path("/dev/fd").iterdir()) == before


def test_the_lower_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: 7_000, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    assert lacks.memory_limit() == 7_000
