#!/usr/bin/env bash
# srun_test.sh HELLO: the same under Slurm. A cluster of this one host is made for the test, with its own key, ports and folders,
# and ended with it; a Slurm that runs here already is not touched.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
PATH=$PATH:/usr/sbin
need slurmctld slurmd slurm-client munge -- slurmctld slurmd srun munged
[[ $(id -u) == 0 ]] || skip "slurmd wants to be root"

folder=$(mktemp -d)
daemons=()
finish() {
  ((${#daemons[@]} == 0)) || kill "${daemons[@]}" 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap finish EXIT
chmod 755 "$folder"
mkdir "$folder/state" "$folder/spool"

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
(umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
host=$(hostname -s)
cat >"$folder/slurm.conf" <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=$host Default=YES State=UP
EOF
version=v2
[[ -e /sys/fs/cgroup/cgroup.controllers ]] || version=v1
printf 'CgroupPlugin=cgroup/%s\nIgnoreSystemd=yes\n' "$version" >"$folder/cgroup.conf"
export SLURM_CONF=$folder/slurm.conf

start() {
  "$@" >>"$folder/$1.log" 2>&1 &
  daemons+=($!)
}
start munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.sock" --pid-file="$folder/munged.pid" --seed-file="$folder/munge.seed"
start slurmctld -D
start slurmd -D
for ((try = 0; ; ++try)); do
  [[ $(sinfo --noheader --format %t 2>/dev/null) != idle* ]] || break
  kill -0 "${daemons[2]}" 2>/dev/null || skip "slurmd cannot start here: $(grep -m1 error "$folder/slurmd.log")"
  ((try < 120)) || skip "the Slurm of this test did not come up in a minute: $(tail -n 1 "$folder/slurmctld.log")"
  sleep 0.5
done

# An allocation shell first: its SLURM_ variables speak of no rank, so a program there is alone.
expect_ranks 1 "$(timeout 60 salloc --quiet --ntasks 2 --overcommit "$1" 2>/dev/null)"
expect_ranks 2 "$(timeout 60 srun --quiet --ntasks 2 --overcommit "$1" 2>/dev/null)"
