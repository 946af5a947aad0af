"""A rank is killed in a collective, and the launcher starts the job again: under tutti run and under torchrun.

    python tests/python/elastic_test.py      with the package tutti in PYTHONPATH and the program in PATH
"""

import os
import signal
import subprocess
import sys
import unittest


def train():
    """What each rank runs."""
    import torch
    import torch.distributed as dist

    import tutti

    tutti.register()
    dist.init_process_group("tutti")
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(5):
        if step == 3 and dist.get_rank() == 1 and attempt == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            model(torch.ones(2, 4)).sum().backward()
        except dist.DistBackendError as error:
            print("LOST:", error, flush=True)
            sys.exit(1)
    os.write(1, f"DONE after restart {attempt}\n".encode())  # whole, between the lines of the other rank
    dist.destroy_process_group()


def run(*launcher):
    done = subprocess.run(
        [*launcher, "--max-restarts=1", "--nproc-per-node=2", __file__, "rank"],
        capture_output=True, text=True, timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


class Elastic(unittest.TestCase):
    def trains_on_after_a_restart(self, *launcher):
        code, output = run(*launcher)
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("DONE after restart 1"), 2, output)
        self.assertNotIn("DONE after restart 0", output)
        return output

    def test_under_tutti_run(self):
        self.trains_on_after_a_restart("tutti", "run")

    def test_under_torchrun(self):
        output = self.trains_on_after_a_restart(sys.executable, "-m", "torch.distributed.run", "--standalone")
        self.assertRegex(output, "LOST: .*PeerLost.*rank 1")


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        train()
    else:
        unittest.main()
