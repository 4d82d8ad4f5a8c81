"""Locks a folder for one process at a time; the lock survives deletion of its file and ends with the process.

The lock covers a file in the folder and the folder itself, both through open descriptors, which the system
closes when the process dies. Earlier versions and network file systems lock only the file. If somebody
deletes that file, the next process creates and locks a new one. The folder cannot be replaced like this, so
its lock decides wherever the file system can lock folders.

filelock 4.3 cannot replace this. It does not lock the folder, so it admits a second holder once the lock file
is deleted. It uses only `flock`, so it admits earlier versions, which use `lockf`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

_ATTEMPTS = 10
_UNSUPPORTED = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_Lock = Callable[[int, int], object]
_MOUNTS = Path("/proc/self/mounts")
# Prefixes of file systems that several machines may mount.
_CONTAINERS = "fuse.fuse-overlayfs"
_SHARED = re.compile("nfs|cifs|smb|fuse[.]|9p|virtiofs|ceph|lustre|gluster|beegfs|afs|gpfs")


class HeldFolder:
    """A folder that this process holds; made by `hold`."""

    def __init__(self, file: int, folder: int) -> None:
        self._descriptors: tuple[int, ...] = (file, folder)
        _held_folders.add(self)

    def release(self) -> None:
        """Release the folder. In a forked child this closes copies, and the parent still holds the folder."""
        descriptors, self._descriptors = self._descriptors, ()
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)


_held_folders: weakref.WeakSet[HeldFolder] = weakref.WeakSet()
_guard = threading.Lock()


def _leave_to_parent() -> None:
    for folder in list(_held_folders):
        folder.release()


# Otherwise a forked worker that outlives its killed parent would keep the inherited locks.
os.register_at_fork(after_in_child=_leave_to_parent)


def is_shared(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether other machines may mount the folder's file system, so that locks may not reach them.

    False if the system does not list its `mounts` (other systems than Linux).
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    kind, longest, folder = "", -1, folder.resolve()
    for line in lines:
        _, point, name, *_ = line.split(" ")
        top = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point))
        # The last mount at a place counts.
        if folder.is_relative_to(top) and len(top.parts) >= longest:
            kind, longest = name, len(top.parts)
    return kind != _CONTAINERS and (kind == "fuse" or _SHARED.match(kind) is not None)


def hold(folder: Path, name: str, lock: _Lock = fcntl.flock) -> HeldFolder | None:
    """Hold a folder by its lock file `name`, created if missing; None while another process holds it.

    `lock` is `fcntl.flock`, or `fcntl.lockf`, which admits the same process twice. Raises OSError if the
    folder cannot be written.
    """
    with _guard:
        file = _locked_file(folder / name, lock)
        if file is None:
            return None
        try:
            above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            os.close(file)
            raise
        if _is_locked(above, fcntl.flock, may_lack=True):
            return HeldFolder(file, above)
        os.close(above)
        os.close(file)
        return None


def _locked_file(path: Path, lock: _Lock) -> int | None:
    """A descriptor of the lock file, locked; None if another process has it."""
    for _ in range(_ATTEMPTS):
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        if not _is_locked(file, lock):
            os.close(file)
            return None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)  # the file was deleted between opening and locking
    return None


def _is_locked(descriptor: int, lock: _Lock, *, may_lack: bool = False) -> bool:
    try:
        lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return may_lack and error.errno in _UNSUPPORTED
    return True
