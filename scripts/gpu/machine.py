"""What scripts/on-gpu finds on a machine: a Python with a torch for CUDA, GPUs, a compiler, libraries; and the Debian
packages that it unpacks where libraries are missing."""

import glob
import io
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLDEST_TORCH = (2, 11)
OLDEST_GCC, OLDEST_CMAKE = (12,), (3, 25)
# A header of each library that the build and its tests need.
HEADERS = {
    "CLI/CLI.hpp": "CLI11",
    "fmt/format.h": "fmt",
    "spdlog/spdlog.h": "spdlog",
    "nlohmann/json.hpp": "nlohmann-json",
    "toml++/toml.h": "toml++",
    "openssl/evp.h": "OpenSSL",
    "zlib.h": "zlib",
    "pcre2.h": "PCRE2",
    "gmock/gmock.h": "GoogleTest",
}
ASK_TORCH = """
import json, pathlib, sys
try:
    import torch
except ImportError as error:
    sys.exit("it cannot import torch: " + str(error))
site = pathlib.Path(torch.__file__).resolve().parent.parent
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "site": str(site), "python": sys.version.split()[0]}))
"""


def output_of(*command):
    """Standard output of a command, stripped; empty if it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version_in(text):
    """The first version of a text as numbers: (3, 25, 1)."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def torch_of(python):
    """What that Python says of its torch, and what is wrong with it (a sentence, or None)."""
    try:
        done = subprocess.run([python, "-c", ASK_TORCH], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"{python} cannot be run: {error}"
    if done.returncode != 0:
        return {}, f"{python}: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}"
    found = json.loads(done.stdout.splitlines()[-1])
    site = pathlib.Path(found["site"])
    if version_in(found["torch"]) < OLDEST_TORCH:
        return found, f"{python} has torch {found['torch']}, and {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or later is needed"
    if not found["cuda"] or not (site / "torch/lib/libtorch_cuda.so").exists():
        return found, f"{python} has torch {found['torch']}, which was built without CUDA"
    if not glob.glob(f"{site}/nvidia/*/lib/libcudart.so*"):
        return found, f"{python} has torch {found['torch']}, but the wheel nvidia-cuda-runtime is not beside it in {site}"
    return found, None


def cuda_paths(site):
    """The folders of the CUDA runtime and of NCCL beside torch, for TUTTI_CUDA_PATH."""
    found = glob.glob(f"{site}/nvidia/*/lib/libcudart.so*") + glob.glob(f"{site}/nvidia/*/lib/libnccl.so*")
    return ":".join(dict.fromkeys(os.path.dirname(path) for path in sorted(found)))


def gpus():
    """A dictionary for each GPU that nvidia-smi lists."""
    fields = ["name", "driver_version", "memory.total", "pci.bus_id"]
    text = output_of("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    return [dict(zip(fields, map(str.strip, line.split(",")))) for line in text.splitlines() if line]


def cores():
    return len(os.sched_getaffinity(0))


def jobs():
    """Compilers at a time: one a core, as far as memory goes. A translation unit takes up to 2 GiB."""
    memory = re.search(r"^MemAvailable: *(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.M)
    return max(1, min(cores(), int(memory[1]) >> 21 if memory else 1))


def facts(python):
    """The head of the report."""
    head = output_of("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "commit": head or None,
        "changed_files": len(output_of("git", "-C", str(ROOT), "status", "--porcelain").splitlines()),
        "date": output_of("date", "-u", "+%Y-%m-%dT%H:%M:%SZ"),
        "machine": {"cpu": model[1] if model else None, "cores": cores(), "gpus": gpus()},
        "python": torch_of(python)[0],
    }


def missing_headers(compiler):
    """Names of the libraries whose headers this compiler does not find."""
    text = "".join(f"#if !__has_include(<{header}>)\nmissing {name}\n#endif\n" for header, name in HEADERS.items())
    done = subprocess.run([compiler, "-E", "-P", "-x", "c++", "-"], input=text, capture_output=True, text=True, timeout=60)
    return [line[len("missing "):] for line in done.stdout.splitlines() if line.startswith("missing ")]  # fmt: skip


def missing_libraries(compiler):
    return missing_headers(compiler) + ([] if shutil.which("pkg-config") else ["pkg-config"])


def tools():
    """The compiler, and sentences about tools that are missing or too old."""
    compiler, wrong = os.environ.get("CXX", "g++"), []
    if not shutil.which(compiler):
        wrong.append(f"there is no compiler {compiler} (CXX names another)")
    elif "clang" not in output_of(compiler, "--version"):
        found = output_of(compiler, "-dumpfullversion", "-dumpversion")
        if version_in(found + ".0") < OLDEST_GCC:
            wrong.append(f"{compiler} is of version {found}, and {OLDEST_GCC[0]} or later is needed")
    if version_in(output_of("cmake", "--version")) < OLDEST_CMAKE:
        wrong.append("there is no CMake of version 3.25 or later in PATH (pip has one: cmake)")
    if not shutil.which("ninja") and not shutil.which("make"):
        wrong.append("there is neither ninja nor make in PATH (pip has one: ninja)")
    return compiler, wrong


# ---- Packages


def unpack_deb(file, folder):
    """The files of a .deb, by dpkg-deb, or by Python where that is absent."""
    if shutil.which("dpkg-deb"):
        subprocess.run(["dpkg-deb", "-x", str(file), str(folder)], check=True, timeout=300)
        return
    for name, data in members_of_ar(pathlib.Path(file).read_bytes()):
        if name.startswith("data.tar"):
            if name.endswith(".zst"):
                raise ValueError(f"{file} is compressed with zstd, which needs dpkg-deb: take packages of Debian")
            stream = lzma.decompress(data) if name.endswith(".xz") else data
            with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
                # A .deb has absolute links, which the default of a new Python rejects.
                archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
                archive.extractall(folder)
            return
    raise ValueError(f"{file} is no Debian package")


def members_of_ar(data):
    """(name, bytes) of each member of an archive of ar: headers of 60 bytes, contents padded to an even size."""
    at = len(b"!<arch>\n")
    while at + 60 <= len(data):
        header = data[at : at + 60]
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        yield name, data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def merge(source, target):
    """Moves what is in one folder into another."""
    for path in list(source.iterdir()):
        there = target / path.name
        if path.is_dir() and not path.is_symlink() and there.is_dir():
            merge(path, there)
        else:
            shutil.move(path, there)
    source.rmdir()


def relocate(root):
    """Makes a tree of Debian's files work in this place: /lib is part of /usr/lib, and paths begin with `root`."""
    if (root / "lib").is_dir() and not (root / "lib").is_symlink():
        merge(root / "lib", root / "usr/lib")
    for path in root.rglob("*"):
        if path.is_symlink() and os.readlink(path).startswith("/"):
            target = re.sub(r"^/lib/", "/usr/lib/", os.readlink(path))
            path.unlink()
            path.symlink_to(f"{root}{target}")
        elif path.suffix == ".pc":
            path.write_text(path.read_text().replace("=/usr", f"={root}/usr"))


def unpack_packages(packages, root):
    """Unpacks all packages of a folder into `root`, unless that has them already."""
    files = sorted(packages.glob("*.deb"))
    stamp, wanted = root / "packages.txt", "\n".join(file.name for file in files) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for file in files:
        unpack_deb(file, root)
    relocate(root)
    stamp.write_text(wanted)


def multiarch(compiler):
    return output_of(compiler, "-print-multiarch") or "x86_64-linux-gnu"


def pkg_config_of(root, triple, folder):
    """A pkg-config that runs: the system's, or the one in `root`, which needs its library."""
    if found := shutil.which("pkg-config"):
        return found
    script = folder / "pkg-config"
    folder.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={root}/usr/lib/{triple} exec {root}/usr/bin/pkgconf "$@"\n')
    script.chmod(0o755)
    return str(script)


def use_packages(root, compiler, folder):
    """CMake's options, and variables of the environment, for a build with the libraries unpacked in `root`."""
    triple = multiarch(compiler)
    options = [
        f"-DCMAKE_PREFIX_PATH={root}/usr",
        f"-DCMAKE_LIBRARY_ARCHITECTURE={triple}",
        f"-DCMAKE_CXX_FLAGS=-isystem {root}/usr/include/{triple}",
        f"-DPKG_CONFIG_EXECUTABLE={pkg_config_of(root, triple, folder)}",
        # As DT_RPATH, which also holds for the libraries of libraries.
        "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags",
    ]
    paths = [f"{root}/usr/lib/{triple}/pkgconfig", f"{root}/usr/share/pkgconfig", os.environ.get("PKG_CONFIG_PATH", "")]
    return options, {"PKG_CONFIG_PATH": ":".join(filter(None, paths))}
