"""What the comparisons share: building, running, and ratios with their spread.

Absolute times on a shared machine mean little; a ratio of two runs in the same minute means much. So every round runs each entrant
once, one after another, starting with another one each time, and a ratio is taken within its round.
"""
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
from pathlib import Path

# An end by SIGTERM (timeout sends it) runs the `finally`s: no process and no folder stays behind.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench/peers"
USUAL_PYTHONS = ["/usr/bin/python3", "python3"]  # Debian's python3-torch is for the first
# What `tutti run` and the trainers set for themselves, and a peer is given or not.
SETTINGS = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"]


def complain(program, sentence, hint=""):
    """A user's mistake: a sentence, and exit code 2."""
    sys.stderr.write(f"{program}: {sentence}\n" + (f"hint: {hint}\n" if hint else ""))
    sys.exit(2)


def find_program(program, build, name):
    path = Path(build) / "bin" / name
    if not os.access(path, os.X_OK):
        complain(program, f"{path} is not there", f"cmake --preset {Path(build).name} && cmake --build --preset {Path(build).name}, or --build FOLDER")
    return str(path)


def add_peer_options(parser):
    parser.add_argument("--python", action="append", metavar="PROGRAM",
                        help="a Python that has torch; may be given again (the first of /usr/bin/python3 and python3 that has it)")  # fmt: skip
    parser.add_argument("--no-peers", action="store_true", help="measure tutti alone")


def torch_of(python):
    """The version of torch that this Python imports, without the part behind +; None where it has none."""
    try:
        done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, timeout=120)
    except OSError:
        return None
    return done.stdout.strip().split("+")[0] if done.returncode == 0 else None


def find_peers(program, given):
    """{"torch 2.3.1": its Python} of --python and --no-peers. A Python that was named must have torch; without one, a note says so."""
    if given.no_peers:
        if given.python:
            complain(program, "--python and --no-peers were both given", "leave one of them out")
        return {}
    found = {}
    for python in given.python or USUAL_PYTHONS:
        version = torch_of(python)
        if version is None:
            if given.python:
                complain(program, f"{python} cannot import torch", "give --python a Python that has it, or --no-peers")
            continue
        name = f"torch {version}"
        found[f"{name} of {python}" if name in found else name] = python
        if not given.python:
            break
    if not found:
        sys.stderr.write(f"{program}: neither {' nor '.join(USUAL_PYTHONS)} can import torch, so PyTorch is not measured\n"
                         "hint: Debian has it as python3-torch; --python VENV/bin/python names another Python\n")  # fmt: skip
    return found


