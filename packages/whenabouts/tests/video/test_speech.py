from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest

from whenabouts.video.probe import MediaError
from whenabouts.video.sound import SAMPLE_RATE, sound_pieces
from whenabouts.video.speech import _sentences, transcribe
from whenabouts.video.speech_models import SpeechUnavailableError, load_recogniser, why_unavailable


def heard(*spoken: tuple[float, float, str]) -> SimpleNamespace:
    words = [SimpleNamespace(start=start, end=end, word=word, probability=0.9) for start, end, word in spoken]
    return SimpleNamespace(start=spoken[0][0], end=spoken[-1][1], text="", words=words)


def test_pieces_join_to_the_whole_sound_in_order(samples: Path) -> None:
    whole = np.concatenate([piece.samples for piece in sound_pieces(samples / "nasa_audio_only.mp3")])
    pieces = list(sound_pieces(samples / "nasa_audio_only.mp3", piece_seconds=3.0))
    assert len(pieces) >= 4 and whole.dtype == np.float32 and np.abs(whole).max() <= 1.5
    assert np.array_equal(np.concatenate([piece.samples for piece in pieces]), whole)
    assert len(whole) / SAMPLE_RATE == pytest.approx(13.0, abs=0.15)
    ends = [piece.start + len(piece.samples) / SAMPLE_RATE for piece in pieces]
    assert [piece.start for piece in pieces[1:]] == pytest.approx(ends[:-1])
    assert max(len(piece.samples) for piece in pieces) <= 3.2 * SAMPLE_RATE


