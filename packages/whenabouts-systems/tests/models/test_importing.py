"""Released checkpoints: nothing in them is run, they are imported whole or refused, and score as golden."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden_folder import cases, golden_folder
from torch import Tensor

from whenabouts.intake import pickled
from whenabouts.intake.files import FormatError
from whenabouts.intake.pickled import ForeignObject, PickleRefused, read_pickle
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.reloclnet import Config, Model, released_names
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released import program_names
from whenabouts_systems.released.checkpoint_file import read_checkpoint
from whenabouts_systems.released.importing import import_checkpoint
from whenabouts_systems.released.settings import Overrides

# Program, and the part of a case's array names that its outputs have.
OUTPUTS = {"xml": "out", "reloclnet": "out_official"}
CASES = [(name, path) for name in sorted(OUTPUTS) for path in cases(name, "*.npz")]
SMALL = {
    "visual_input_size": 6, "sub_input_size": 5, "query_input_size": 5, "hidden_size": 8, "n_heads": 2,
    "max_ctx_l": 9, "max_desc_l": 7, "ctx_mode": "video_sub", "conv_kernel_size": 3, "conv_stride": 1,
}  # fmt: skip


# Steps that copy what was put aside as number 0; and 2000 items of a dict.
ORDERED = b"ccollections\nOrderedDict\nh\x00\x85R0"
ITEMS = b"".join(b"M" + struct.pack("<H", number) + b"N" for number in range(2000))


class Foreign(dict[str, Any]):
    """Settings as an object of a package that is not there when they are read."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told)
        self.__dict__.update(told)


def write(path: Path, parameters: dict[str, Tensor], told: dict[str, Any] | None, **options: Any) -> Path:
    """A checkpoint as the programs write it, with settings of a class of the package easydict."""
    module = types.ModuleType("easydict")
    made = type("EasyDict", (Foreign,), {"__module__": "easydict"})
    module.EasyDict = made  # type: ignore[attr-defined]
    checkpoint: dict[str, Any] = {"model": OrderedDict(parameters), "epoch": 7}
    if told is not None:
        checkpoint["model_cfg"] = made(told)
    sys.modules["easydict"] = module
    try:
        torch.save(checkpoint, path, **options)
    finally:
        del sys.modules["easydict"]
    return path


