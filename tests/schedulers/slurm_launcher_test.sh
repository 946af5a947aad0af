#!/usr/bin/env bash
# slurm_launcher_test.sh HELLO TUTTI: `tutti run` inside Slurm, on a cluster of two nodes: as one task of each node, and from a job
# script, where it starts itself on the others.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname -- "${BASH_SOURCE[0]}")/slurm.sh"
hello=$1 tutti=$2
need_slurm
on_a_network_of_its_own "${BASH_SOURCE[0]}" "$@"
start_slurm tn0 tn1

# One task of each node; the counts differ by -n's list. The scheduler tells nodes, number, first host and the name of the job.
said=$(TUTTI_SECRET=$(head -c 32 /dev/urandom | base64) timeout 100 srun --quiet --nodes 2 --ntasks-per-node 1 --overcommit \
  "$tutti" run -n 2,1 "$hello" 2>&1) || fail "srun tutti run failed: $said"
expect_ranks 3 "$(of_ranks "$said")"
has "$said" '3 ranks|rank 2 +on'
has "$said" 'job slurm-[0-9]+\.[0-9]+'

# Without a secret the nodes refuse one another, in a sentence.
said=$(timeout 100 srun --quiet --nodes 2 --ntasks-per-node 1 --overcommit "$tutti" run -n 1 "$hello" 2>&1) && exit 1
has "$said" 'needs a secret that all of them know'

# From the one shell of an allocation it starts itself on both nodes, with a secret that it makes and the counts that were asked for.
said=$(timeout 100 salloc --quiet --nodes 2 --ntasks-per-node 2 --overcommit "$tutti" run "$hello" 2>&1) || fail "tutti run in salloc failed: $said"
expect_ranks 4 "$(of_ranks "$said")"
has "$said" 'starting on the 2 nodes of this allocation with srun'

# A code other than 0 comes through, and --standalone stays on this node.
timeout 100 salloc --quiet --nodes 2 --overcommit "$tutti" run -q -n 1 sh -c 'exit $((RANK == 1 ? 7 : 0))' >/dev/null 2>&1 && code=0 || code=$?
[[ $code == 7 ]] || fail "expected exit code 7, got $code"
expect_ranks 1 "$(of_ranks "$(timeout 100 salloc --quiet --nodes 2 --overcommit "$tutti" run --standalone "$hello" 2>/dev/null)")"

# Several launchers on one node are a mistake that is told.
said=$(timeout 100 srun --quiet --nodes 2 --ntasks-per-node 2 --overcommit "$tutti" run -n 2 "$hello" 2>&1) && exit 1
has "$said" 'srun started 2 of this launcher on this node'