def test_pieces_are_cut_where_it_is_quiet(
    tmp_path: Path, studio: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whenabouts.video import sound

    loud = np.sin(np.arange(8 * SAMPLE_RATE) / 9).astype(np.float32)
    loud[5 * SAMPLE_RATE : 6 * SAMPLE_RATE] = 0
    blocks = ((at / SAMPLE_RATE, loud[at : at + 1600]) for at in range(0, len(loud), 1600))
    first, *_ = sound._pieces(blocks, 8.0, SAMPLE_RATE)
    assert 5.0 <= len(first.samples) / SAMPLE_RATE <= 6.0


def test_a_gap_in_the_times_begins_a_new_piece_at_the_right_time() -> None:
    from whenabouts.video import sound

    second = np.zeros(SAMPLE_RATE, np.float32)
    pieces = list(sound._pieces(iter([(0.0, second), (1.0, second), (60.0, second)]), 600.0, SAMPLE_RATE))
    assert [(piece.start, len(piece.samples)) for piece in pieces] == [(0.0, 32_000), (60.0, 16_000)]


def test_sound_beside_pictures_is_found_and_none_is_an_error(samples: Path) -> None:
    assert sum(len(piece.samples) for piece in sound_pieces(samples / "friday.mp4")) > 5 * SAMPLE_RATE
    with pytest.raises(MediaError, match="no sound"):
        next(sound_pieces(samples / "bottle-detection.mp4"))


def test_sound_that_changes_its_rate_on_the_way_is_read_through(tmp_path: Path) -> None:
    """As transport streams do between a programme and its advertisements."""
    import av

    parts = []
    for rate, layout in ((48_000, "stereo"), (44_100, "mono")):
        with av.open(str(tmp_path / f"{rate}.mp3"), "w") as container:
            stream: Any = container.add_stream("mp3", rate=rate, layout=layout)
            channels = 2 if layout == "stereo" else 1
            wave = (np.sin(np.arange(rate * channels) / 20) * 9000).astype(np.int16)[None]
            frame = av.AudioFrame.from_ndarray(wave, format="s16", layout=layout)
            frame.sample_rate = rate
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        parts.append((tmp_path / f"{rate}.mp3").read_bytes())
    (tmp_path / "both.mp3").write_bytes(b"".join(parts))
    samples = np.concatenate([piece.samples for piece in sound_pieces(tmp_path / "both.mp3")])
    assert len(samples) / SAMPLE_RATE == pytest.approx(2.0, abs=0.25)


def test_a_frame_in_a_form_that_no_filter_takes_costs_that_frame_only(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sum(len(piece.samples) for piece in sound_pieces(samples / "friday.mp4"))
    given: list[object] = []

    class Refusing:
        """FFmpeg's filter, which fails for good at the twentieth frame, as it did on a damaged film."""

        def __init__(self, **target: Any) -> None:
            self.filter = resampler(**target)
            self.failed = False

        def resample(self, frame: Any) -> Any:
            given.append(frame)
            if self.failed or len(given) == 20:
                self.failed = True
                raise av.error.ArgumentError(22, "Invalid argument")
            return self.filter.resample(frame)

    resampler = av.AudioResampler
    monkeypatch.setattr(av, "AudioResampler", Refusing)
    notes: list[str] = []
    left = sum(len(piece.samples) for piece in sound_pieces(samples / "friday.mp4", notes=notes))
    assert 0 < whole - left < 0.2 * SAMPLE_RATE
    assert notes == ["its sound is damaged: 1 packet could not be decoded"]


def test_words_become_one_cue_a_sentence_with_their_times() -> None:
    segments = [
        heard((0.0, 0.4, " Tell"), (0.4, 0.9, " me."), (1.0, 1.2, " Is"), (1.2, 1.5, " he")),
        heard((1.5, 1.9, ' in?"'), (2.0, 2.5, " Yes"), (6.0, 6.5, " after"), (6.6, 7.0, " all")),
    ]
    cues = list(_sentences(segments))
    assert [(cue.start, cue.end, cue.text) for cue in cues] == [
        (0.0, 0.9, "Tell me."),
        (1.0, 1.9, 'Is he in?"'),
        (2.0, 2.5, "Yes"),
        (6.0, 7.0, "after all"),
    ]
    assert [word.text for word in cues[1].words] == ["Is", "he", 'in?"']


def test_a_sentence_without_end_is_cut_after_twenty_seconds() -> None:
    cues = list(_sentences([heard(*((at * 0.5, at * 0.5 + 0.5, " and") for at in range(120)))]))
    assert len(cues) >= 3 and all(cue.end - cue.start <= 20.0 for cue in cues)


def test_segments_without_words_are_cues_themselves() -> None:
    plain = SimpleNamespace(start=1.0, end=2.0, text=" Hello. ", words=None)
    (cue,) = _sentences([plain])
    assert (cue.start, cue.end, cue.text, cue.words) == (1.0, 2.0, "Hello.", ())


def test_a_missing_package_names_the_command_that_installs_it(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'whenabouts[speech]'" in (why_unavailable() or "")
    with pytest.raises(SpeechUnavailableError, match=r"pip install 'whenabouts\[speech\]'"):
        transcribe(samples / "friday.mp4", "a-model-nobody-loaded")


def test_a_folder_without_weights_says_how_to_convert_them(tmp_path: Path) -> None:
    pytest.importorskip("faster_whisper")
    assert "ct2-transformers-converter" in (why_unavailable(str(tmp_path)) or "")


@pytest.mark.parametrize("prefix", ["", "onnx-asr:"])
def test_a_folder_below_the_home_folder_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    pytest.importorskip("faster_whisper")
    pytest.importorskip("onnx_asr")
    monkeypatch.setenv("HOME", str(tmp_path))
    for file in ("config.json", "model.bin"):
        (tmp_path / file).write_text("{}")
    with pytest.raises(SpeechUnavailableError, match=r"cannot be loaded|cannot load this model"):
        load_recogniser(f"{prefix}~/")


@pytest.mark.slow
def test_missing_weights_say_what_to_do_and_are_not_downloaded(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faster_whisper")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SpeechUnavailableError, match=r"not on this machine.*models get nobody/no-such-model"):
        transcribe(samples / "friday.mp4", "nobody/no-such-model")
    with pytest.raises(SpeechUnavailableError, match=r"models get Systran/faster-whisper-small"):
        transcribe(samples / "friday.mp4", "small")
    with pytest.raises(SpeechUnavailableError, match=r"no speech model 'giant'.*large-v3"):
        transcribe(samples / "friday.mp4", "giant")


@pytest.fixture(scope="module")
def random_whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Whisper of two narrow layers with random weights, converted as a real one is."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("faster_whisper")
    from ctranslate2.converters import TransformersConverter
    from faster_whisper.tokenizer import _LANGUAGE_CODES
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    languages = [f"<|{code}|>" for code in _LANGUAGE_CODES]
    tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    special = ["<|endoftext|>", "<|startoftranscript|>", *languages, *(f"<|{task}|>" for task in tasks)]
    special += [f"<|{step * 0.02:.2f}|>" for step in range(1501)]
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    numbers = tokenizer.get_vocab()
    end = numbers["<|endoftext|>"]
    config = transformers.WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(), d_model=64, num_mel_bins=80,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=64, decoder_ffn_dim=64, pad_token_id=end, bos_token_id=end, eos_token_id=end,
        decoder_start_token_id=numbers["<|startoftranscript|>"], suppress_tokens=[], begin_suppress_tokens=[],
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config.lang_to_id = {code: numbers[code] for code in languages}
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("converted") / "whisper"
    model.save_pretrained(source)
    marks = dict.fromkeys(("eos_token", "bos_token", "unk_token"), "<|endoftext|>")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(source)
    transformers.WhisperFeatureExtractor().save_pretrained(source)
    files = ["tokenizer.json", "preprocessor_config.json"]
    TransformersConverter(str(source), copy_files=files).convert(str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_real_recogniser_gives_cues_within_the_recording(samples: Path, random_whisper: Path) -> None:
    """Random weights hear nonsense; that it comes as cues on the right clock is what is looked at."""
    track = transcribe(samples / "nasa_audio_only.mp3", str(random_whisper), language="en")
    assert track.source == f"speech:{random_whisper}" and track.language == "en"
    assert track.cues or track.notes[0] == "no speech was recognised in its sound"
    assert all(0 <= cue.start < cue.end <= 13.2 for cue in track.cues)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_silence_has_no_words(tmp_path: Path, studio: Any, random_whisper: Path) -> None:
    silent = studio.sound(tmp_path / "silence.wav", 5.0, volume=0.0)
    assert transcribe(silent, str(random_whisper)).cues == ()


def test_sound_comes_at_the_rate_that_was_asked_for(samples: Path) -> None:
    path = samples / "nasa_audio_only.mp3"
    seconds = {
        rate: sum(len(piece.samples) for piece in sound_pieces(path, rate=rate)) / rate
        for rate in (8_000, SAMPLE_RATE, 48_000)
    }
    assert list(seconds.values()) == pytest.approx([13.0] * 3, abs=0.15)
