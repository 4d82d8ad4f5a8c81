"""Voices as vectors: an ONNX model by path, such as wespeaker's, 3D-Speaker's or NeMo's TitaNet.

What it takes tells what it is given: (B, T, 80) Kaldi filter banks, their mean taken off; (B, 80, T) with
a length NeMo's mel spectrum, each band normalised; (B, samples) the sound itself, at 16 kHz. Silero, which
comes with faster-whisper, says where somebody speaks. Nothing is downloaded, and nothing leaves this machine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import WhenaboutsError
from whenabouts.video.files import content_hash, printable

Floats = NDArray[np.float32]

RATE = 16_000
BANDS = 80
WINDOW_SECONDS, STEP_SECONDS = 1.5, 0.75
"""How much speech a vector is made of, and how far apart these are; as usual in diarization."""

_FRAMES_A_SECOND = 100
_LEAST_SECONDS = 0.4
# Windows that a model sees at a time.
_BATCH = 32
_INSTALL = "pip install 'whenabouts[people]'"


class VoicesUnavailableError(WhenaboutsError):
    """A model of voices that cannot be used; the message names it, the cause and the remedy."""


class Voices(NamedTuple):
    """Windows of speech of a recording: (n,) start and end in seconds, (n, D) unit vectors."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    vectors: Floats


