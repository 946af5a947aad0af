"""The package as pip installs it: what it imports, the launcher, and the module for torch.

    python tests/python/package_test.py      with the package tutti in PYTHONPATH and the program in PATH
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch.distributed as dist

import tutti

SECONDS = 120  # for a process that starts Python with torch, on a loaded machine
os.environ.pop("OMP_NUM_THREADS", None)  # tutti run warns of it
RELEASE = "_".join(dist.torch.__version__.split(".")[:2])


def installed(folder):
    """A copy of the package in a folder, as pip installs it."""
    package, copy = pathlib.Path(tutti.__path__[0]), pathlib.Path(folder, "tutti")
    build = package.parents[1]
    if not (build / "CMakeCache.txt").exists():
        shutil.copytree(package, copy)
        if (package.parent / "tutti.libs").exists():  # of auditwheel
            shutil.copytree(package.parent / "tutti.libs", copy.parent / "tutti.libs")
        return copy
    subprocess.run(
        ["cmake", "--install", build, "--component", "python", "--prefix", folder],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for file in package.glob("*.py*"):
        shutil.copy(file, copy)
    return copy


def start(*words, folders=(), seconds=SECONDS, **environment):
    """Runs Python with these words. Modules are first looked for in these folders."""
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def python(code, *folders, **environment):
    """Runs a program."""
    return start("-c", textwrap.dedent(code), folders=folders, **environment)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assertSucceeds(self, process):
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertEqual(process.stderr, "")

    def assertLastLine(self, process, pattern):
        """The process ends with an exception, whose text is that."""
        self.assertEqual(process.returncode, 1, process.stdout + process.stderr)
        self.assertRegex(process.stderr.splitlines()[-1], pattern)

    def torch(self, version, code):
        """A folder with a torch of that version, which consists of that code."""
        folder = self.folder / f"torch-{version}"
        (folder / "torch").mkdir(parents=True)
        (folder / "torch" / "__init__.py").write_text(f"__version__ = {version!r}\n{textwrap.dedent(code)}")
        information = folder / f"torch-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        return folder


class WithoutTorch(Case):
    """Beside a torch that cannot be imported: whoever tries fails."""

    def setUp(self):
        super().setUp()
        self.bad_torch = self.torch("1.13.0", "raise RuntimeError('torch is imported')")

    def test_the_launcher_starts_by_its_script_and_as_a_module(self):
        script = "import sys; sys.argv = ['tutti', '--version']; from tutti.run import main; main()"
        ended = python(script, self.bad_torch)
        self.assertSucceeds(ended)
        self.assertIn("tutti ", ended.stdout)
        program = self.folder / "program.py"
        program.write_text("import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])")
        ended = start("-m", "tutti.run", "-q", "-n", "2", program, folders=[self.bad_torch])
        self.assertSucceeds(ended)
        self.assertIn("rank 1 of 2", ended.stdout)

    def test_jobs_plans_and_checkpoints_need_none(self):
        ended = python(
            """
            import tutti
            assert tutti.run.launch(divmod, (7, 2), ranks=1) == [(3, 1)]
            assert tutti.plan.predict("all_reduce", ranks=4)
            try:
                tutti.ckpt.open("/nowhere")
            except tutti.ckpt.CheckpointError:
                print("all three")
            """,
            self.bad_torch,
        )
        self.assertSucceeds(ended)
        self.assertIn("all three", ended.stdout)

    def test_what_needs_one_names_the_package(self):
        for call in "tutti.register()", "tutti.ddp_hook()", "tutti.shared_memory().__enter__()", "tutti.dcp":
            ended = python(f"import sys; sys.modules['torch'] = None; import tutti; {call}")
            self.assertLastLine(ended, "ImportError: tutti.* needs torch 2.13 or later, .* has no torch: pip install")


class OldTorch(Case):
    def setUp(self):
        super().setUp()
        # What torch 1.13 has, as far as the package asks for it.
        self.old_torch = self.torch(
            "1.13.0",
            """
            import sys, types

            class Backend:
                _plugins = {}

                @classmethod
                def register_backend(cls, name, func, extended_api=False):
                    cls._plugins[name.upper()] = func

            distributed = types.ModuleType("torch.distributed")
            distributed.Backend, distributed.is_available = Backend, lambda: True
            sys.modules["torch.distributed"] = distributed
            """,
        )

    def test_the_error_names_it_and_what_is_needed(self):
        for call in "tutti.register()", "tutti.dcp", "torch.distributed.Backend._plugins['TUTTI']('store', 0, 1, 60)":
            ended = python(f"import torch, tutti; tutti.run; {call}", self.old_torch)
            self.assertLastLine(ended, "ImportError: .* needs torch 2.13 or later, and this is torch 1.13.0 in .*/torch: ")


class Registration(Case):
    def test_torch_older_than_2_15_gets_the_backend_without_asking(self):
        for act in "import tutti", "importlib.metadata.entry_points(group='torch.backends')['tutti'].load()()":
            ended = python(
                f"""
                import importlib.metadata, torch
                torch.__version__ = "2.14.1"
                assert "TUTTI" not in torch.distributed.Backend._plugins
                {act}
                assert "TUTTI" in torch.distributed.Backend._plugins
                """,
                TORCH_DEVICE_BACKEND_AUTOLOAD="0",
            )
            self.assertSucceeds(ended)

    def test_groups_that_are_not_of_this_rank_or_not_of_this_backend_are_named(self):
        with self.assertRaisesRegex(RuntimeError, r"tutti.ddp_hook\(\): call init_process_group"):
            tutti.ddp_hook()
        dist.init_process_group("gloo", init_method=f"file://{self.folder}/store", rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        with self.assertRaisesRegex(ValueError, r"tutti.ddp_hook\(\): rank 0 is not in this group"):
            tutti.ddp_hook(dist.GroupMember.NON_GROUP_MEMBER)
        with self.assertRaisesRegex(TypeError, r"tutti.shared_memory\(\) needs a process group, and got 'world'"):
            tutti.shared_memory("world").__enter__()
        with self.assertRaisesRegex(TypeError, r"with the backend tutti, and this one has gloo"):
            tutti.shared_memory().__enter__()


class Launcher(Case):
    def test_one_that_is_not_executable_is_named_with_what_to_do(self):
        program = installed(self.folder) / "bin" / "tutti"
        if not program.exists():  # PYTHONPATH names a build, whose program is in PATH
            program.parent.mkdir(exist_ok=True)
            program.touch()
        program.chmod(0o644)
        script = "import sys; sys.argv = ['tutti', '--version']; from tutti.run import main; main()"
        sentence = f"{program} is not executable: chmod \\+x {program}, or pip install"
        self.assertLastLine(python(script, self.folder), "tutti: the launcher cannot be started: " + sentence)
        call = "import tutti; tutti.run.launch(divmod, (7, 2), ranks=1)"
        self.assertLastLine(python(call, self.folder), "LaunchError: the launcher cannot be started: " + sentence)
        call = "import tutti; tutti.plan.predict('all_reduce', ranks=4)"
        self.assertLastLine(python(call, self.folder), "PermissionError: " + sentence)


class Module(Case):
    """The module for torch: one that does not fit, none, and one that is compiled when it is first used."""

    LOAD = "import torch, tutti.backend; tutti.backend._load()"

    def setUp(self):
        super().setUp()
        self.package = installed(self.folder)
        self.cache = self.folder / "cache"
        [self.module] = self.package.glob(f"_torch_{RELEASE}.*.so")

    def load(self, **environment):
        return python(self.LOAD, self.folder, **{"XDG_CACHE_HOME": str(self.cache), **environment})

    def test_one_that_does_not_fit_is_named_with_both_versions(self):
        self.module.write_bytes(b"\x7fELF")
        self.package.joinpath(f"_torch_{RELEASE}.txt").write_text("2.99.0+rocm\n")
        self.assertLastLine(
            self.load(),
            rf"ImportError: tutti._torch_{RELEASE} in {self.package} was built for torch 2.99.0\+rocm and "
            rf"cannot be loaded with torch {dist.torch.__version__.replace('+', '.')}: .*file too short",
        )

    def test_what_a_compilation_lacks_is_named(self):
        self.module.unlink()
        self.assertLastLine(self.load(CXX="g++-0"), r"there is no g\+\+-0; apt-get install g\+\+")
        self.assertLastLine(self.load(PATH="/nowhere"), r"apt-get install g\+\+.* and ninja in PATH \(pip install ninja")
        shutil.rmtree(self.package / "src")
        self.assertLastLine(self.load(), "has no module for torch .*, and no sources to compile one: install a wheel")

    def test_a_cache_that_cannot_be_written_is_named(self):
        self.module.unlink()
        self.cache.touch()
        self.assertLastLine(
            self.load(), f"cannot be compiled in {self.cache}/.*: Not a directory. Set XDG_CACHE_HOME to a folder"
        )

    def test_errors_of_the_compiler_are_shown(self):
        self.module.unlink()
        shutil.rmtree(self.package / "src")
        (self.package / "src").mkdir()
        (self.package / "src" / "module.cc").write_text("#error it is too old\n")
        ended = self.load()
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, "ImportError: the module of tutti for torch .* cannot be compiled; it needs g")
        self.assertIn("#error it is too old", ended.stdout + ended.stderr)

    def test_it_is_compiled_once_and_works(self):
        self.module.unlink()
        program = f"""
            import torch, torch.distributed as dist
            dist.init_process_group("tutti", init_method="file://{self.folder}/store", rank=0, world_size=1)
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            print(tensor.sum().item())
            dist.destroy_process_group()
            """
        for compiles in True, False:
            ended = python(program, self.folder, seconds=400, XDG_CACHE_HOME=str(self.cache))
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertIn("3.0", ended.stdout)
            self.assertEqual("tutti: compiling the module for torch" in ended.stderr, compiles)
        [built] = self.cache.glob(f"tutti/*/_torch_{RELEASE}.so")
        self.assertTrue(built.parent.name.startswith(f"torch-{dist.torch.__version__}-"))


if __name__ == "__main__":
    unittest.main()
