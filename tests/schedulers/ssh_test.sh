#!/usr/bin/env bash
# ssh_test.sh HELLO TUTTI: `tutti run --hosts` over a real sshd, which stands for two hosts: it has two addresses.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
hello=$1 tutti=$2
PATH=$PATH:/usr/sbin
need openssh-server openssh-client -- sshd ssh ssh-keygen
[[ $(id -u) == 0 ]] || skip "a network of its own and sshd want root"
on_a_network_of_its_own "${BASH_SOURCE[0]}" "$@"

folder=$(mktemp -d)
trap 'kill $(cat "$folder/sshd.pid" 2>/dev/null) 2>/dev/null; rm -rf "$folder"' EXIT
ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$folder/my_key"
cp "$folder/my_key.pub" "$folder/authorized_keys"
mkdir -p /run/sshd
cat >"$folder/sshd_config" <<EOF
Port 2222
ListenAddress 0.0.0.0
HostKey $folder/host_key
AuthorizedKeysFile $folder/authorized_keys
PidFile $folder/sshd.pid
PermitRootLogin yes
StrictModes no
UsePAM no
PasswordAuthentication no
EOF
cat >"$folder/ssh_config" <<EOF
Host down
  HostName tn1
  Port 2223
Host stranger
  HostName tn1
  IdentityFile $folder/host_key
Host tn0 tn1
  IdentityFile $folder/my_key
Host *
  Port 2222
  IdentitiesOnly yes
  UserKnownHostsFile $folder/known_hosts
  StrictHostKeyChecking accept-new
  BatchMode yes
EOF
"$(command -v sshd)" -f "$folder/sshd_config" -E "$folder/sshd.log"
for ((try = 0; try < 100; ++try)); do
  ! ssh -F "$folder/ssh_config" tn0 true 2>/dev/null || break
  ((try < 99)) || fail "sshd does not answer: $(cat "$folder/sshd.log")"
  sleep 0.1
done
run() { timeout 100 "$tutti" run --ssh "ssh -F $folder/ssh_config" "$@"; }
# Every process of this test's namespace with such a command line.
count() { pgrep -fc -- "$1" || true; }
await_none() {
  for ((try = 0; try < 200; ++try)); do
    [[ $(count "$1") != 0 ]] || return 0
    sleep 0.05
  done
  fail "left behind: $(pgrep -fa -- "$1")"
}

# Counts of each host, the address by which ssh reached the first, the folder and the variables of here.
said=$(run --hosts tn0:2,tn1:1 "$hello" 2>&1) || fail "$said"
expect_ranks 3 "$(of_ranks "$said")"
cd "$folder"
printf 'tn0 slots=1\ntn1 slots=2  # the larger one\n' >hosts
# shellcheck disable=SC2016
said=$(run -q --hostfile hosts -x COLOUR=blue sh -c 'echo "$RANK $LOCAL_RANK $MASTER_ADDR $COLOUR $PWD ${local_rank}"' 2>&1) || fail "$said"
has "$said" "^\[0\] 0 0 10.99.0.1 blue $folder 0$"
has "$said" "^\[2\] 2 1 10.99.0.1 blue $folder 1$"

# A rank's code is the job's.
# shellcheck disable=SC2016
run -q --hosts tn0:1,tn1:1 sh -c 'exit $((RANK * 7))' >/dev/null 2>&1 && code=0 || code=$?
[[ $code == 7 ]] || fail "expected exit code 7, got $code"

# No secret, no argument of the program and no name of a variable stands on a command line of ssh.
run -q --hosts tn0:1,tn1:1 sleep 5.54 &
for ((try = 0; try < 200 && $(count '^sleep 5.54') < 2; ++try)); do sleep 0.05; done
said=$(ps -eo args | grep '^ssh -F') || true
[[ -n $said && $said != *TUTTI_SECRET* && $said != *5.54* ]] || fail "on a command line: $said"
# Ctrl-C reaches the ranks of all hosts.
kill -INT $(pgrep -fx -- "$tutti run --ssh .*5.54")
wait $! && code=0 || code=$?
[[ $code == 130 ]] || fail "expected exit code 130, got $code"
await_none '^sleep 5.54'

# Whoever kills this end leaves nobody behind over there.
run -q --hosts tn0:1,tn1:1 sleep 5.55 &
for ((try = 0; try < 200 && $(count '^sleep 5.55') < 2; ++try)); do sleep 0.05; done
kill -KILL $(pgrep -fx -- "$tutti run --ssh .*5.55")
await_none '^sleep 5.55'

# Hosts that do not answer, or not to us, are named, and nothing starts on the others.
said=$(run --hosts tn0:1,down:1 touch "$folder/started" 2>&1) && fail "a host that is down was not told"
has "$said" 'down did not start tutti \(exit code 255\): .*Connection refused'
said=$(run --hosts tn0:1,stranger:1 touch "$folder/started" 2>&1) && fail "a key that is not welcome was not told"
has "$said" 'stranger did not start tutti \(exit code 255\): .*Permission denied'
has "$said" 'ssh must reach stranger without a prompt'
[[ ! -e $folder/started ]] || fail "a rank was started"
