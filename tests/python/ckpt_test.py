"""tutti.ckpt and tutti.dcp against the C++ programs and torch's own storage.

    python tests/python/ckpt_test.py      with the package tutti in PYTHONPATH and the program in PATH
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import tutti
from tutti import ckpt


def program(*words):
    return subprocess.run(["tutti", *words], capture_output=True, text=True)


def model_and_optimizer(seed):
    """A model in parts over all ranks, after one step."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(7, 13), torch.nn.ReLU(), torch.nn.Linear(13, 3))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(2, 7)).sum().backward()
    optimizer.step()
    return model, optimizer


def state_of(model, optimizer):
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer, "epoch": 3, "note": "as \u00fcbung", "nan": float("nan")}


def save(folder):
    state = state_of(*model_and_optimizer(1))
    state["object"] = {1, 2}
    state["bf16"] = torch.arange(5, dtype=torch.bfloat16)
    state["scalar"] = torch.tensor(7, dtype=torch.int64)
    state["empty"] = torch.zeros(0, 3)
    dcp.save(state, storage_writer=tutti.dcp.Writer(folder + "/tutti", step=10, values={"loss": 0.5}))
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder + "/torch"))
    dcp.async_save(state, storage_writer=tutti.dcp.Writer(folder + "/tutti", step=20, keep=2)).result()


def load(folder):
    loaded = []
    readers = tutti.dcp.Reader(folder + "/tutti"), dcp.FileSystemReader(folder + "/torch")
    for seed, reader in enumerate(readers, 2):
        model, optimizer = model_and_optimizer(seed)
        state = state_of(model, optimizer)
        state["epoch"] = 0
        state["object"] = None
        state["bf16"] = torch.zeros(5, dtype=torch.bfloat16)
        state["scalar"] = torch.tensor(0)
        state["empty"] = torch.zeros(0, 3)
        dcp.load(state, storage_reader=reader)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        whole = {name: weight.full_tensor() for name, weight in model.named_parameters()}
        moments = [
            value.full_tensor() if hasattr(value, "full_tensor") else value
            for of_weight in optimizer.state.values()
            for value in of_weight.values()
        ]
        rest = [state[name] for name in ("epoch", "note", "object")]
        loaded.append((whole, moments, rest, state["bf16"], state["scalar"]))
    ours, theirs = loaded
    for name in theirs[0]:
        assert torch.equal(ours[0][name], theirs[0][name]), name
    assert all(torch.equal(a, b) for a, b in zip(ours[1], theirs[1], strict=True))
    assert ours[2] == theirs[2] == [3, "as \u00fcbung", {1, 2}], (ours[2], theirs[2])
    assert torch.equal(ours[3], theirs[3]) and torch.equal(ours[4], theirs[4])


class Fails:
    """An object that cannot be pickled."""

    def __reduce__(self):
        raise ValueError("not this one")


def fail_and_save_again(folder):
    writer = tutti.dcp.Writer(folder + "/again", step=1)
    tensor = {"w": torch.full((3,), float(dist.get_rank()))}
    for bad in ({**tensor, "bad": Fails()}, {**tensor, "wide": torch.zeros(2, dtype=torch.uint32)}):
        try:
            dcp.save(bad, storage_writer=writer)
            raise AssertionError("it was saved")
        except (dcp.api.CheckpointException, ValueError, TypeError):
            pass
    dcp.save(tensor, storage_writer=writer)  # no lock is left
    dcp.save(tensor, storage_writer=tutti.dcp.Writer(folder + "/again", step=1))  # over the same step
    dcp.save(tensor, storage_writer=tutti.dcp.Writer(folder + "/again", step=2, keep=1))
    if dist.get_rank() == 0:
        assert ckpt.steps(folder + "/again") == [2]
        left = [name for name in os.listdir(folder + "/again") if name.startswith(".")]
        assert left == [], left
    planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
    writer = tutti.dcp.Writer(folder + "/cached", step=1)
    dcp.save(tensor, storage_writer=writer, planner=planner)
    try:
        dcp.save(tensor, storage_writer=tutti.dcp.Writer(folder + "/cached", step=2), planner=planner)
        raise AssertionError("plans are not to be cached")
    except dcp.api.CheckpointException as error:
        assert "enable_plan_caching=False" in str(error), error


def start(rank, act, ranks, folder, backend):
    dist.init_process_group(backend, init_method=f"file://{folder}/{act.__name__}-{ranks}", rank=rank, world_size=ranks)
    act(folder)
    dist.destroy_process_group()


