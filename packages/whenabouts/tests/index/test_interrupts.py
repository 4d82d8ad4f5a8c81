from __future__ import annotations

import os
import signal
import threading

import pytest

from whenabouts.index.lock import uninterrupted


def test_ctrl_c_waits_until_the_block_is_done() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        done.append(1)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the block went on")


def test_other_threads_and_errors_pass_through() -> None:
    def work() -> None:
        with uninterrupted():
            done.append(1)

    done: list[int] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
    with pytest.raises(ValueError, match="inside"), uninterrupted():
        raise ValueError("inside")