def run(command, variables=None, unset=(), timeout=1800):
    """Standard output of a command that must succeed."""
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    environment.update(variables or {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def best_settings():
    """One thread a rank, the kernels of this CPU (OpenBLAS 0.3.21 takes newer CPUs for a Prescott), memory kept by malloc."""
    flags = Path("/proc/cpuinfo").read_text()
    core = "SkylakeX" if " avx512vl" in flags else "Haswell" if " avx2" in flags else None
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "2147483648", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
    return {**settings, "OPENBLAS_CORETYPE": core} if core else settings


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def run_ranks(command, ranks, settings):
    """The last line of JSON of rank 0 of a peer, whose ranks are started by hand."""
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    environment.update(settings, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    started = []
    try:
        for rank in range(ranks):
            started.append(subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True))
        ended = [rank.communicate(timeout=1800) for rank in started]
    finally:
        for rank in started:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    if any(rank.returncode for rank in started):
        raise RuntimeError(f"{' '.join(command)} failed:\n{ended[0][1][-2000:]}")
    return last_json(ended[0][0])


def in_turn(entrants, rounds):
    """[{name: result of its run}] for each round. `entrants`: {name: function}."""
    names, all_rounds = list(entrants), []
    for number in range(rounds):
        results = {}
        for name in names[number % len(names):] + names[:number % len(names)]:
            note(f"round {number + 1} of {rounds}: {name} (load {os.getloadavg()[0]:.1f})")
            results[name] = entrants[name]()
        all_rounds.append(results)
    note("")
    return all_rounds


def note(text):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    elif text:
        sys.stderr.write(text + "\n")


class Loads:
    """The load average before and after, for the head of a table."""

    def __init__(self):
        self.before = os.getloadavg()[0]

    def text(self):
        return f"load average {self.before:.1f} before, {os.getloadavg()[0]:.1f} after, {len(os.sched_getaffinity(0))} cores"


class TwoHosts:
    """Two network namespaces of this machine joined by a cable, as root; gone at the end of `with`. Each has its share of the cores."""

    LONGEST_PACKET = 32000  # bytes that the kernel hands down at once; they fit into the shaper's bucket

    def __init__(self):
        self.names = [f"tutti-{os.getpid()}-{side}" for side in "ab"]
        self.made = []
        cores = sorted(os.sched_getaffinity(0))
        half = max(1, len(cores) // 2)
        self.cores = [cores[:half], cores[-half:]]  # of one core: shared

    def __enter__(self):
        try:
            for name in self.names:
                self.call("ip", "netns", "add", name)
                self.made.append(name)
            self.call("ip", "link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
            for host in (0, 1):
                self.call(*self.on(host, ["ip", "link", "set", "lo", "up"]))
                self.call(*self.on(host, ["ip", "address", "add", self.address(host) + "/24", "dev", "eth0"]))
                self.call(*self.on(host, ["ip", "link", "set", "eth0", "up", "gso_max_size", str(self.LONGEST_PACKET)]))
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    @staticmethod
    def call(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")

    @staticmethod
    def address(host):
        return f"10.76.0.{host + 1}"

    def on(self, host, command):
        return ["ip", "netns", "exec", self.names[host], *command]

    def on_cores(self, host, command):
        return self.on(host, ["taskset", "-c", ",".join(map(str, self.cores[host])), *command])

    def limit(self, mbit):
        """The speed of the cable in both directions; 0: as it is. After a pause one long packet passes at once."""
        for host in (0, 1):
            subprocess.run(self.on(host, ["tc", "qdisc", "del", "dev", "eth0", "root"]), capture_output=True, check=False)
            if mbit:
                self.call(*self.on(host, ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit", "burst", str(min(65536, max(32768, 125 * mbit))), "latency", "400ms"]))

    def cut(self):
        """Whatever arrives is dropped, on both sides; nobody is told."""
        drop = ["tc", "filter", "add", "dev", "eth0", "ingress", "protocol", "all", "prio", "1", "bpf", "da", "bytecode", "1,6 0 0 2"]
        for host in (0, 1):
            self.call(*self.on(host, ["tc", "qdisc", "replace", "dev", "eth0", "clsact"]))
            self.call(*self.on(host, drop))


def require_root(program):
    if os.geteuid() != 0:
        complain(program, "it makes network namespaces, which needs root", f"sudo bench/{program}")


def ratio_text(ratios):
    """Median and spread: "4.1x (3.8-4.4)"."""
    if not ratios:
        return ""
    digits = 2 if statistics.median(ratios) < 10 else 0
    return f"{statistics.median(ratios):.{digits}f}x ({min(ratios):.{digits}f}-{max(ratios):.{digits}f})"


def table(head, rows):
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def check_plot(program, path):
    """Whether --plot PATH can be drawn; said before an hour of measuring rather than after it."""
    if Path(path).suffix != ".svg":
        complain(program, f"--plot needs a file that ends in .svg, not '{path}'")
    if not shutil.which("gnuplot"):
        complain(program, "--plot draws with gnuplot, which is not here", "Debian: gnuplot-nox")


# Told apart by colour-blind readers (Okabe and Ito).
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#555555"]


def bars(path, title, y_label, groups):
    """A picture of bars: {group: {name: value}}, the same names in each group. Every bar has its value above it."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    width = 0.8 / len(names)
    script = ["set terminal svg size 860,480 font 'sans-serif,14' background 'white'", f"set output '{path}'", f"set title \"{title}\" noenhanced",
              f"set boxwidth {0.9 * width:.4f}", "set style fill solid 0.9 noborder", "set grid ytics",
              "set key outside bottom center horizontal Left reverse noenhanced", f"set ylabel \"{y_label}\" noenhanced", "set yrange [0:*]",
              f"set xrange [-0.6:{len(groups) - 0.4}]", "set offsets 0,0,graph 0.08,0",
              "set xtics (" + ", ".join(f'"{group}" {number}' for number, group in enumerate(groups)) + ") scale 0 noenhanced"]
    shapes = []
    for number, name in enumerate(names):
        shift = (number - (len(names) - 1) / 2) * width
        block = f"$bars{number}"
        script += [f"{block} << end", *(f"{at + shift:.4f} {values[name]:.4g}" for at, values in enumerate(groups.values()) if name in values), "end"]
        shapes.append(f"{block} using 1:2 with boxes lc rgb '{COLOURS[number % len(COLOURS)]}' title '{name}'")
        shapes.append(f"{block} using 1:2:(sprintf('%g',$2)) with labels offset 0,0.6 font ',11' notitle")
    script.append("plot " + ", ".join(shapes))
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True, timeout=60)