def small_parameters() -> dict[str, Tensor]:
    """Those of a ReLoCLNet of `SMALL`, by the released names."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 8, "heads": 2, "max_clips": 9, "max_tokens": 7, "span_kernel": 3}
    config = Config(streams={"video": 6, "sub": 5}, query_width=5, **sizes)
    weights = Model(config).state_dict()
    return {theirs: weights[ours] for ours, theirs in released_names(config).items()}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "model.ckpt", small_parameters(), SMALL)


def test_each_program_has_cases() -> None:
    elsewhere = {
        "mmn",
        "conquer",
        "squidnet",
        "hero",
        "ms_sl",
        "gmmformer",
        "moment_detr",
        "qd_detr",
        "cg_detr",
        "tr_detr",
        "eatr",
        "uvcom",
    }  # these have tests of their own
    assert set(program_names()) == {*OUTPUTS, *elsewhere}
    missing = set(OUTPUTS) - {name for name, _ in CASES}
    if missing:
        pytest.skip(f"{golden_folder()} has no cases of {', '.join(sorted(missing))}")


@pytest.mark.parametrize(("program", "case"), CASES, ids=[f"{name}-{path.stem}" for name, path in CASES])
def test_an_imported_checkpoint_gives_the_golden_scores(program: str, case: Path, tmp_path: Path) -> None:
    is_old = CASES.index((program, case)) % 2 == 1  # of both kinds of file
    told = json.loads(case.with_suffix(".json").read_text(encoding="utf-8"))["config"]
    with np.load(case) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    parameters = {name.removeprefix("param/"): a for name, a in arrays.items() if name.startswith("param/")}
    path = write(tmp_path / "model.ckpt", parameters, told, _use_new_zipfile_serialization=not is_old)
    import_checkpoint(program, path).trained.save_pretrained(tmp_path / "out")
    trained = Trained.from_pretrained(tmp_path / "out")
    assert trained.inputs.tef == ("tef" in told["ctx_mode"])
    assert trained.model.config.as_released and trained.labels == "as-released"
    streams = {name: arrays[f"in/{name}_feat"] for name in trained.inputs.streams}
    mask = arrays[f"in/{next(iter(streams))}_mask"].bool()
    with torch.no_grad():
        queries = trained.model.encode_queries(
            QueryBatch(arrays["in/query_feat"], arrays["in/query_mask"].bool())
        )
        videos = trained.model.encode_videos(ClipBatch(streams, mask))
        found = trained.model.score_videos(queries, videos)
        spans = trained.model.score_spans(queries, videos)
    out = OUTPUTS[program]
    torch.testing.assert_close(found, arrays[f"{out}/q2ctx_scores"], atol=5e-5, rtol=1e-4)
    for border, scores in (("st", spans.start), ("ed", spans.end)):
        expected = arrays[f"{out}/{border}_logits_pair"].log_softmax(-1)
        torch.testing.assert_close(scores[mask], expected[mask], atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("is_old", [False, True], ids=["zip", "old"])
def test_tensors_are_read_as_torch_reads_them(is_old: bool, tmp_path: Path) -> None:
    base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    parameters = {
        "whole": base,
        "turned": base.T,
        "part": base[1:3, 2:5],
        "half": torch.randn(3, dtype=torch.float16),
        "brain": torch.randn(3).bfloat16(),
        "empty": torch.zeros(0, 3),
        "one": torch.tensor(2.5),
        "count": torch.tensor([1, 2]),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    }
    path = tmp_path / "model.ckpt"
    torch.save({"model": parameters, "epoch": 3}, path, _use_new_zipfile_serialization=not is_old)
    expected = torch.load(path, weights_only=True)["model"]
    read = read_checkpoint(path)
    assert list(read.tensors) == list(expected) and read.epoch == 3
    for name, one in read.tensors.items():
        assert torch.equal(one, expected[name].detach().float()), name
        assert one.is_contiguous() and not one.requires_grad


def test_settings_of_a_class_that_is_not_here_are_read_and_the_class_is_not_looked_for(small: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match="easydict"):
        torch.load(small, weights_only=True)
    read = read_checkpoint(small)
    assert read.settings == SMALL and read.epoch == 7
    assert "easydict" not in sys.modules


def test_parameters_alone_are_a_checkpoint_too(tmp_path: Path) -> None:
    parameters = small_parameters()
    torch.save(parameters, tmp_path / "alone.pt")
    torch.save({f"module.{name}": one for name, one in parameters.items()}, tmp_path / "parallel.pt")
    asked = Overrides(heads=2)
    alone, parallel = (import_checkpoint("reloclnet", tmp_path / f"{name}.pt", asked).trained
                       for name in ("alone", "parallel"))  # fmt: skip
    assert alone.model.config == parallel.model.config
    for name, one in alone.model.state_dict().items():
        assert torch.equal(one, parallel.model.state_dict()[name])


def test_a_file_of_the_ranked_programs_keys_is_imported(tmp_path: Path) -> None:
    """They save the parameters as "model_state_dict", beside the optimizer's state."""
    saved = {"epoch": 4, "model_cfg": SMALL, "model_state_dict": small_parameters()}
    torch.save({**saved, "optimizer_state_dict": {"state": {}}}, tmp_path / "best_model.pt")
    imported = import_checkpoint("reloclnet", tmp_path / "best_model.pt")
    assert (imported.trained.model.config.heads, imported.trained.about["epoch"]) == (2, 4)
    torch.save({"epoch": 4, "state_dict": 3}, tmp_path / "best_model.pt")
    with pytest.raises(FormatError, match="has no parameters under the key 'state_dict'"):
        import_checkpoint("reloclnet", tmp_path / "best_model.pt")


