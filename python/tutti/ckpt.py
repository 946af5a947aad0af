"""Reads and checks checkpoints of Tutti, without a job: any tensor, or any part of one.

    checkpoint = tutti.ckpt.open("runs/a")          # the newest; step=100 takes another
    checkpoint.step, checkpoint.values              # 200, {"train_loss": 0.31, ...}
    weight = checkpoint["fc.weight"]                # a numpy array
    rows = checkpoint.read("emb.0", [1000, 0], [50, 64])
    momentum = checkpoint.torch("fc.weight/momentum_buffer")

Every byte that is read is compared with its digest. To write checkpoints from PyTorch, see tutti.dcp.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import os
import re
import typing
import warnings

import numpy

from tutti._bytes import crc32c

if typing.TYPE_CHECKING:
    import torch

__all__ = ["Box", "Checkpoint", "CheckpointError", "Tensor", "open", "steps"]

_MANIFEST = "manifest.json"
_Indices = typing.Optional[collections.abc.Sequence[int]]
_TAIL = re.compile(rb'"crc32c":"([0-9a-f]{8})"}\n\Z')
# How numpy holds the elements. It has no bfloat16: see Checkpoint.read().
_NUMPY = {
    "F32": "<f4",
    "F64": "<f8",
    "F16": "<f2",
    "BF16": "<u2",
    "I8": "i1",
    "U8": "u1",
    "I32": "<i4",
    "I64": "<i8",
    "BOOL": "?",
    "C64": "<c8",
}


class CheckpointError(Exception):
    """A checkpoint that is damaged, or not there. The text says which file, and where."""


@dataclasses.dataclass(frozen=True)
class Box:
    """A part of a tensor: ``extent`` elements from ``begin`` on in each dimension, packed in a file."""

    file: str
    offset: int
    begin: tuple[int, ...]
    extent: tuple[int, ...]
    crc32c: str


@dataclasses.dataclass(frozen=True)
class Tensor:
    """What a checkpoint says of a tensor. ``dtype`` is a name of safetensors, such as "F32"."""

    dtype: str
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]


def steps(folder: str | os.PathLike) -> list[int]:
    """The steps whose checkpoints are in a folder, in rising order."""
    found = (re.fullmatch(r"step-(\d+)", name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def open(path: str | os.PathLike, step: int | None = None) -> Checkpoint:
    """Opens a checkpoint.

    Args:
        path: the folder of a job's checkpoints, or that of one checkpoint.
        step: the step of the checkpoint; without it the newest. If the newest is damaged, a
            warning says so, and the one before it is opened.

    Raises:
        CheckpointError: there is none, or what there is is damaged.
    """
    path = os.fspath(path)
    if os.path.exists(os.path.join(path, _MANIFEST)):
        checkpoint = Checkpoint(path)
        if step not in (None, checkpoint.step):
            raise CheckpointError(f"{path} is the checkpoint of step {checkpoint.step}, not of {step}")
        return checkpoint
    if not os.path.isdir(path):
        raise CheckpointError(f"there is no folder {path}")
    known = steps(path)
    if step is not None:
        if step not in known:
            raise CheckpointError(f"{path} has no checkpoint of step {step}; it has {known}")
        return Checkpoint(os.path.join(path, folder_name(step)))
    trouble = None
    for newest in reversed(known):
        try:
            return Checkpoint(os.path.join(path, folder_name(newest)))
        except CheckpointError as error:
            warnings.warn(f"skipped a damaged checkpoint: {error}", stacklevel=2)
            trouble = trouble or error
    raise trouble or CheckpointError(f"there is no checkpoint in {path}")


def folder_name(step: int) -> str:
    """The name of the folder of a step, for example "step-0000100"."""
    return f"step-{step:07d}"


class Checkpoint(collections.abc.Mapping[str, numpy.ndarray]):
    """A checkpoint: a mapping from names of tensors to numpy arrays, which are read when asked for.

    The state that an optimizer keeps for ``fc.weight`` has names such as ``fc.weight/exp_avg``.

    Attributes:
        path, step: its folder, and after which step it was saved.
        values: scalars of the model, optimizer and schedule, by name.
        data: the position in the data, by name.
        layout, versions: of the job and the programs that wrote it.
        tensors: a Tensor (dtype, shape, boxes) for each name.
    """

    path: str
    step: int
    values: dict[str, bool | int | float | str]  # type: ignore[assignment]
    data: dict[str, typing.Any]
    layout: dict[str, typing.Any]
    versions: dict[str, typing.Any]
    tensors: dict[str, Tensor]

    def __init__(self, path: str):
        self.path = path
        manifest = _read_manifest(os.path.join(path, _MANIFEST))
        try:
            self.step = manifest["step"]
            own_name = re.fullmatch(r"step-(\d+)", os.path.basename(os.path.abspath(path)))
            if own_name and int(own_name[1]) != self.step:
                raise CheckpointError(f"{path} holds the checkpoint of step {self.step}: was it renamed?")
            self.values, self.data, self.layout, self.versions = (
                {name: _value(value) for name, value in manifest[key].items()}
                for key in ("values", "data", "layout", "versions")
            )
            self._chunk = manifest["chunk_bytes"]
            self._files = {file["name"]: file for file in manifest["files"]}
            self.tensors = dict(_tensors(manifest["tensors"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: the manifest lacks something: {error!r}") from error
        for name, file in self._files.items():
            if os.path.basename(name) != name:
                raise CheckpointError(f"{path}: the manifest names the file {name!r} in another folder")
            try:
                size = os.path.getsize(os.path.join(path, name))
            except OSError as error:
                raise CheckpointError(f"{path}: {name} cannot be read: {error.strerror}") from error
            if size != file["bytes"]:
                raise CheckpointError(f"{path}: {name} has {size} bytes, expected {file['bytes']}")
        self._check_boxes()

    def _check_boxes(self):
        """The boxes of a tensor cover it once, and those of a file fill it."""
        left = {name: file["bytes"] - file["header_bytes"] for name, file in self._files.items()}
        for name, tensor in self.tensors.items():
            item, elements = numpy.dtype(_NUMPY[tensor.dtype]).itemsize, 0
            for box in tensor.boxes:
                file, size = self._files.get(box.file), math.prod(box.extent) * item
                inside = len(box.begin) == len(box.extent) == len(tensor.shape) and all(
                    0 <= b and 0 <= e and b + e <= whole
                    for b, e, whole in zip(box.begin, box.extent, tensor.shape)
                )
                if (
                    not inside
                    or file is None
                    or file["header_bytes"] < 8
                    or not file["header_bytes"] <= box.offset <= file["bytes"] - size
                    or len(box.crc32c) != 8 * -(-size // self._chunk)
                ):
                    raise CheckpointError(f"{self.path}: the manifest has a wrong box of {name}")
                elements += math.prod(box.extent)
                left[box.file] -= size
            if elements != math.prod(tensor.shape) or _overlap(tensor.boxes):
                raise CheckpointError(f"{self.path}: the boxes of {name} do not cover it once")
        for name, rest in left.items():
            if rest != 0:
                raise CheckpointError(f"{self.path}: {name} has {rest} bytes that belong to no tensor")

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> collections.abc.Iterator[str]:
        return iter(self.tensors)

    def __getitem__(self, name: str) -> numpy.ndarray:
        return self.read(name)

    def __repr__(self):
        return f"<tutti checkpoint {self.path}: step {self.step}, {len(self)} tensors>"

    def read(
        self, name: str, begin: _Indices = None, extent: _Indices = None
    ) -> numpy.ndarray:
        """A tensor, or ``extent`` elements from ``begin`` on in each dimension, as a numpy array.

        Arrays of BF16 need the package ml_dtypes; torch() does not.

        Raises:
            KeyError: there is no such tensor.
            CheckpointError: its bytes are damaged.
        """
        elements = self.elements(name, begin, extent)
        if self.tensors[name].dtype != "BF16":
            return elements
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"{name} is BF16, which numpy does not have: read it with torch(), or install ml_dtypes"
            ) from None
        return elements.view(ml_dtypes.bfloat16)

    def torch(
        self, name: str, begin: _Indices = None, extent: _Indices = None
    ) -> torch.Tensor:
        """As read(), but a tensor of PyTorch, on the CPU."""
        import torch

        elements = self.elements(name, begin, extent)
        if self.tensors[name].dtype != "BF16":
            return torch.from_numpy(elements)
        return torch.from_numpy(elements.view("<i2")).view(torch.bfloat16)

    def elements(
        self, name: str, begin: _Indices = None, extent: _Indices = None
    ) -> numpy.ndarray:
        """As read(), but the elements of BF16 are their bits, as numbers of 16 bits."""
        tensor = self.tensors[name]
        begin = tuple(begin) if begin is not None else (0,) * len(tensor.shape)
        if extent is None:
            extent = tuple(size - at for size, at in zip(tensor.shape, begin))
        extent = tuple(extent)
        if len(begin) != len(tensor.shape) or len(extent) != len(tensor.shape) or any(
            at < 0 or count < 0 or at + count > size
            for at, count, size in zip(begin, extent, tensor.shape)
        ):
            raise ValueError(
                f"{name} has the shape {list(tensor.shape)}, which does not contain "
                f"{list(extent)} elements from {list(begin)} on"
            )
        whole = numpy.empty(extent, _NUMPY[tensor.dtype])
        for box in tensor.boxes:
            low = [max(b, c) for b, c in zip(begin, box.begin)]
            high = [
                min(b + e, c + f)
                for b, e, c, f in zip(begin, extent, box.begin, box.extent)
            ]
            if any(h <= l for l, h in zip(low, high)):
                continue
            rows = self._rows(name, tensor, box, low, high)
            into = tuple(slice(l - b, h - b) for l, h, b in zip(low, high, begin))
            # Of the rows that were read, dimension 0 is already the right part.
            part = tuple(
                slice(l - b, h - b) for l, h, b in zip(low[1:], high[1:], box.begin[1:])
            )
            whole[into] = rows[(slice(None), *part)] if low else rows
        return whole

    def _rows(self, name, tensor, box, low, high):
        """The rows of a box from low[0] to high[0], checked. A scalar is one row."""
        dtype = numpy.dtype(_NUMPY[tensor.dtype])
        row = math.prod(box.extent[1:]) * dtype.itemsize
        first = (low[0] - box.begin[0]) * row if low else 0
        last = (high[0] - box.begin[0]) * row if low else dtype.itemsize
        size = math.prod(box.extent) * dtype.itemsize
        # Whole chunks, so that their digests can be compared.
        start = first // self._chunk * self._chunk
        stop = min(-(-last // self._chunk) * self._chunk, size)
        path = os.path.join(self.path, box.file)
        bytes_read = numpy.empty(stop - start, "u1")
        _read_at(path, box.offset + start, bytes_read)
        for at in range(start, stop, self._chunk):
            chunk = bytes_read[at - start : at - start + self._chunk]
            number = at // self._chunk
            if f"{crc32c(chunk):08x}" != box.crc32c[8 * number : 8 * number + 8]:
                raise CheckpointError(
                    f"{path}: bytes {box.offset + at} to {box.offset + at + len(chunk)}, "
                    f"which belong to {name}, have changed"
                )
        rows = bytes_read[first - start : last - start].view(dtype)
        shape = (high[0] - low[0], *box.extent[1:]) if low else ()
        return rows.reshape(shape)

    def verify(self) -> list[str]:
        """Reads and checks every byte. A list of sentences, one for each error; empty: none found."""
        errors = []
        for name, file in self._files.items():
            path = os.path.join(self.path, name)
            header = numpy.empty(file["header_bytes"], "u1")
            try:
                _read_at(path, 0, header)
            except CheckpointError as error:
                errors.append(str(error))
                continue
            if f"{crc32c(header):08x}" != file["header_crc32c"]:
                errors.append(f"{path}: its header has changed")
        for name, tensor in self.tensors.items():
            for box in tensor.boxes:
                try:
                    self.elements(name, box.begin, box.extent)
                except CheckpointError as error:
                    errors.append(str(error))
        return errors


def _overlap(boxes):
    """Whether two boxes have an element in common."""
    if not boxes or not boxes[0].begin:
        return len(boxes) > 1
    ordered = sorted((box for box in boxes if math.prod(box.extent)), key=lambda box: box.begin)
    for i, box in enumerate(ordered):
        end = [b + e for b, e in zip(box.begin, box.extent)]
        for other in ordered[i + 1 :]:
            if other.begin[0] >= end[0]:
                break
            if all(b < e for b, e in zip(other.begin, end)) and all(
                b < o + f for b, o, f in zip(box.begin, other.begin, other.extent)
            ):
                return True
    return False


def compose(manifest):
    """The text of a manifest, with its digest: a line for each file and tensor, as the C++ writer has it."""

    def text(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    lines = []
    for key, value in manifest.items():
        if key == "files":
            lines.append('"files":[\n' + ",\n".join(map(text, value)) + "]")
        elif key == "tensors":
            entries = (f"{text(name)}:{text(entry)}" for name, entry in value.items())
            lines.append('"tensors":{\n' + ",\n".join(entries) + "}")
        else:
            lines.append(f"{text(key)}:{text(value)}")
    body = "{" + ",\n".join(lines) + ',\n"crc32c":"'
    digest = crc32c((body + '00000000"}\n').encode())
    return f'{body}{digest:08x}"}}\n'.encode()


def _read_manifest(path):
    try:
        with _file(path) as file:
            text = file.read()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    tail = _TAIL.search(text)
    if not tail:
        raise CheckpointError(f"{path} does not end with its digest: it was cut off or changed")
    start, end = tail.span(1)
    if f"{crc32c(text[:start] + b'0' * 8 + text[end:]):08x}".encode() != tail[1]:
        raise CheckpointError(f"{path} has changed: its digest differs")
    try:
        manifest = json.loads(text)
        form = manifest["format"], manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is no manifest: {error!r}") from error
    if form != ("tutti checkpoint", 1):
        raise CheckpointError(f"{path} is {form[0]!r} of version {form[1]}; expected version 1")
    return manifest


def _value(value):
    return float(value["float"]) if isinstance(value, dict) else value


def _tensors(of_manifest):
    for name, entry in of_manifest.items():
        if "dtype" in entry:
            yield name, _tensor(entry)
        for state, own in entry.get("state", {}).items():
            yield f"{name}/{state}", _tensor(own)


def _tensor(entry):
    if entry["dtype"] not in _NUMPY:
        raise ValueError(f"unknown dtype {entry['dtype']}")
    boxes = tuple(
        Box(box["file"], box["offset"], tuple(box["begin"]), tuple(box["extent"]), box["crc32c"])
        for box in entry["boxes"]
    )
    return Tensor(entry["dtype"], tuple(entry["shape"]), boxes)


def _file(path):
    import builtins

    return builtins.open(path, "rb")


def _read_at(path, offset, into):
    try:
        with _file(path) as file:
            file.seek(offset)
            count = file.readinto(into.data)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if count != len(into):
        raise CheckpointError(f"{path} ends at byte {offset + count}, expected {offset + len(into)}")