class VoiceEncoder:
    """Tells voices apart by an ONNX file. Raises VoicesUnavailableError for one that is none.

    `name` is its path, `fingerprint` says by which file vectors are made; `dimension` is their width.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(Path(path).resolve())
        self._session = _session(Path(self.name))
        self._layout, self._names = _layout(self._session, self.name)
        if missing := [name for name in _packages(self._layout) if importlib.util.find_spec(name) is None]:
            raise VoicesUnavailableError(f"{missing[0]} is not installed, which hears voices; {_INSTALL}")
        probe = self._run([np.zeros(int(RATE * WINDOW_SECONDS), np.float32)])
        self.dimension = probe.shape[1]
        self.fingerprint = f"voices={content_hash(Path(self.name))[:16]} {self._layout}"

    def voices(self, samples: Floats, start: float = 0.0) -> Voices:
        """The voices in some sound (N,) at 16 kHz, which begins at `start` seconds of the recording."""
        from faster_whisper.vad import VadOptions, get_speech_timestamps

        options = VadOptions(min_silence_duration_ms=300, speech_pad_ms=50)
        spoken = get_speech_timestamps(samples, options, sampling_rate=RATE)
        windows = [window for part in spoken for window in _windows(part["start"], part["end"])]
        if not windows:
            return Voices(np.zeros(0), np.zeros(0), np.zeros((0, self.dimension), np.float32))
        vectors = np.concatenate(
            [
                self._run([samples[first:last] for first, last in windows[at : at + _BATCH]])
                for at in range(0, len(windows), _BATCH)
            ]
        )
        borders = np.array(windows, np.float64) / RATE + start
        return Voices(borders[:, 0], borders[:, 1], vectors)

    def _run(self, pieces: Sequence[Floats]) -> Floats:
        """(n, D) unit vectors of pieces of sound; one by one where they differ in length."""
        if len({len(piece) for piece in pieces}) > 1:
            return np.concatenate([self._run([piece]) for piece in pieces])
        given = self._given(pieces)
        outputs = self._session.run(None, dict(zip(self._names, given, strict=False)))
        flat = [out for out in outputs if out.ndim == 2 and len(out) == len(pieces) and out.shape[1] > 1]
        if not flat:
            shapes = ", ".join(str(out.shape) for out in outputs)
            raise VoicesUnavailableError(
                f"{printable(Path(self.name))}: gives {shapes} for {len(pieces)} pieces of sound, no vector "
                "for each; name a model that makes vectors of voices (a speaker embedding)"
            )
        vectors = np.asarray(flat[-1], np.float32)
        if not np.isfinite(vectors).all():
            raise VoicesUnavailableError(
                f"{printable(Path(self.name))}: gives numbers that are not finite; the file may be damaged"
            )
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(length > 0, length, 1), np.float32)

    def _given(self, pieces: Sequence[Floats]) -> list[NDArray[Any]]:
        if self._layout == "sound":
            return [np.stack(pieces)]
        if self._layout == "kaldi":
            banks = np.stack([_kaldi_banks(piece) for piece in pieces])
            return [banks]
        bands = np.stack([_nemo_bands(piece) for piece in pieces])
        return [bands, np.full(len(pieces), bands.shape[2], np.int64)]


Layout = Literal["kaldi", "nemo", "sound"]


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not path.is_file():
        raise VoicesUnavailableError(
            f"{printable(path)}: there is no such file; name the ONNX file of a model of voices"
        )
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own kinds share no other base
        raise VoicesUnavailableError(
            f"{printable(path)}: cannot be opened as an ONNX model ({' '.join(str(error).split())[:200]}); "
            "download it again, or export it anew"
        ) from error


def _layout(session: Any, name: str) -> tuple[Layout, list[str]]:
    """What a model is to be given, and the names of its inputs in that order."""
    inputs = session.get_inputs()
    sound = [put for put in inputs if "float" in put.type]
    lengths = [put for put in inputs if "int" in put.type]
    names = [put.name for put in (*sound, *lengths)]
    if len(sound) == 1 and len(inputs) <= 2:
        shape = sound[0].shape
        if len(shape) == 2:
            return "sound", names
        if len(shape) == 3 and BANDS in (shape[1], shape[2]):
            return ("kaldi" if shape[2] == BANDS else "nemo"), names
    listed = ", ".join(f"{put.name} {put.shape}" for put in inputs)
    raise VoicesUnavailableError(
        f"{printable(Path(name))}: takes {listed}, as no model of voices does; one takes "
        f"(batch, time, {BANDS}), (batch, {BANDS}, time) with a length, or (batch, samples)"
    )


def _packages(layout: Layout) -> list[str]:
    return ["faster_whisper", *(["kaldi_native_fbank"] if layout != "sound" else [])]


def _windows(first: int, last: int) -> list[tuple[int, int]]:
    """Windows of samples over a stretch of speech; the last one ends with it. None of what is too short."""
    length, step = int(WINDOW_SECONDS * RATE), int(STEP_SECONDS * RATE)
    if last - first < _LEAST_SECONDS * RATE:
        return []
    starts = range(first, max(first + 1, last - length + 1), step)
    windows = [(start, min(start + length, last)) for start in starts]
    if last - windows[-1][1] > step // 2:
        windows.append((last - length, last))
    return windows


def _banks(samples: Floats, **mel: Any) -> Floats:
    """(T, 80) log filter banks."""
    import kaldi_native_fbank

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.samp_freq = RATE
    options.mel_opts.num_bins = BANDS
    for name, value in mel.items():
        part, _, field = name.partition("__")
        setattr(getattr(options, f"{part}_opts"), field, value)
    computed = kaldi_native_fbank.OnlineFbank(options)
    computed.accept_waveform(RATE, samples.tolist())
    computed.input_finished()
    rows = [computed.get_frame(row) for row in range(computed.num_frames_ready)]
    return np.stack(rows) if rows else np.zeros((1, BANDS), np.float32)


def _kaldi_banks(samples: Floats) -> Floats:
    """As wespeaker makes them: 16-bit samples, Hamming windows, the mean over time taken off."""
    banks = _banks(samples * np.float32(32768), frame__window_type="hamming")
    return np.asarray(banks - banks.mean(axis=0), np.float32)


def _nemo_bands(samples: Floats) -> Floats:
    """(80, T) as NeMo makes them: Hann windows, Slaney's mel scale, each band with mean 0 and deviation 1."""
    bands = _banks(
        samples,
        frame__window_type="hann",
        frame__remove_dc_offset=False,
        mel__low_freq=0,
        mel__is_librosa=True,
    )
    deviation = bands.std(axis=0, ddof=1) if len(bands) > 1 else np.zeros(BANDS)
    return np.ascontiguousarray(((bands - bands.mean(axis=0)) / (deviation + 1e-5)).T, np.float32)
