"""Checkpoints of torch.distributed.checkpoint (DCP) in the format of Tutti.

    torch.distributed.checkpoint.save(state, storage_writer=tutti.dcp.Writer("runs/a", step=100))
    torch.distributed.checkpoint.load(state, storage_reader=tutti.dcp.Reader("runs/a"))

async_save() works too. A checkpoint gets its name when all of it is on disk, so that what a killed
job leaves is never taken for one. Any number of ranks reads what any other number wrote, every byte
is compared with a digest, and `tutti ckpt`, tutti.ckpt and C++ programs read the files.

Objects that are neither tensors nor numbers, strings or booleans are stored as DCP pickles them.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import io
import json
import math
import operator
import os
import secrets
import shutil
import socket
import time
import warnings

from tutti.backend import require_torch

require_torch("tutti.dcp")

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from tutti import ckpt
from tutti._bytes import crc32c

__all__ = ["Reader", "Writer"]

_CHUNK = 1 << 20
_DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}
_TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}
_PATHS = "torch.paths"  # a value: DCP's planner_data, from names to paths in the state dict
_OBJECTS = "torch.objects"  # a value: the names of tensors that are pickles of objects
_PATIENCE = 10  # seconds to wait for another that writes
_WRITE_LOCK = ".write.lock"  # as tutti/checkpoint/folder/folder_lock.cc: one writes at a time


@dataclasses.dataclass(frozen=True)
class _Share:
    """What each rank gets from the coordinator for the checkpoint that is being made."""

    partial: str
    mark: str  # in all files of one checkpoint
    file: str


@dataclasses.dataclass(frozen=True)
class _Now:
    """The save that runs, on the coordinator."""

    folder: str
    step: int
    ranks: int

    @property
    def final(self):
        return os.path.join(self.folder, ckpt.folder_name(self.step))

    @property
    def partial(self):
        return os.path.join(self.folder, f".{ckpt.folder_name(self.step)}.partial")


@dataclasses.dataclass(frozen=True)
class _Written:
    """Of one item: where its bytes are. ``value``: it is a scalar, and goes into the manifest."""

    file: dict | None = None
    box: dict | None = None
    dtype: str | None = None
    value: object = None


class Writer(StorageWriter):
    """Saves to ``folder/step-...``. All ranks must see the folder.

    Args:
        folder: of the job's checkpoints; made if it is not there. save(checkpoint_id=...) may give
            it instead.
        step: the step after which the checkpoint is saved.
        values: scalars to keep beside the tensors, by name, such as {"train_loss": 0.3}.
        keep: how many of the newest checkpoints stay; 0: all.
    """

    def __init__(
        self,
        folder: str | os.PathLike | None = None,
        *,
        step: int,
        values: dict[str, bool | int | float | str] | None = None,
        keep: int = 0,
    ):
        self.step = operator.index(step)
        if self.step < 0:
            raise ValueError(f"step is {step}; expected a number that is not negative")
        for name, value in (values or {}).items():
            if not _is_value(value):
                raise TypeError(f"values[{name!r}] is {value!r}; expected bool, int, float or str")
        self.keep = keep
        self._folder = folder and os.fspath(folder)
        self._values = dict(values or {})
        self._locked = None
        self._now = None

    def reset(self, checkpoint_id=None):
        if checkpoint_id is not None:
            self._folder = os.fspath(checkpoint_id)

    def _release(self):
        locked, self._locked = self._locked, None
        if locked:
            locked.close()

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        self._release()  # of a save that failed: DCP ends such a one without a word to the writer
        if not self._folder:
            raise ValueError("tutti.dcp.Writer has no folder: Writer(folder, step=...)")
        if kwargs.get("use_collectives") is False:
            raise ValueError("tutti.dcp.Writer needs save(use_collectives=True)")

    def prepare_local_plan(self, plan):
        for item in plan.items:
            if item.tensor_data and item.tensor_data.properties.dtype not in _DTYPES:
                raise TypeError(
                    f"{item.index.fqn} is {item.tensor_data.properties.dtype}, which checkpoints of "
                    "tutti do not have; save it with another dtype, or by torch's FileSystemWriter"
                )
        return plan

    def prepare_global_plan(self, plans):
        if not all(getattr(plan, "usable", True) for plan in plans):
            raise ValueError("tutti.dcp.Writer needs a planner with enable_plan_caching=False")
        os.makedirs(self._folder, exist_ok=True)
        self._locked = _take_lock(os.path.join(self._folder, _WRITE_LOCK))
        try:
            return self._begin(plans)
        except BaseException:
            self._release()
            raise

    def _begin(self, plans):
        for name in os.listdir(self._folder):  # of saves that were killed
            if name.startswith(".step-") and name.endswith((".partial", ".removed")):
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)
        self._now = _Now(self._folder, self.step, len(plans))
        os.mkdir(self._now.partial)
        mark = secrets.token_hex(8)
        return [
            dataclasses.replace(
                plan,
                storage_data=_Share(
                    self._now.partial, mark, f"model-{rank:05d}-of-{len(plans):05d}.safetensors"
                ),
            )
            for rank, plan in enumerate(plans, 1)
        ]

    def write_data(self, plan, planner):
        share = plan.storage_data
        results = []
        tensors = []
        for item in plan.items:
            name = item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                pickled = planner.resolve_data(item).getvalue()
                value = _as_value(pickled)
                if value is not None:
                    results.append(WriteResult(item.index, 0, _Written(value=value)))
                    continue
                data = torch.frombuffer(bytearray(pickled), dtype=torch.uint8)
                shape, begin = [len(data)], [0]
            else:
                data = planner.resolve_data(item).detach()
                shape = list(item.tensor_data.size)
                begin = list(item.tensor_data.chunk.offsets)
            extent = list(data.shape)
            if data.numel() == 0 and shape != extent:
                continue  # an empty part of a tensor
            tensors.append((item.index, name, data, shape, begin, extent))
        if tensors:
            results += _write_file(share, tensors)
        future = Future()
        future.set_result(results)
        return future

    def finish(self, metadata, results):
        try:
            self._finish(self._now, metadata, [one for of_rank in results for one in of_rank])
        finally:
            self._release()

    def _finish(self, now, metadata, results):
        values = dict(self._values)
        files, tensors, objects = {}, {}, []
        for result in results:
            written, name = result.storage_data, result.index.fqn
            if written.box is None:
                values[name] = written.value
                continue
            files[written.file["name"]] = written.file
            about = metadata.state_dict_metadata[name]
            is_object = isinstance(about, dcp_metadata.BytesStorageMetadata)
            if is_object:
                objects.append(name)
            shape = written.box["extent"] if is_object else list(about.size)
            entry = tensors.setdefault(name, {"dtype": written.dtype, "shape": shape, "boxes": []})
            entry["boxes"].append(written.box)
        for name, about in metadata.state_dict_metadata.items():
            if isinstance(about, dcp_metadata.TensorStorageMetadata) and name not in tensors:
                dtype, size = _DTYPES[about.properties.dtype], list(about.size)
                tensors[name] = {"dtype": dtype, "shape": size, "boxes": []}
        for name, entry in tensors.items():
            written = sum(math.prod(box["extent"]) for box in entry["boxes"])
            if written != math.prod(entry["shape"]):
                raise ckpt.CheckpointError(f"the ranks wrote {written} elements of {name} {entry['shape']}")
        if metadata.planner_data:
            values[_PATHS] = json.dumps(metadata.planner_data)
        if objects:
            values[_OBJECTS] = json.dumps(objects)
        text = ckpt.compose(
            {
                "format": "tutti checkpoint",
                "version": 1,
                "step": now.step,
                "values": {name: _in_json(value) for name, value in values.items()},
                "data": {},
                "layout": {"ranks": now.ranks},
                "versions": {"torch": torch.__version__},
                "chunk_bytes": _CHUNK,
                "files": [files[name] for name in sorted(files)],
                "tensors": tensors,
            }
        )
        with _new_file(os.path.join(now.partial, "manifest.json")) as file:
            file.write(text)
        _sync(now.partial)
        _rename_over(now.partial, now.final)
        _sync(now.folder)
        latest = os.path.join(now.folder, ".latest.partial")
        with _new_file(latest) as file:
            file.write(ckpt.folder_name(now.step).encode())
        os.rename(latest, os.path.join(now.folder, "latest"))
        if self.keep > 0:
            known = [step for step in ckpt.steps(now.folder) if step <= now.step]
            for step in known[: -self.keep]:
                _remove(os.path.join(now.folder, ckpt.folder_name(step)))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return "://" not in os.fspath(checkpoint_id)

    def storage_meta(self):
        return dcp_metadata.StorageMeta(checkpoint_id=self._folder)


class Reader(StorageReader):
    """Reads a checkpoint of Tutti: of Writer, of a C++ program, of a trainer.

    The state that C++ optimizers keep has names such as ``fc.weight/exp_avg``.

    Args:
        path: the folder of a job's checkpoints, or of one checkpoint; load(checkpoint_id=...) may
            give it instead.
        step: which checkpoint of a folder; without it the newest that is not damaged.
    """

    def __init__(self, path: str | os.PathLike | None = None, *, step: int | None = None):
        self._path = path and os.fspath(path)
        self._step = step
        self.checkpoint = None

    def reset(self, checkpoint_id=None):
        if checkpoint_id is not None:
            self._path = os.fspath(checkpoint_id)
        self.checkpoint = None

    def _open(self):
        if self.checkpoint is None:
            if not self._path:
                raise ValueError("tutti.dcp.Reader has no path: Reader(path)")
            self.checkpoint = ckpt.open(self._path, self._step)
        return self.checkpoint

    def read_metadata(self, *args, **kwargs):
        checkpoint = self._open()
        objects = set(json.loads(checkpoint.values.get(_OBJECTS, "[]")))
        about = {}
        for name, tensor in checkpoint.tensors.items():
            if name in objects:
                about[name] = dcp_metadata.BytesStorageMetadata()
                continue
            about[name] = dcp_metadata.TensorStorageMetadata(
                dcp_metadata.TensorProperties(dtype=_TORCH_DTYPES[tensor.dtype]),
                torch.Size(tensor.shape),
                [
                    dcp_metadata.ChunkStorageMetadata(torch.Size(box.begin), torch.Size(box.extent))
                    for box in tensor.boxes
                ],
            )
        for name in checkpoint.values:
            if name not in (_OBJECTS, _PATHS):
                about.setdefault(name, dcp_metadata.BytesStorageMetadata())
        paths = checkpoint.values.get(_PATHS)
        planner_data = {
            name: tuple(path) for name, path in json.loads(paths).items()
        } if paths else None
        return dcp_metadata.Metadata(about, planner_data=planner_data)

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        # Ranks other than the coordinator may have got the metadata from it.
        self._open()

    def prepare_local_plan(self, plan):
        return dataclasses.replace(plan, storage_data=self._open().step)

    def prepare_global_plan(self, plans):
        found = sorted({plan.storage_data for plan in plans})
        if len(found) > 1:
            raise ckpt.CheckpointError(
                f"the ranks found different checkpoints in {self._path}, of steps {found}: give Reader(step=...)"
            )
        return plans

    def read_data(self, plan, planner):
        checkpoint = self._open()
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self._object(checkpoint, name))
                continue
            start = item.storage_index.offset or [0] * len(item.lengths)
            begin = [base + offset for base, offset in zip(start, item.storage_offsets)]
            read = checkpoint.torch(name, begin, item.lengths)
            target = planner.resolve_tensor(item).detach()
            if target.size() != read.size():
                raise ValueError(
                    f"{name}: read {list(read.size())} elements for {list(target.size())}"
                )
            target.copy_(read)
            planner.commit_tensor(item, target)
        future = Future()
        future.set_result(None)
        return future

    @staticmethod
    def _object(checkpoint, name):
        if name in checkpoint.tensors:
            return io.BytesIO(checkpoint.elements(name).tobytes())
        pickled = io.BytesIO()
        torch.save(checkpoint.values[name], pickled)
        pickled.seek(0)
        return pickled

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return "://" not in os.fspath(checkpoint_id)


def _as_value(pickled):
    """The scalar that was pickled, if a manifest can hold it."""
    try:
        value = torch.load(io.BytesIO(pickled), weights_only=True)
    except Exception:  # an object of a class that is not allowed: it stays a pickle
        return None
    return value if _is_value(value) else None


def _is_value(value):
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is str:
        return not any("\ud800" <= letter <= "\udfff" for letter in value)  # half of a letter
    return type(value) in (bool, float)


def _in_json(value):
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def _write_file(share, tensors):
    """Writes the file of a rank. A result for each tensor."""
    header = {"__metadata__": {"tutti.checkpoint": share.mark}}
    at = 0
    for _, name, data, shape, begin, extent in tensors:
        key = name
        if extent != shape:
            key += "[" + ", ".join(f"{b}:{b + e}" for b, e in zip(begin, extent)) + "]"
        size = data.numel() * data.element_size()
        header[key] = {"dtype": _DTYPES[data.dtype], "shape": extent, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    text = len(text).to_bytes(8, "little") + text
    file = {
        "name": share.file,
        "bytes": len(text) + at,
        "header_bytes": len(text),
        "header_crc32c": f"{crc32c(text):08x}",
    }
    results = []
    with _new_file(os.path.join(share.partial, share.file)) as out:
        out.write(text)
        offset = len(text)
        for index, _, data, _, begin, extent in tensors:
            packed = data.to("cpu").resolve_conj().resolve_neg().contiguous()
            packed = packed.reshape(-1).view(torch.uint8).numpy()
            digests = ""
            for start in range(0, len(packed), _CHUNK):
                chunk = packed[start : start + _CHUNK]
                digests += f"{crc32c(chunk):08x}"
                out.write(chunk.data)
            box = {
                "file": share.file,
                "offset": offset,
                "begin": begin,
                "extent": extent,
                "crc32c": digests,
            }
            written = _Written(file=file, box=box, dtype=_DTYPES[data.dtype])
            results.append(WriteResult(index, len(packed), written))
            offset += len(packed)
    return results


@contextlib.contextmanager
def _new_file(path):
    """A file that is on disk when it is closed."""
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sync(folder):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(checkpoint):
    """Its proper name goes first: no moment leaves half of one under it."""
    folder, name = os.path.split(checkpoint)
    removed = os.path.join(folder, f".{name}.removed")
    shutil.rmtree(removed, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(checkpoint, removed)
    shutil.rmtree(removed, ignore_errors=True)


def _rename_over(partial, final):
    """Gives a checkpoint its name. One of that name, from an earlier attempt, goes only then."""
    exchange = 2  # RENAME_EXCHANGE
    at_cwd = -100
    if os.path.exists(final):
        names = os.fsencode(partial), os.fsencode(final)
        libc = ctypes.CDLL(None)
        if libc.renameat2(at_cwd, names[0], at_cwd, names[1], exchange) == 0:
            shutil.rmtree(partial, ignore_errors=True)
            return
        _remove(final)  # a file system that cannot exchange
    os.rename(partial, final)


class _Lock:
    def __init__(self, path, file):
        self._path, self._file = path, file

    def close(self):
        if self._file.closed:
            return
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(self._file.fileno()).st_ino == os.stat(self._path).st_ino:
                os.unlink(self._path)  # before the lock goes, so that none is left behind
        self._file.close()

    __del__ = close


def _take_lock(path):
    deadline = time.monotonic() + _PATIENCE
    while True:
        file = open(path, "a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                warnings.warn(f"{path}: this file system has no locks: let one job at a time save there", stacklevel=2)
                return _Lock(path, file)
            file.seek(0)
            holder = file.readline().strip() or "another process"
            file.close()
            if time.monotonic() > deadline:
                raise ckpt.CheckpointError(
                    f"{holder} has been writing to {os.path.dirname(path)} for {_PATIENCE} s"
                ) from None
            time.sleep(0.02)
            continue
        # Who had it may have removed the file: then this lock is on one that has no name.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == os.stat(path).st_ino:
                file.truncate(0)
                file.write(f"python (pid {os.getpid()} on {socket.gethostname()})\n")
                file.flush()
                return _Lock(path, file)
        file.close()
