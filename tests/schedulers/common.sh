# shellcheck shell=bash
# Sourced by the tests beside it.

skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}

# need PACKAGES... -- COMMANDS...: skips where a command is missing, and says which packages have them.
need() {
  local packages=()
  while [[ $1 != -- ]]; do
    packages+=("$1")
    shift
  done
  shift
  local command
  for command in "$@"; do
    command -v "$command" >/dev/null || skip "no $command here (sudo apt-get install ${packages[*]})"
  done
}

# expect_ranks N TEXT: every rank said its line, once, and nothing else was said.
expect_ranks() {
  local rank expected
  expected=$(for ((rank = 0; rank < $1; ++rank)); do echo "rank $rank of $1: the sum is $(($1 * ($1 + 1) / 2))"; done)
  if [[ $(sort <<<"$2") != "$expected" ]]; then
    printf 'expected:\n%s\ngot:\n%s\n' "$expected" "$2"
    exit 1
  fi
}

# has TEXT PATTERN: a line of the text matches.
has() {
  grep -qE -- "$2" <<<"$1" || fail "expected a line with: $2
got:
$1"
}

fail() {
  printf '%s\n' "$*"
  exit 1
}

# What the ranks said, without their numbers.
of_ranks() { sed -n 's/^\[[0-9]*\] //p' <<<"$1"; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# on_a_network_of_its_own SCRIPT ARGUMENTS...: starts the script again with its own /etc/hosts, in which the hosts tn0 and tn1 are two
# addresses of this one.
on_a_network_of_its_own() {
  [[ -z ${TEST_NETWORK:-} ]] || return 0
  need util-linux iproute2 -- unshare ip mount
  TEST_NETWORK=1 exec unshare --mount --net --fork --pid --kill-child --mount-proc bash -c '
    hosts=$(mktemp)
    printf "127.0.0.1 localhost %s\n10.99.0.1 tn0\n10.99.0.2 tn1\n" "$(hostname -s)" >"$hosts"
    mount --bind "$hosts" /etc/hosts
    ip link set lo up && ip address add 10.99.0.1/32 dev lo && ip address add 10.99.0.2/32 dev lo
    bash "$@"
    code=$?
    rm -f "$hosts"
    exit $code' bash "$@"
}
