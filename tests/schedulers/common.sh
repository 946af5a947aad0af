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
