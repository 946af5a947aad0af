#!/usr/bin/env python3
"""on_gpu_test.py ROOT: scripts/on-gpu without a GPU: deadlines, the report, packages, faults, and the dry run."""
import argparse
import io
import json
import lzma
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts/gpu"))
import machine  # noqa: E402
import parts  # noqa: E402
import steps  # noqa: E402


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.report = steps.Report(self.folder / "report.json", {"commit": "abc"})
        self.runner = steps.Runner(self.report, self.folder / "logs")
        # The lines of steps are of no interest here.
        self.addCleanup(setattr, sys, "stdout", sys.stdout)
        sys.stdout = io.StringIO()

    def steps_of(self, part):
        return json.loads((self.folder / "report.json").read_text())["parts"][part]["steps"]


class Steps(InFolder):
    def test_a_step_that_fails_is_named_with_its_output_and_the_next_one_runs(self):
        with self.runner.part("training", 60):
            self.assertFalse(self.runner.run("first", ["sh", "-c", "echo it broke; exit 3"]))
            self.assertTrue(self.runner.run("second", ["true"]))
        first, second = self.steps_of("training")
        self.assertEqual((first["state"], first["why"], first["output"]), ("failed", "exit code 3", "it broke\n"))
        self.assertEqual(second["state"], "passed")
        self.assertEqual(self.report.content["parts"]["training"]["state"], "failed")
        self.assertEqual(list(self.report.failed_steps()), ["training: first: exit code 3"])

    def test_a_step_ends_at_its_deadline_with_all_its_processes(self):
        child = self.folder / "child"
        with self.runner.part("faults", 60):
            self.runner.run("slow", ["sh", "-c", f"sleep 300 & echo $! > {child}; wait"], limit=1)
        self.assertEqual(self.steps_of("faults")[0]["why"], "it did not end within 1 s")
        deadline = time.monotonic() + 20  # a dead process stays until its parent has seen it
        while (status := pathlib.Path(f"/proc/{child.read_text().strip()}/stat")).exists() and status.read_text().split()[2] != "Z":
            self.assertLess(time.monotonic(), deadline, "a process is left")
            time.sleep(0.05)

    def test_a_part_whose_time_is_over_starts_no_step(self):
        now = [0.0]
        self.runner.clock = lambda: now[0]
        with self.runner.part("speed", 5):
            now[0] = 6.0
            self.runner.run("late", ["true"])
        self.assertEqual(self.steps_of("speed")[0]["why"], "the time of this part was over before it began")

    def test_a_program_that_does_not_run_says_why(self):
        with self.runner.part("training", 60):
            self.runner.run("test", ["sh", "-c", "echo SKIP: no GPU can be used here; exit 77"], skip_code=77)
        self.assertEqual(self.steps_of("training")[0]["state"], "skipped")
        self.assertEqual(self.steps_of("training")[0]["why"], "no GPU can be used here")

    def test_figures_of_a_step_are_in_the_report(self):
        output = "[  PASSED  ] 12 tests.\n[  SKIPPED ] Suite.Name (0 ms)\n"
        with self.runner.part("training", 60):
            self.runner.run("test", ["printf", output], result=parts.counts_of)
        step = self.steps_of("training")[0]
        self.assertEqual((step["tests_passed"], step["tests_not_run"]), (12, ["Suite.Name"]))

    def test_a_signal_is_named(self):
        with self.runner.part("training", 60):
            self.runner.run("test", ["sh", "-c", "kill -SEGV $$"])
        self.assertEqual(self.steps_of("training")[0]["why"], "killed by SIGSEGV")


