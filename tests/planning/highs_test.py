#!/usr/bin/env python3
"""The plans of tutti::plan_blocks() are optimal: a mixed-integer program over stages and blocks, solved by HiGHS, finds none that is faster.

  highs_test.py BLOCK_CASES [COUNT]

BLOCK_CASES prints random chains with the costs that the planner sees, and its choice. Here each number of stages, replicas and microbatches
is one program: a binary variable says whether a stage has the blocks [i, j), and a real variable is the time at which each forward and
backward of 1F1B ends. Exit code 77, with the reason, where highspy or numpy are missing.
"""
import json
import subprocess
import sys

try:
    import highspy
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}; scripts/python-for-tests installs what this test needs")
    sys.exit(77)

TOLERANCE = 1e-6  # relative; HiGHS itself is exact to about 1e-7 of the units below
MILLISECONDS, MEGABYTES = 1e3, 1e-6


def one_forward_one_backward(stage, stages, microbatches):
    """The actions of a rank: ("F" or "B", microbatch)."""
    ahead = min(stages - 1 - stage, microbatches)
    actions = [("F", i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        actions += [("F", ahead + i), ("B", i)]
    return actions + [("B", i) for i in range(microbatches - ahead, microbatches)]


class Program:
    """Least objective of real and binary variables under linear rows. An expression is a dictionary from variable to factor."""

    def __init__(self):
        self.costs, self.is_binary, self.rows = [], [], []

    def variable(self, cost=0.0, binary=False):
        self.costs.append(cost)
        self.is_binary.append(binary)
        return len(self.costs) - 1

    def at_least(self, expression, bound):
        self.rows.append((expression, bound, highspy.kHighsInf))

    def at_most(self, expression, bound):
        self.rows.append((expression, -highspy.kHighsInf, bound))

    def equal(self, expression, bound):
        self.rows.append((expression, bound, bound))

    def solve(self):
        """The least objective; None: no solution."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.costs), len(self.rows)
        lp.col_cost_ = np.array(self.costs)
        lp.col_lower_ = np.zeros(len(self.costs))
        lp.col_upper_ = np.array([1.0 if binary else highspy.kHighsInf for binary in self.is_binary])
        lp.row_lower_ = np.array([low for _, low, _ in self.rows])
        lp.row_upper_ = np.array([high for _, _, high in self.rows])
        lp.integrality_ = [highspy.HighsVarType.kInteger if binary else highspy.HighsVarType.kContinuous for binary in self.is_binary]
        starts, indices, values = [0], [], []
        for expression, _, _ in self.rows:
            indices += expression.keys()
            values += expression.values()
            starts.append(len(indices))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(starts)
        lp.a_matrix_.index_ = np.array(indices)
        lp.a_matrix_.value_ = np.array(values, dtype=float)
        highs = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 1e-9), ("mip_abs_gap", 1e-9), ("mip_feasibility_tolerance", 1e-9),
                              ("primal_feasibility_tolerance", 1e-9)):
            highs.setOptionValue(option, value)
        highs.passModel(lp)
        highs.run()
        status = highs.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return highs.getInfo().objective_function_value
        assert status == highspy.HighsModelStatus.kInfeasible, highs.modelStatusToString(status)
        return None


def least_seconds(case, stages, microbatches, shards):
    """Of all ways to cut the blocks into so many stages; None: none fits."""
    blocks, replicas = case["blocks"], case["ranks"] // stages
    rows, count = case["batch"] / replicas / microbatches, len(blocks)
    over = lambda size, bandwidth: size / bandwidth if bandwidth > 0 else 0.0
    of_row = lambda time: time["start"] + time["per_row"] * rows
    cut_apart = {inside for begin, end in case["together"] for inside in range(begin + 1, end)}
    program = Program()
    ranges = {}  # (stage, begin, end): variable
    for stage in range(stages):
        for begin in range(stage, count - (stages - stage) + 1):
            for end in range(begin + 1, count - (stages - stage - 1) + 1):
                if (stage == 0) != (begin == 0) or (stage == stages - 1) != (end == count) or {begin, end} & cut_apart:
                    continue
                has_weights = any(block["trained_bytes"] > 0 for block in blocks[begin:end])
                if not (shards and stages > 1 and not has_weights):
                    ranges[stage, begin, end] = program.variable(binary=True)
    total = lambda stage, value: {v: value(begin, end) for (s, begin, end), v in ranges.items() if s == stage}
    block_sum = lambda value: lambda begin, end: sum(value(block) for block in blocks[begin:end])
    message_in = lambda begin: 0 if begin == 0 else blocks[begin - 1]["output_bytes"] * rows
    for stage in range(stages):
        program.equal(total(stage, lambda begin, end: 1.0), 1.0)
    for stage in range(1, stages):  # it begins where the one before it ends
        for at in range(1, count):
            before = {v: 1.0 for (s, _, end), v in ranges.items() if (s, end) == (stage - 1, at)}
            after = {v: -1.0 for (s, begin, _), v in ranges.items() if (s, begin) == (stage, at)}
            if before or after:
                program.equal({**before, **after}, 0.0)

    length, tail, message = program.variable(1.0), program.variable(1.0), program.variable()
    steps = replicas if shards else 1
    weights = sum(block["weight_bytes"] for block in blocks)
    ends = {(stage, action): program.variable() for stage in range(stages) for action in one_forward_one_backward(stage, stages, microbatches)}
    for stage in range(stages):
        # Not earlier than the slowest message.
        program.at_most({**total(stage, lambda begin, end: MILLISECONDS * (2 * case["message_start"] + over(message_in(begin), case["message_bandwidth"])) if begin > 0 else 0.0),
                         message: -1.0}, 0.0)

        def after_step(begin, end):
            trained = block_sum(lambda block: block["trained_bytes"])(begin, end)
            averages = 0 if replicas == 1 or trained == 0 else case["sum_start"] + over(2 * (replicas - 1) / replicas * trained, case["sum_bandwidth"])
            return MILLISECONDS * (averages + trained * case["step_seconds"] / steps)

        program.at_most({**total(stage, after_step), tail: -1.0}, 0.0)
        if case["memory"] > 0:
            kept = min(stages - stage, microbatches)

            def bytes_of(begin, end):
                trained = block_sum(lambda block: block["trained_bytes"])(begin, end)
                activations = block_sum(lambda block: block["kept_bytes"])(begin, end) * rows + message_in(begin)
                return MEGABYTES * (trained * (2 + case["state_bytes"] / steps) + activations * kept)

            program.at_most(total(stage, bytes_of), MEGABYTES * (case["memory"] - weights))
        seconds = {"F": total(stage, block_sum(lambda block: -MILLISECONDS * of_row(block["forward"]))),
                   "B": total(stage, block_sum(lambda block: -MILLISECONDS * of_row(block["backward"])))}
        last = None
        for action in one_forward_one_backward(stage, stages, microbatches):
            kind, microbatch = action
            waits = [({}, 0.0)] if last is None else [({last: -1.0}, 0.0)]
            if kind == "F" and stage > 0:
                waits.append(({ends[stage - 1, action]: -1.0, message: -1.0}, 0.0))
            if kind == "B":
                waits.append(({ends[stage, ("F", microbatch)]: -1.0}, 0.0))
                if stage < stages - 1:
                    waits.append(({ends[stage + 1, action]: -1.0, message: -1.0}, 0.0))
            for others, bound in waits:
                program.at_least({ends[stage, action]: 1.0, **seconds[kind], **others}, bound)
            last = ends[stage, action]
        program.at_least({length: 1.0, last: -1.0}, 0.0)
    least = program.solve()
    return None if least is None else least / MILLISECONDS


def plans_of(case):
    """Stages, microbatches and whether the optimizer is sharded: all that divide ranks and batch."""
    least_rows = min(case["least_rows"], case["batch"] // case["ranks"])
    for stages in range(1, min(case["ranks"], len(case["blocks"])) + 1):
        replicas = case["ranks"] // stages
        if case["ranks"] % stages or case["batch"] % replicas:
            continue
        samples = case["batch"] // replicas
        for microbatches in range(1, samples + 1):
            if samples % microbatches or samples // microbatches < least_rows:
                continue
            yield stages, microbatches, False
            if case["can_shard"] and replicas > 1 and case["state_bytes"] > 0:
                yield stages, microbatches, True


def main():
    count = sys.argv[2] if len(sys.argv) > 2 else "50"
    lines = subprocess.run([sys.argv[1], count], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == int(count), f"{len(lines)} cases, expected {count}"
    failures = programs = pipelines = unfit = 0
    for number, line in enumerate(lines):
        case = json.loads(line)
        found = [least_seconds(case, *plan) for plan in plans_of(case)]
        programs += len(found)
        least = min((seconds for seconds in found if seconds is not None), default=None)
        ours = case["best"]["seconds"] if "best" in case else None
        pipelines += "best" in case and "stages" in case["best"]["plan"]
        unfit += least is None
        if (least is None) != (ours is None) or (least is not None and abs(ours - least) > TOLERANCE * least):
            failures += 1
            print(f"case {number}: the planner has {ours} s ({case.get('best', case.get('refusal'))}), HiGHS {least} s")
    print(f"{len(lines)} cases, {programs} programs, {pipelines} pipelines chosen, {unfit} without a plan, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
