"""Runs a BERT's graph on the CPU with ONNX Runtime: batches of similar length, one thread each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders._bert_graph import WORD_TABLE, BertShape, bert_graph
from whenabouts.encoders._onnx_graph import FLOAT, INT8
from whenabouts.encoders._quantised_graph import integer_parameters
from whenabouts.encoders.protocol import EncoderSettings, EncoderUnavailable

_BATCH_TOKENS = 512  # activations stay in the cache; larger batches were slower
_WASTE = 0.1  # padding of a tenth at most
_WINDOW = 4096  # texts that are tokenised and sorted at a time: bounds the memory

Put = Callable[[NDArray[np.intp], Any, NDArray[np.int32]], None]
Rows = Callable[[NDArray[np.int32]], NDArray[np.float32]]
Tokenise = Callable[[Sequence[str]], list[list[int]]]


class BertSession:
    """A BERT with its weights; thread-safe.

    `weights` are by the names of the graph's parameters; `word_rows` gives rows (N, D) of the word table if
    `weights` lack it. Raises EncoderUnavailable, naming `place`, for weights that do not fit.
    """

    def __init__(
        self,
        place: str,
        shape: BertShape,
        weights: Mapping[str, NDArray[np.generic]],
        settings: EncoderSettings,
        word_rows: Rows | None = None,
    ) -> None:
        self._threads = settings.threads or _usable_cpus()
        self._most_texts = settings.batch_size or _BATCH_TOKENS
        self._word_rows = word_rows
        self._place, self._shape, self._tensors = place, shape, weights
        self._session, self._weights = _open(place, shape, weights, word_rows is not None)

    @cached_property
    def _integers(self) -> tuple[Any, list[Any]]:
        """The session in 8-bit integers with its weights, made when it is first used."""
        tensors = integer_parameters(self._tensors)
        return _open(self._place, self._shape, tensors, self._word_rows is not None, quantised=True)

    def vectors(
        self, texts: Sequence[str], tokenise: Tokenise, *, quantised: bool = False
    ) -> NDArray[np.float32]:
        """(N, D) unit vectors of texts; `quantised` takes half the time (mean cosine with float32: 0.995)."""
        vectors = np.empty((len(texts), self._shape.width), dtype=np.float32)

        def put(places: NDArray[np.intp], output: Any, lengths: NDArray[np.int32]) -> None:
            vectors[places] = output

        self.run(texts, tokenise, "vectors", put, quantised=quantised)
        return vectors

    def run(
        self, texts: Sequence[str], tokenise: Tokenise, output: str, put: Put, *, quantised: bool = False
    ) -> None:
        """Pass each batch to `put`: positions of texts, `output` ("vectors" or "tokens"), token counts."""
        session = self._integers[0] if quantised and len(texts) else self._session
        for start in range(0, len(texts), _WINDOW):
            self._run_window(session, start, tokenise(texts[start : start + _WINDOW]), output, put)

    def _run_window(
        self, session: Any, start: int, tokens: Sequence[Sequence[int]], output: str, put: Put
    ) -> None:
        def run(rows: NDArray[np.intp]) -> None:
            lengths = np.array([len(tokens[row]) for row in rows], dtype=np.int32)
            ids = np.zeros((len(rows), int(lengths.max())), dtype=np.int32)
            for place, row in enumerate(rows):
                ids[place, : lengths[place]] = tokens[row]
            put(start + rows, session.run([output], self._feeds(ids, lengths))[0], lengths)

        batches = list(_batches(np.array([len(ids) for ids in tokens]), self._most_texts))
        if self._threads == 1 or len(batches) == 1:
            for batch in batches:
                run(batch)
            return
        with ThreadPoolExecutor(min(self._threads, len(batches))) as pool:
            for _ in pool.map(run, batches):
                pass  # re-raises a thread's error

    def _feeds(self, ids: NDArray[np.int32], lengths: NDArray[np.int32]) -> dict[str, Any]:
        if self._word_rows is None:
            return {"ids": ids, "lengths": lengths}
        words, places = np.unique(ids, return_inverse=True)
        table = self._word_rows(words)
        return {"ids": places.reshape(ids.shape).astype(np.int32), "lengths": lengths, WORD_TABLE: table}


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batches(lengths: NDArray[np.intp], most_texts: int) -> Iterator[NDArray[np.intp]]:
    """Rows by decreasing length, in batches of bounded size and padding."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        most = min(most_texts, max(1, _BATCH_TOKENS // longest))
        near = int(np.searchsorted(-lengths[order], -longest * (1 - _WASTE), side="right"))
        end = min(start + most, max(near, start + 1))
        yield order[start:end]
        start = end


def _open(
    place: str,
    shape: BertShape,
    tensors: Mapping[str, NDArray[np.generic]],
    words_given: bool,
    *,
    quantised: bool = False,
) -> tuple[Any, list[Any]]:
    """The session, and the weights, which must live as long as the session."""
    import onnxruntime

    graph = bert_graph(shape, words_given=words_given, quantised=quantised)
    missing = [name for name in graph.parameters if name not in tensors]
    if missing:
        raise EncoderUnavailable(f"{place}: the weights lack {missing[0]} and {len(missing) - 1} more")
    parameters = {name: tensors[name] for name in graph.parameters}
    width = parameters["embeddings.LayerNorm.weight"].shape[0]
    if width != shape.width:
        raise EncoderUnavailable(f"{place}: config.json says width {shape.width}, the weights have {width}")
    types = {FLOAT: np.float32, INT8: np.int8}
    values = [
        np.require(parameters[name], types[kind], ["C", "A"]) for name, kind in graph.parameters.items()
    ]
    ort_values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in values]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # batches run in parallel instead
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # The optimizer would fuse nodes that are faster separately.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_external_initializers(list(parameters), ort_values)
    model = graph.model({name: array.shape for name, array in parameters.items()})
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]), ort_values