class Dcp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        mp.spawn(start, (save, 2, cls.folder.name, "tutti"), nprocs=2)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_another_number_of_ranks_loads_what_torchs_own_storage_holds(self):
        mp.spawn(start, (load, 3, self.folder.name, "tutti"), nprocs=3)

    def test_a_save_that_failed_leaves_nothing_behind(self):
        mp.spawn(start, (fail_and_save_again, 2, self.folder.name, "gloo"), nprocs=2)

    def test_the_cpp_program_finds_no_error(self):
        checked = program("ckpt", "verify", self.folder.name + "/tutti")
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        shown = program("ckpt", "show", self.folder.name + "/tutti")
        self.assertIn("model.0.weight", shown.stdout, shown.stderr)

    def test_one_process_reads_tensors_and_parts_of_them(self):
        whole = {}
        dcp.state_dict_loader._load_state_dict(
            whole,
            storage_reader=dcp.FileSystemReader(self.folder.name + "/torch"),
            planner=dcp.default_planner._EmptyStateDictLoadPlanner(),
            no_dist=True,
        )
        weight = whole["model"]["0.weight"].numpy()
        checkpoint = ckpt.open(self.folder.name + "/tutti", step=10)
        self.assertEqual(checkpoint.values["loss"], 0.5)
        self.assertEqual(checkpoint.values["epoch"], 3)
        self.assertTrue(numpy.isnan(checkpoint.values["nan"]))
        numpy.testing.assert_array_equal(checkpoint["model.0.weight"], weight)
        numpy.testing.assert_array_equal(checkpoint.read("model.0.weight", [5, 2], [4, 3]), weight[5:9, 2:5])
        self.assertEqual(checkpoint["scalar"], 7)
        self.assertEqual(checkpoint["empty"].shape, (0, 3))
        self.assertTrue(torch.equal(checkpoint.torch("bf16"), torch.arange(5, dtype=torch.bfloat16)))
        self.assertEqual(checkpoint.verify(), [])
        with self.assertRaisesRegex(ValueError, "does not contain"):
            checkpoint.read("model.0.weight", [0, 0], [14, 1])

    def test_it_loads_as_a_whole_without_a_job(self):
        whole = {}
        dcp.state_dict_loader._load_state_dict(
            whole,
            storage_reader=tutti.dcp.Reader(self.folder.name + "/tutti"),
            planner=dcp.default_planner._EmptyStateDictLoadPlanner(),
            no_dist=True,
        )
        self.assertEqual(whole["model"]["2.bias"].shape, (3,))
        self.assertEqual(whole["epoch"], 3)


class OfCpp(unittest.TestCase):
    """What the C++ program wrote."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.folder.name + "/runs"
        torch.save({"w": torch.arange(300000.0).reshape(3, -1), "b": torch.tensor([1, 2])}, self.folder.name + "/m.pt")
        for step in ("1", "2"):
            made = program("ckpt", "import", self.folder.name + "/m.pt", self.path, "--step", step)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)

    def tearDown(self):
        self.folder.cleanup()

    def damage(self, step):
        file = next(pathlib.Path(self.path, ckpt.folder_name(step)).glob("*.safetensors"))
        text = bytearray(file.read_bytes())
        text[-1] ^= 1
        file.write_bytes(text)
        return file

    def test_it_is_read_by_its_names(self):
        checkpoint = ckpt.open(self.path)
        self.assertEqual(checkpoint.step, 2)
        self.assertEqual(sorted(checkpoint), ["b", "w"])
        numpy.testing.assert_array_equal(checkpoint["w"], numpy.arange(300000.0, dtype="f4").reshape(3, -1))
        self.assertEqual(checkpoint.verify(), [])

    def test_a_changed_byte_is_an_error_where_it_is_read(self):
        file = self.damage(2)
        checkpoint = ckpt.open(self.path)
        self.assertEqual(len(checkpoint.verify()), 1)
        with self.assertRaisesRegex(ckpt.CheckpointError, str(file) + ": bytes .* which belong to w, have changed"):
            checkpoint.read("w", [2, 99000], [1, 1000])
        numpy.testing.assert_array_equal(checkpoint.read("w", [0, 0], [1, 5]), [[0, 1, 2, 3, 4]])

    def test_a_damaged_newest_one_is_skipped_with_a_warning(self):
        manifest = pathlib.Path(self.path, ckpt.folder_name(2), "manifest.json")
        manifest.write_bytes(manifest.read_bytes().replace(b'"step":2', b'"step":3'))
        with self.assertWarnsRegex(UserWarning, "skipped a damaged checkpoint: .*manifest.json has changed"):
            self.assertEqual(ckpt.open(self.path).step, 1)
        with self.assertRaises(ckpt.CheckpointError):
            ckpt.open(self.path, step=2)

    def change(self, change):
        """Changes the manifest of step 2, with its digest."""
        path = pathlib.Path(self.path, ckpt.folder_name(2), "manifest.json")
        manifest = json.loads(path.read_text())
        del manifest["crc32c"]
        change(manifest)
        path.write_bytes(ckpt.compose(manifest))

    def test_a_manifest_that_breaks_its_rules_is_rejected(self):
        def box(manifest):
            return manifest["tensors"]["w"]["boxes"]

        secret = pathlib.Path(self.folder.name, "secret")
        secret.write_bytes(b"x" * 2_000_000)
        for change, words in (
            (lambda m: box(m).clear(), "do not cover it once"),
            (lambda m: box(m).append(dict(box(m)[0])), "do not cover it once"),
            (lambda m: box(m)[0].update(file="../../secret"), "wrong box of w"),
            (lambda m: box(m)[0].update(begin=[-1, 0]), "wrong box of w"),
            (lambda m: m.update(step=1), "was it renamed"),
        ):
            path = pathlib.Path(self.path, ckpt.folder_name(2), "manifest.json")
            before = path.read_bytes()
            self.change(change)
            with self.assertRaisesRegex(ckpt.CheckpointError, words):
                ckpt.open(self.path, step=2)
            path.write_bytes(before)
        with self.assertRaisesRegex(ckpt.CheckpointError, "is the checkpoint of step 2, not of 1"):
            ckpt.open(path.parent, step=1)

    def test_values_that_a_manifest_cannot_hold_are_rejected_at_once(self):
        with self.assertRaisesRegex(TypeError, "expected bool, int, float or str"):
            tutti.dcp.Writer(self.path, step=3, values={"loss": numpy.float32(0.5)})

    def test_what_is_not_there_is_named(self):
        with self.assertRaisesRegex(ckpt.CheckpointError, r"has no checkpoint of step 7; it has \[1, 2\]"):
            ckpt.open(self.path, step=7)
        with self.assertRaisesRegex(ckpt.CheckpointError, "there is no folder /nowhere"):
            ckpt.open("/nowhere")
        with self.assertRaises(KeyError):
            ckpt.open(self.path)["v"]


if __name__ == "__main__":
    unittest.main()