class Packages(InFolder):
    def make_deb(self):
        """A package with a library in /lib, an absolute link to it, and a file for pkg-config."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for name, content in (("./lib/x/libz.so.1", b"library"), ("./usr/lib/x/pkgconfig/z.pc", b"prefix=/usr\nlibdir=${prefix}/lib\n")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            link = tarfile.TarInfo("./usr/lib/x/libz.so")
            link.type, link.linkname = tarfile.SYMTYPE, "/lib/x/libz.so.1"
            archive.addfile(link)
        deb = b"!<arch>\n"
        for name, content in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), ("data.tar.xz", lzma.compress(data.getvalue()))):
            deb += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
        (self.folder / "debs").mkdir()
        (self.folder / "debs/z_1_amd64.deb").write_bytes(deb)

    def test_python_unpacks_where_dpkg_is_absent_and_paths_lead_into_the_tree(self):
        self.make_deb()
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = str(self.folder)
        root = self.folder / "root"
        machine.unpack_packages(self.folder / "debs", root)
        self.assertEqual((root / "usr/lib/x/libz.so").read_bytes(), b"library")
        self.assertEqual((root / "usr/lib/x/libz.so").resolve(), root / "usr/lib/x/libz.so.1")
        self.assertEqual((root / "usr/lib/x/pkgconfig/z.pc").read_text().splitlines()[0], f"prefix={root}/usr")


class Faults(InFolder):
    """job_with_fault() on a stand-in for the launcher, whose rank 1 is a copy of sleep."""

    LAUNCHER = """#!/bin/sh
RANK=1 {bin}/pretrain_gpt 300 & rank=$!
for i in 1 2 3 4 5 6; do echo "iteration $i/ 100"; done
{watch}
"""

    def context(self, watch):
        (self.folder / "bin").mkdir()
        shutil.copy(shutil.which("sleep"), self.folder / "bin/pretrain_gpt")
        launcher = self.folder / "bin/tutti"
        launcher.write_text(self.LAUNCHER.format(bin=self.folder / "bin", watch=watch))
        launcher.chmod(0o755)
        return argparse.Namespace(runner=self.runner, program=lambda name: self.folder / "bin" / name,
                                  job=lambda ranks, *program: [launcher, *program], environment=lambda **more: {**os.environ, **more})  # fmt: skip

    def fault(self, watch, expected):
        context = self.context(watch)
        with self.runner.part("faults", 60):
            self.runner.step("kill", lambda: parts.job_with_fault(context, "kill", signal.SIGKILL, expected))
        return self.steps_of("faults")[0]

    def test_a_job_that_names_the_rank_and_ends_passes(self):
        step = self.fault('wait $rank; echo "rank 1 (pid $rank on host) was killed by SIGKILL"; exit 137', r"rank 1 \(pid {pid} on [^)]*\) was killed")
        self.assertEqual((step["state"], step["exit_code"]), ("passed", 137), step)

    def test_a_job_that_names_nobody_fails(self):
        step = self.fault("wait $rank; exit 137", r"rank 1 \(pid {pid}\) was killed")
        self.assertEqual(step["state"], "failed")
        self.assertIn("nothing like", step["why"])


class Sources(unittest.TestCase):
    def test_programs_that_run_on_real_gpus_use_nothing_of_the_double(self):
        folder = ROOT / "tests/cuda"
        calls = re.findall(r"^gpu_test\((.*?)LIBRARIES", (folder / "CMakeLists.txt").read_text(), re.M | re.S)
        names = sorted(set(re.findall(r"\b\w+_test\.cc", " ".join(calls))))
        self.assertIn("layers_test.cc", names)
        for name in names:
            self.assertNotRegex((folder / name).read_text(), r"fake_cuda_|fakes::", f"{name} does not link where LibTorch has GPUs")


class DryRun(unittest.TestCase):
    def test_it_lists_the_steps_of_the_chosen_parts_and_what_is_missing(self):
        command = [sys.executable, ROOT / "scripts/on-gpu", "--dry-run", "--only", "build", "faults", "--python", "/nowhere/python"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("missing: /nowhere/python cannot be run", done.stderr)
        for words in ("== build", "cmake --build", "== faults", "stopped while kernels run"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("== speed", done.stdout)


if __name__ == "__main__":
    unittest.main()