class Calls:
    """Pickled as a call of a function: what a hostile file holds."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> Any:
        return self._call


HOSTILE: dict[str, tuple[Any, str]] = {
    "os.system": (Calls(os.system, "touch {}"), "system"),
    "eval": (Calls(eval, "open('{}', 'w')"), "eval"),
    "exec": (Calls(exec, "open('{}', 'w')"), "exec"),
    "getattr": (Calls(getattr, "", "join"), "getattr"),
    "import": (Calls(__import__, "antigravity"), "__import__"),
    "torch.load": (Calls(torch.load, "{}"), "torch.serialization.load"),
}


WHERE = ["model", "model_cfg", "epoch", "parameter", "elsewhere"]


@pytest.mark.parametrize("is_old", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize(
    ("name", "where"),
    [*((name, "model_cfg") for name in sorted(HOSTILE)), *(("os.system", where) for where in WHERE)],
)
def test_a_hostile_file_is_refused_and_nothing_of_it_is_run(
    name: str, where: str, is_old: bool, tmp_path: Path
) -> None:
    call, told = HOSTILE[name]
    marked = tmp_path / "done"
    function, arguments = call.__reduce__()
    call = Calls(function, *(one.format(marked) for one in arguments))
    checkpoint: dict[str, Any] = {"model": small_parameters(), "model_cfg": SMALL, "epoch": 1}
    if where == "parameter":
        checkpoint["model"]["hostile"] = call
    else:
        checkpoint[where] = call
    path = tmp_path / "model.ckpt"
    torch.save(checkpoint, path, _use_new_zipfile_serialization=not is_old)
    with pytest.raises(FormatError, match=rf"asks for a call of '[\w.]*{told}'.*no code of the file was run"):
        import_checkpoint("reloclnet", path)
    assert not marked.exists() and "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "damaged or not a pickle"),
        (b"N", "damaged or not a pickle"),
        (b"\xff\xfe", "damaged or not a pickle"),
        (b"NN.", "damaged or not a pickle"),
        (b".", "damaged or not a pickle"),
        (b"0.", "damaged or not a pickle"),
        (b"h\x05.", "damaged or not a pickle"),
        (b"t.", "damaged or not a pickle"),
        (b"NNs.", "damaged or not a pickle"),
        (b"N(K\x01e.", "damaged or not a pickle"),
        (b"}(K\x01u.", "not a mapping"),
        (b"}]Ns.", "a key is neither text nor number"),
        (b"}cos\nsystem\nNs.", "a key is neither text nor number"),
        (b"}" + b"N" + b"\x85" * 100_000 + b"Ns.", "a key is neither text nor number"),
        (b"}N\x85" + b"q\x00h\x00\x86" * 40 + b"Ns.", "a key is neither text nor number"),
        (b"I" + b"9" * 5000 + b"\n.", "damaged or not a pickle"),
        (b"B\xff\xff\xff\x7fabc.", "is a pickle of more than 4194304 bytes"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.", "is a pickle of more than 4194304 bytes"),
        (b"\x8b\xff\xff\xff\x7fabc.", "is a pickle of more than 4194304 bytes"),
        (b"cos\nsystem\n(S'true'\ntR.", "a call of 'os.system'"),
        (b"(S'true'\nios\nsystem\n.", "the opcode INST"),
        (b"(cos\nsystem\nS'true'\no.", "the opcode OBJ"),
        (b"\x82\x01.", "the opcode EXT1"),
        (b"N)R.", "a call of 'NoneType'"),
        (b"cbuiltins\nlist\nNR.", "a call of 'builtins.list'"),
        (b"N)\x81.", "an object without a class"),
        (b"ccollections\nOrderedDict\n(NtR.", "damaged or not a pickle"),
        (b"ccollections\nOrderedDict\nNR.", "a call of 'collections.OrderedDict'"),
        (pickle.dumps(1 << 40_000), "an integer of 40001 bits"),
        (b"L" + b"9" * 4000 + b"L\n.", "an integer of 1328[0-9] bits"),
        (b"ccollections\nOrderedDict\n((K\x01K\x02K\x03tltR.", "damaged or not a pickle"),
        (b"(" + b"K\x01K\x02\x86" * 2000 + b"lq\x00" + ORDERED * 600 + b"N.", "copies more than 1000000"),
        (b"}(" + ITEMS + b"uq\x00cx\ny\n)\x81" + b"h\x00b" * 600 + b"0N.", "copies more than 1000000"),
    ],
)
def test_a_damaged_or_hostile_pickle_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(PickleRefused, match=told):
        read_pickle(io.BytesIO(data), {"collections.OrderedDict"})


def test_a_pickle_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "MOST_PICKLE_BYTES", 1000)
    for data in (b"N0" * 500 + b"N.", b"I" + b"1" * 1000 + b"\n."):
        with pytest.raises(PickleRefused, match="more than 1000 bytes"):
            read_pickle(io.BytesIO(data), ())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_pickle_reads_them(protocol: int) -> None:
    shared = [1, -2, 2**70, 3.5]
    value: dict[Any, Any] = {
        "a": shared, "b": (None, True, False), "c": "äöü", "d": b"bytes" if protocol > 2 else "b",
        "e": [shared, shared], "f": (1, (2, (3, ())), {}), "g": [], 5: {"h": 1}, "long": list(range(3000)),
        "i": (), "j": (1,), "k": (1, 2),
    }  # fmt: skip
    assert read_pickle(io.BytesIO(pickle.dumps(value, protocol)), ()) == value


def test_an_object_of_an_unknown_class_stays_what_it_was_given() -> None:
    class_name = f"{Foreign.__module__}.Foreign"
    data = pickle.dumps(Foreign({"a": 1}), 2)
    assert read_pickle(io.BytesIO(data), ()) == ForeignObject(class_name, {"a": 1})


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Some bytes changed, left out, put in or doubled."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        place, other = dice.randrange(len(changed)), dice.randrange(len(changed))
        new = [dice.randbytes(1), b"", dice.randbytes(5), bytes(changed[other : other + 30])]
        kind = dice.randrange(4)
        changed[place : place + (1, 12, 0, 0)[kind]] = new[kind]
    return bytes(changed)


def test_whatever_is_changed_in_a_file_it_is_refused_or_read(tmp_path: Path) -> None:
    path = write(tmp_path / "m.ckpt", small_parameters(), SMALL, _use_new_zipfile_serialization=False)
    data, dice, refused = path.read_bytes(), random.Random(3), 0
    for _ in range(400):
        path.write_bytes(mutated(data[:9000], dice) + data[9000:])
        try:
            read_checkpoint(path)
        except FormatError as error:
            assert "\n" not in str(error)
            refused += 1
    assert 200 < refused < 400


def replaced(path: Path, entry: str, data: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    """The same zip file with other bytes in an entry, or without it where `data` is empty."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    found = next(name for name in entries if name.endswith(entry))
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            if name != found or data:
                archive.writestr(name, data if name == found else content)


