"""Encoders of voices from ONNX files: speaker models such as wespeaker's, 3D-Speaker's or NeMo's TitaNet.

A family of encoders, loaded by name in `encoders/__init__.py`. The file's input decides the features: (B, T,
80) gets Kaldi filter banks without their mean; (B, 80, T) with a length gets NeMo's mel spectrum, each band
normalised; (B, samples) gets the sound at 16 kHz.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import weight_files
from whenabouts.encoders.protocol import EncoderSettings, EncoderStatus, EncoderUnavailable, unit_length
from whenabouts.video.files import content_hash, printable, with_home
from whenabouts.video.voices import RATE, WINDOW_SECONDS, Floats, VoiceEncoder

PREFIX = "onnx-voices"
ORDER = 85
BANDS = 80
_NEEDS = ("onnxruntime", "faster_whisper")


def recognises(name: str) -> bool:
    """True for a file, and for a name that ends in .onnx."""
    return name.endswith(".onnx") or with_home(name).is_file()


def open_voices(name: str, settings: EncoderSettings) -> VoiceEncoder:
    """The model in that file. Raises EncoderUnavailable for another kind of file."""
    weight_files.require(name, _NEEDS, "people")
    with weight_files.loading(name, "people"):
        return OnnxVoiceEncoder(name)


def status() -> EncoderStatus:
    """Whether the packages are installed; a model is a file that the user names."""
    detail = "speaker models by ONNX file"
    return weight_files.status("ONNX models of voices", ("voices",), _NEEDS, "people", detail)


class OnnxVoiceEncoder(VoiceEncoder):
    """A voice encoder from an ONNX file. Raises EncoderUnavailable for another kind of file."""

    same_voice = 0.5  # usual for such models, not measured by this project

    def __init__(self, path: str | Path) -> None:
        self.name = str(with_home(path).resolve())
        self._session = _session(Path(self.name))
        self._layout, self._names = _layout(self._session, self.name)
        if self._layout != "sound":
            weight_files.require(self.name, ["kaldi_native_fbank"], "people")
        probe = self.embed([np.zeros(int(RATE * WINDOW_SECONDS), np.float32)])
        self.dimension = probe.shape[1]
        self.fingerprint = f"voices={content_hash(Path(self.name))[:16]} {self._layout}"

    def embed(self, pieces: Sequence[Floats]) -> Floats:
        """See `VoiceEncoder`. Raises EncoderUnavailable if the model gives no vectors."""
        given = self._given(pieces)
        outputs = self._session.run(None, dict(zip(self._names, given, strict=False)))
        flat = [out for out in outputs if out.ndim == 2 and len(out) == len(pieces) and out.shape[1] > 1]
        if not flat:
            shapes = ", ".join(str(out.shape) for out in outputs)
            raise EncoderUnavailable(
                f"{printable(Path(self.name))}: gives {shapes} for {len(pieces)} pieces of sound, no vector "
                "for each; name a model that makes vectors of voices (a speaker embedding)"
            )
        vectors = np.asarray(flat[-1], np.float32)
        if not np.isfinite(vectors).all():
            raise EncoderUnavailable(
                f"{printable(Path(self.name))}: gives numbers that are not finite; the file may be damaged"
            )
        return unit_length(vectors)

    def _given(self, pieces: Sequence[Floats]) -> list[NDArray[Any]]:
        if self._layout == "sound":
            return [np.stack(pieces)]
        if self._layout == "kaldi":
            return [np.stack([_kaldi_banks(piece) for piece in pieces])]
        bands = np.stack([_nemo_bands(piece) for piece in pieces])
        return [bands, np.full(len(pieces), bands.shape[2], np.int64)]


Layout = Literal["kaldi", "nemo", "sound"]


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not path.is_file():
        raise EncoderUnavailable(
            f"{printable(path)}: there is no such file; name the ONNX file of a model of voices"
        )
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own kinds share no other base
        raise EncoderUnavailable(
            f"{printable(path)}: cannot be opened as an ONNX model ({' '.join(str(error).split())[:200]}); "
            "download or export it again"
        ) from error


def _layout(session: Any, name: str) -> tuple[Layout, list[str]]:
    """The features that a model takes, and the names of its inputs: the sound's first, then the length's.

    Raises EncoderUnavailable for other inputs.
    """
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
    raise EncoderUnavailable(
        f"{printable(Path(name))}: takes {listed}, as no model of voices does; one takes "
        f"(batch, time, {BANDS}), (batch, {BANDS}, time) with a length, or (batch, samples)"
    )


def _banks(samples: Floats, **mel: Any) -> Floats:
    """(T, 80) log filter banks of 16 kHz samples; `mel` sets fields of kaldi's `frame` and `mel` options."""
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
    """(T, 80) as in wespeaker: 16-bit samples, Hamming windows, mean over time subtracted."""
    banks = _banks(samples * np.float32(32768), frame__window_type="hamming")
    return np.asarray(banks - banks.mean(axis=0), np.float32)


def _nemo_bands(samples: Floats) -> Floats:
    """(80, T) as in NeMo: Hann windows, Slaney's mel scale, each band with mean 0 and deviation 1."""
    bands = _banks(
        samples,
        frame__window_type="hann",
        frame__remove_dc_offset=False,
        mel__low_freq=0,
        mel__is_librosa=True,
    )
    deviation = bands.std(axis=0, ddof=1) if len(bands) > 1 else np.zeros(BANDS)
    return np.ascontiguousarray(((bands - bands.mean(axis=0)) / (deviation + 1e-5)).T, np.float32)
