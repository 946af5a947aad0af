"""tutti.run: jobs that a Python program starts.

    python tests/python/run_test.py      with the package tutti in PYTHONPATH and the program in PATH
"""

import concurrent.futures
import contextlib
import io
import math
import os
import signal
import socket
import sys
import unittest

from tutti import plan, run

# Functions of this module, as a rank imports it: not of "__main__".
sys.path.insert(0, os.path.dirname(__file__))
if __name__ == "__main__":
    import run_test as functions
else:
    functions = sys.modules[__name__]


def rank_times(factor, *, plus=0):
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
    return int(os.environ["RANK"]) * factor + plus


def fail_on_rank_1():
    if os.environ["RANK"] == "1":
        raise ValueError("no such sample: 17")
    signal.pause()


def exit_early_on_rank_1():
    if os.environ["RANK"] == "1":
        sys.exit(0)


class Launch(unittest.TestCase):
    def test_results_come_back_by_rank(self):
        self.assertEqual(run.launch(functions.rank_times, (10,), {"plus": 1}, ranks=3), [1, 11, 21])

    def test_what_ranks_print_is_shown_where_the_caller_prints(self):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            run.launch(functions.rank_times, (1,), ranks=2)
        self.assertIn("rank 1 of 2", shown.getvalue())

    def test_the_error_has_the_rank_and_its_traceback(self):
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(run.LaunchError) as raised:
            run.launch(functions.fail_on_rank_1, ranks=2)
        self.assertRegex(str(raised.exception), "rank 1")
        self.assertIn("ValueError: no such sample: 17", str(raised.exception))
        self.assertIn('in fail_on_rank_1\n', str(raised.exception))
        self.assertEqual(raised.exception.code, 1)

    def test_each_host_gets_the_results_of_its_ranks(self):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            endpoint = "127.0.0.1:%d" % one.getsockname()[1]
        meet = f"--nnodes 2 --rdzv-backend elastic --rdzv-endpoint {endpoint} --rdzv-id hosts-of-{os.getpid()}"

        def launch(_):
            return run.launch(functions.rank_times, (10,), ranks=2, options=[*meet.split(), "--insecure", "--timeout", "60"])

        with contextlib.redirect_stdout(io.StringIO()), concurrent.futures.ThreadPoolExecutor(2) as hosts:
            self.assertEqual(sorted(hosts.map(launch, range(2))), [[0, 10], [20, 30]])

    def test_a_rank_that_exits_before_it_returns_is_an_error(self):
        with self.assertRaisesRegex(run.LaunchError, r"rank 1 ended without a result: did it call sys.exit\(\)") as raised:
            run.launch(functions.exit_early_on_rank_1, ranks=2)
        self.assertEqual(raised.exception.code, 1)

    def test_a_function_of_the_module_library_needs_nothing_else(self):
        self.assertEqual(run.launch(math.sqrt, (4,), ranks=1), [2])

    def test_ranks_without_a_local_rank_are_rejected(self):
        with self.assertRaisesRegex(ValueError, "leave out --virtual-local-rank"):
            run.launch(math.sqrt, (4,), ranks=1, options=["--virtual-local-rank"])

    def test_a_wrong_option_is_an_error_with_code_2(self):
        with contextlib.redirect_stdout(io.StringIO()) as shown, self.assertRaises(run.LaunchError) as raised:
            run.launch(math.sqrt, (4,), ranks=1, options=["--max-restart", "1"])
        self.assertEqual(raised.exception.code, 2)
        self.assertIn("--max-restarts", shown.getvalue())


class Plan(unittest.TestCase):
    def test_predictions_are_objects(self):
        found = plan.predict("all_reduce", ranks=4, bytes="64K", algorithm="all")
        self.assertIn("ring", [one["algorithm"] for one in found])
        self.assertTrue(all(one["us"] >= one["bound_us"] for one in found))
        self.assertEqual(plan.predict("pipeline", stages=2, microbatches=4)[0]["ranks"], 2)

    def test_a_wrong_option_is_told_with_the_nearest(self):
        with self.assertRaisesRegex(ValueError, "--bytes"):
            plan.predict("all_reduce", ranks=4, byte=1)


if __name__ == "__main__":
    unittest.main()