def test_a_zip_file_that_is_damaged_is_told(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()

    def refused(told: str) -> None:
        with pytest.raises(FormatError, match=told) as error:
            read_checkpoint(small)
        assert str(small) in str(error.value)
        small.write_bytes(data)

    replaced(small, "data/0", b"")
    refused("lacks its entry '.*data/0'")
    replaced(small, "data/0", b"abc")
    refused(r"is cut off: storage '0' has 3 of its \d+ bytes")
    replaced(small, "data/0", b"\0" * 4096, zipfile.ZIP_DEFLATED)
    refused("has a compressed entry")
    replaced(small, "byteorder", b"big")
    refused("other byte order")
    replaced(small, "data.pkl", b"")
    refused("is a zip file, but not of torch.save")
    small.write_bytes(data[: len(data) // 2])
    refused("is a zip file that is cut off; fetch it again")
    small.write_bytes(data[:-22] + b"PK\x06\x07" + struct.pack("<LQL", 1, 0, 2) + data[-22:])
    refused("is a damaged zip file .*multiple disks")
    small.write_bytes(data.replace(b"data.pkl", b"data.pkx", 1))
    refused("is a damaged zip file")
    small.unlink()
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        read_checkpoint(small)


def test_an_old_file_that_is_damaged_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "m.ckpt", small_parameters(), SMALL, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    with pytest.raises(FormatError, match="cut off"):
        read_checkpoint(path)
    for content, told in (
        (pickle.dumps(5), "not of torch.save"),
        (data[: len(data) // 4], "damaged|cut off|lacks its values"),
        (data.replace(b"little_endianq\x02\x88", b"little_endianq\x02\x89", 1), "other byte order"),
        (b"Once upon a time", "damaged or not a pickle|has a step"),
        (data.replace(b"]q", b"](]e]q", 1) if b"]q" in data else b"", "damaged|no tensor uses|no pickle"),
        (b"", "damaged or not a pickle"),
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=told):
            read_checkpoint(path)


class ClaimedTensor:
    """Pickled as a tensor of claimed sizes, whatever is kept for it."""

    def __init__(
        self, count: Any, offset: Any, size: Any, stride: Any, kind: Any = torch.FloatStorage
    ) -> None:
        self.id = ("storage", kind, "0", "cpu", count)
        self.rest: tuple[Any, ...] = (offset, size, stride, False, OrderedDict())


def claimed_file(path: Path, claimed: Any) -> Path:
    """A checkpoint with one parameter of which 16 bytes are kept."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return value if isinstance(value, tuple) and value[:1] == ("storage",) else None

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, ClaimedTensor):
                return torch._utils._rebuild_tensor_v2, (value.id, *value.rest)
            return NotImplemented

    made = io.BytesIO()
    Pickler(made, 2).dump({"model": {"weight": claimed}})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", made.getvalue())
        archive.writestr("archive/data/0", struct.pack("<4f", 1, 2, 3, 4))
    return path


@pytest.mark.parametrize("place", ["offset", "size", "count", "setting"])
def test_an_integer_of_5000_bytes_is_refused_in_a_line(place: str, tmp_path: Path) -> None:
    large = 1 << 40_000
    given: dict[str, Any] = {"count": 4, "offset": 0, "size": (4,), "stride": (1,)}
    given |= {place: (large,) if place == "size" else large} if place != "setting" else {}
    claimed: Any = large if place == "setting" else ClaimedTensor(**given)
    with pytest.raises(FormatError, match=r"has an integer of 40001 bits"):
        read_checkpoint(claimed_file(tmp_path / "m.ckpt", claimed))


def test_sizes_that_a_file_claims_are_never_believed(tmp_path: Path) -> None:
    fine = read_checkpoint(claimed_file(tmp_path / "m.ckpt", ClaimedTensor(4, 0, (2, 2), (2, 1))))
    assert fine.tensors["weight"].tolist() == [[1, 2], [3, 4]]
    for claimed, why in (
        (ClaimedTensor(1 << 60, 0, (1 << 60,), (1,)), "claims "),
        (ClaimedTensor(4, 0, (1 << 40,), (0,)), "has size .* has 4 values for it"),
        (ClaimedTensor(4, 0, (1 << 40, 1 << 40, 1 << 40), (0, 0, 0)), "has size .* has 4 values for it"),
        (ClaimedTensor(4, 3, (2,), (1,)), "has size .* has 4 values for it"),
        (ClaimedTensor(4, 0, (2, 2), (3, 1)), "has size .* has 4 values for it"),
        (ClaimedTensor(4, -1, (2,), (1,)), "no tensor can have"),
        (ClaimedTensor(4, 0, (2,), (-1,)), "no tensor can have"),
        (ClaimedTensor(4, 0, (-2,), (1,)), "no tensor can have"),
        (ClaimedTensor(4, 0, (2, 2), (1,)), "no tensor can have"),
        (ClaimedTensor(4, 0, 4, 1), "no tensor can have"),
        (ClaimedTensor(4, 0, (4.0,), (1,)), "no tensor can have"),
        (ClaimedTensor(4, 0, (0, 1 << 100), (1, 1)), "no tensor can have"),
        (ClaimedTensor(4, 1 << 100, (2,), (1,)), "no tensor can have"),
        (ClaimedTensor(4, 0, (1,) * 17, (1,) * 17), "no tensor can have"),
        (ClaimedTensor(-4, 0, (4,), (1,)), "is stored as torch.FloatStorage"),
        (ClaimedTensor("4", 0, (4,), (1,)), "is stored as torch.FloatStorage"),
        (
            ClaimedTensor(4, 0, (4,), (1,), torch.ComplexFloatStorage),
            "is stored as torch.ComplexFloatStorage",
        ),
        (ClaimedTensor(4, 0, (4,), (1,), os.system), "is stored as .*system"),
        (ClaimedTensor(4, 0, (4,), (1,), "torch.FloatStorage"), "has no values in this file"),
    ):
        with pytest.raises(FormatError, match=rf"parameter 'weight' .*{why}|parameter 'weight' {why}"):
            read_checkpoint(claimed_file(tmp_path / "m.ckpt", claimed))


@pytest.mark.parametrize("value", [ClaimedTensor(4, 0, (4,), (1,), os.system), os.system])
def test_a_strange_name_of_a_type_is_shown_on_one_line(value: Any, tmp_path: Path) -> None:
    path = claimed_file(tmp_path / "m.ckpt", value)
    with zipfile.ZipFile(path) as archive:
        pickled = archive.read("archive/data.pkl").replace(b"system", b"sys\x1b[31m\rem")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", bytes(16))
    with pytest.raises(FormatError, match=r"parameter 'weight' is .*\.sys\[31m em; accepted"):
        read_checkpoint(path)


def test_many_parameters_of_the_same_values_do_not_fill_the_memory(tmp_path: Path) -> None:
    values = torch.zeros(1 << 14)
    torch.save({"model": {f"p{number}": values for number in range(2000)}}, tmp_path / "m.ckpt")
    with pytest.raises(FormatError, match=r"has parameters of 32768000 values together, but only \d+ bytes"):
        read_checkpoint(tmp_path / "m.ckpt")
    torch.save({"model": {"one": values, "tied": values}}, tmp_path / "m.ckpt")
    assert set(read_checkpoint(tmp_path / "m.ckpt").tensors) == {"one", "tied"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([1, 2], "holds a list, not parameters by name"),
        ({"model": 3}, "no parameters under the key 'model'"),
        ({"model": {}}, "no parameters under the key 'model'"),
        ({"model": {"a": 3}}, "parameter 'a' is not a tensor but int"),
        ({"model": {"a": os.system}}, "parameter 'a' is not a tensor but .*system"),
    ],
)
def test_what_is_no_checkpoint_is_told(value: Any, told: str, tmp_path: Path) -> None:
    torch.save(value, tmp_path / "m.ckpt")
    with pytest.raises(FormatError, match=told):
        read_checkpoint(tmp_path / "m.ckpt")


def test_missing_surplus_and_misshaped_parameters_are_named(tmp_path: Path) -> None:
    parameters = small_parameters()
    del parameters["video_encoder1.self.query.bias"]
    parameters["more.weight"] = torch.zeros(2)
    parameters["sub_query_linear.weight"] = torch.zeros(8, 7)
    path = write(tmp_path / "m.ckpt", parameters, SMALL)
    with pytest.raises(FormatError) as told:
        import_checkpoint("reloclnet", path)
    assert (
        "does not fit: missing: video_encoder1.self.query.bias; left over: more.weight; "
        "of another shape: sub_query_linear.weight is (8, 7) for (8, 8); accepted"
    ) in str(told.value)
    parameters = small_parameters()
    parameters["modular_vector_mapping.weight"][0, 0] = float("nan")
    with pytest.raises(FormatError, match=r"'modular_vector_mapping.weight' has values that are not finite"):
        import_checkpoint("reloclnet", write(path, parameters, SMALL))


def test_a_checkpoint_of_another_program_is_told_by_its_parameters(small: Path) -> None:
    with pytest.raises(FormatError, match=r"left over: .*query_encoder1\."):
        import_checkpoint("xml", small)
    torch.save({"model": {"layer.weight": torch.zeros(2, 2)}}, small)
    with pytest.raises(FormatError, match=r"lacks parameter 'video_input_proj.net.1.weight'.*this program"):
        import_checkpoint("xml", small)
    known = ", ".join(program_names())
    with pytest.raises(UsageError, match=f"'moment': no such program; known: {known}"):
        import_checkpoint("moment", small)


def test_settings_come_from_the_tensors_and_the_file_and_what_nobody_tells_is_said(small: Path) -> None:
    imported = import_checkpoint("reloclnet", small)
    config, inputs = imported.trained.model.config, imported.trained.inputs
    assert (config.hidden, config.heads, config.span_kernel, config.max_clips) == (8, 2, 3, 9)
    assert (inputs.widths, inputs.query.width, inputs.max_tokens) == ({"video": 6, "sub": 5}, 5, 7)
    assert (inputs.long_videos, inputs.tef, inputs.clip_seconds) == ("pool-as-released", False, 1.5)
    assert (imported.trained.decoding.min_clips, imported.trained.decoding.max_clips) == (2, 15)
    assert imported.trained.decoding.ends == "exclusive"
    assert imported.guessed == ()
    write(small, small_parameters(), None)
    imported = import_checkpoint("reloclnet", small)
    assert imported.trained.model.config.heads == 8
    assert [one.split(":")[0] for one in imported.guessed] == [
        "heads of attention",
        "features of 6 and 5 values",
    ]


def test_options_beside_the_file_tell_more_and_the_caller_has_the_last_word(small: Path) -> None:
    told = {
        "n_heads": 4,
        "clip_length": 2.0,
        "no_norm_vfeat": True,
        "max_pred_l": 9,
        "nms_thd": 0.5,
        "q2c_alpha": 12,
    }
    (small.parent / "opt.json").write_text(json.dumps(told), encoding="utf-8")
    trained = import_checkpoint("reloclnet", small).trained
    assert trained.model.config.heads == 2  # model_cfg in the file counts first
    assert (trained.model.config.alpha, trained.decoding.max_clips, trained.decoding.nms) == (12.0, 8, 0.5)
    streams = trained.inputs.streams
    assert (trained.inputs.clip_seconds, streams["video"].normalise, streams["sub"].normalise) == (
        2.0,
        False,
        True,
    )
    asked = Overrides(heads=8, clip_seconds=1.0, tef=True, encoders={"query": "bert", "video": "i3d"})
    trained = import_checkpoint("reloclnet", small, asked).trained
    assert (trained.model.config.heads, trained.inputs.clip_seconds, trained.inputs.tef) == (8, 1.0, True)
    assert {name: one.width for name, one in trained.inputs.streams.items()} == {"video": 4, "sub": 3}
    assert (trained.inputs.query.encoder, trained.inputs.streams["video"].encoder) == ("bert", "i3d")


@pytest.mark.parametrize("heads", [0, -2])
def test_no_heads_are_refused(heads: int) -> None:
    with pytest.raises(UsageError, match=rf"heads is {heads}; accepted: a whole number, 1 or more"):
        Overrides(heads=heads)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_clips_without_a_length_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match=rf"clip_seconds is {seconds}; accepted: a number above 0"):
        Overrides(clip_seconds=seconds)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"hidden_size": 16}, r"'query_input_proj.net.1.weight' has size 8, but the settings .* say 16"),
        ({"max_ctx_l": 100}, "say 100"),
        ({"n_heads": 3}, "3 heads do not divide the width 8; give --heads"),
        ({"n_heads": "2"}, "n_heads: the setting is '2'; accepted: a value such as 8"),
        ({"conv_stride": 2}, "conv_stride: is not supported: 2; accepted: 1"),
        ({"ranking_loss_type": "triplet"}, "no model can be made"),
    ],
)
def test_settings_that_do_not_fit_are_named(told: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.ckpt", small_parameters(), {**SMALL, **told})
    with pytest.raises((FormatError, UsageError), match=message):
        import_checkpoint("reloclnet", path)


def test_options_of_another_run_and_options_that_are_none_are_told(small: Path) -> None:
    options = small.parent / "other.json"
    options.write_text(json.dumps({"hidden_size": 256}), encoding="utf-8")
    write(small, small_parameters(), None)
    with pytest.raises(FormatError, match=r"opt\.json.* say 256"):
        import_checkpoint("reloclnet", small, options=options)
    options.write_text("[]", encoding="utf-8")
    with pytest.raises(FormatError, match=r"other\.json: does not hold options"):
        import_checkpoint("reloclnet", small, options=options)
    with pytest.raises(UsageError, match="encoder of 'sound': unknown; accepted: query, video, sub"):
        import_checkpoint("reloclnet", small, Overrides(encoders={"sound": "x"}))
    with pytest.raises(UsageError, match="--dataset: only settings of mmn depend on it"):
        import_checkpoint("reloclnet", small, Overrides(dataset="tacos"))


def test_recurrent_encoders_and_stacked_convolutions_are_refused_by_name(tmp_path: Path) -> None:
    for told in ({"encoder_type": "gru"}, {"stack_conv_predictor_conv_kernel_sizes": [3, 5]}):
        path = write(tmp_path / "m.ckpt", small_parameters(), {**SMALL, **told})
        with pytest.raises(FormatError, match=f"{next(iter(told))}: is not supported"):
            import_checkpoint("xml", path)


def test_a_link_to_an_empty_folder_is_filled(small: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name, folder in (("link", "elsewhere"), ("early", "not there yet")):
        (tmp_path / name).symlink_to(tmp_path / folder)
        import_checkpoint("reloclnet", small).write(tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert Trained.from_pretrained(tmp_path / folder).system == "reloclnet"


def test_the_card_says_where_it_is_from(small: Path, tmp_path: Path) -> None:
    import_checkpoint("reloclnet", small).trained.save_pretrained(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "ReLoCLNet, imported from a checkpoint of the authors' program" in card
    assert "| imported from | model.ckpt |" in card and "| epoch | 7 |" in card
    assert "SHA-256" in card and "| labels | as-released |" in card
