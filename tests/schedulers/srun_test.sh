#!/usr/bin/env bash
# srun_test.sh HELLO: a program that knows nothing of Slurm, started by srun.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/slurm.sh"
need_slurm
on_a_network_of_its_own "${BASH_SOURCE[0]}" "$@"
start_slurm "$(hostname -s)"

# An allocation shell first: its SLURM_ variables speak of no rank, so a program there is alone.
expect_ranks 1 "$(timeout 60 salloc --quiet --ntasks 2 --overcommit "$1" 2>/dev/null)"
expect_ranks 2 "$(timeout 60 srun --quiet --ntasks 2 --overcommit "$1" 2>/dev/null)"
