# shellcheck shell=bash
# Sourced by the tests of Slurm: a cluster of one's own on this host, with its own key, ports and folders, which ends with the test; a
# Slurm that runs here already is not touched. The test sources common.sh before.

# need_slurm: skips where it cannot be.
need_slurm() {
  PATH=$PATH:/usr/sbin
  need slurmctld slurmd slurm-client munge -- slurmctld slurmd srun munged
  [[ $(id -u) == 0 ]] || skip "slurmd wants to be root"
}

# start_slurm NODE...: the names of the nodes; all run here. Sets `folder`.
start_slurm() {
  folder=$(mktemp -d)
  daemons=()
  trap stop_slurm EXIT
  chmod 755 "$folder"
  mkdir "$folder/state"
  (umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
  local host node version=v2 cores
  host=$(hostname -s)
  cores=$(nproc)
  cat >"$folder/slurm.conf" <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
PartitionName=test Nodes=ALL Default=YES State=UP
EOF
  for node in "$@"; do
    mkdir "$folder/spool-$node"
    echo "NodeName=$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=$cores State=UNKNOWN" >>"$folder/slurm.conf"
  done
  [[ -e /sys/fs/cgroup/cgroup.controllers ]] || version=v1
  printf 'CgroupPlugin=cgroup/%s\nIgnoreSystemd=yes\n' "$version" >"$folder/cgroup.conf"
  export SLURM_CONF=$folder/slurm.conf
  start_daemon munged munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.sock" \
    --pid-file="$folder/munged.pid" --seed-file="$folder/munge.seed"
  start_daemon slurmctld slurmctld -D
  for node in "$@"; do start_daemon "slurmd-$node" slurmd -D -N "$node"; done
  local try
  for ((try = 0; ; ++try)); do
    [[ $(sinfo --noheader --format '%t %D' 2>/dev/null) != "idle $#" ]] || break
    kill -0 "${daemons[2]}" 2>/dev/null || skip "slurmd cannot start here: $(grep -m1 error "$folder/slurmd-$1.log")"
    ((try < 120)) || skip "the Slurm of this test did not come up in a minute: $(tail -n 1 "$folder/slurmctld.log")"
    sleep 0.5
  done
}

# start_daemon NAME COMMAND...
start_daemon() {
  "${@:2}" >>"$folder/$1.log" 2>&1 &
  daemons+=($!)
}

# A slurmd that is told to end while it still clears up after a job tries for minutes to reach the controller, which has gone: so the
# cluster may come to rest first, the daemons end one after another, each before what it needs, and none is waited for for ever.
stop_slurm() {
  local try daemon index
  for ((try = 0; try < 60; ++try)); do
    [[ -n $(timeout 5 squeue --noheader 2>/dev/null || true) || $(timeout 5 sinfo --noheader --format '%t' 2>/dev/null) == *comp* ]] || break
    sleep 0.25
  done
  for ((index = ${#daemons[@]} - 1; index >= 0; --index)); do
    daemon=${daemons[index]}
    kill "$daemon" 2>/dev/null || true
    for ((try = 0; try < 100; ++try)); do
      kill -0 "$daemon" 2>/dev/null || break
      sleep 0.05
    done
    kill -KILL "$daemon" 2>/dev/null || true
  done
  wait "${daemons[@]}" 2>/dev/null || true
  rm -rf "$folder"
}
