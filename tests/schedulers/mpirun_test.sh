#!/usr/bin/env bash
# mpirun_test.sh HELLO: a program that knows nothing of MPI, started by Open MPI's launcher.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need openmpi-bin -- mpirun
options=(--oversubscribe)
[[ $(id -u) != 0 ]] || options+=(--allow-run-as-root)
expect_ranks 3 "$(timeout 120 mpirun "${options[@]}" -np 3 "$1" 2>/dev/null)"
