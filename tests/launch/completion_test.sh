#!/usr/bin/env bash
# completion_test.sh COMPLETIONS FOLDER: what the shells propose behind `tutti`, which lies in FOLDER. zsh and fish where they are
# installed.
set -euo pipefail
completions=$1
PATH=$2:$PATH

fail() {
  printf '%s\n' "$*"
  exit 1
}

# proposals WORD...: what bash proposes for the last one.
proposals() {
  # shellcheck disable=SC2016
  bash -c 'source "$1/tutti.bash"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tutti; printf "%s\n" "${COMPREPLY[@]}"' \
    bash "$completions" "$@"
}
# proposes EXPECTED WORD...
proposes() {
  local all
  all=$(proposals "${@:2}")
  grep -qxF -- "$1" <<<"$all" || fail "expected the proposal $1 behind: ${*:2}; got: $all"
}
never() {
  local all
  all=$(proposals "${@:2}")
  ! grep -qxF -- "$1" <<<"$all" || fail "$1 is proposed behind: ${*:2}"
}

proposes run tutti r
never node tutti n
proposes --nproc-per-node tutti run --np
proposes --bind tutti run -n 4 --bi
proposes numa tutti run --bind n
proposes --peers tutti bench --pe
proposes verify tutti ckpt ve
proposes --hostfile tutti doctor --hostf
proposes --iface tutti doctor --if
never --unreached tutti doctor --un
proposes --split tutti ckpt reshard a b --sp
proposes columns tutti ckpt reshard a b --split c
proposes clicks tutti data cl
# Values, operations and files, and not every command of the shell.
proposes elastic tutti run --rdzv-backend ''
proposes stderr tutti run --show ''
proposes 3 tutti run --redirects ''
proposes reduce_scatter tutti bench ''
proposes monitored_barrier tutti bench --min 8 ''
proposes bf16 tutti bench --dtype ''
proposes gloo tutti bench --engine ''
proposes all_to_all tutti plan ''
proposes pipeline tutti plan p
proposes grid tutti plan g
proposes all tutti plan all_reduce --algorithm a
for place in 'run --rdzv-backend' 'run --show' bench 'bench --dtype' 'bench --engine' plan 'plan --algorithm' status 'run --log-dir'; do
  # shellcheck disable=SC2086
  never grep tutti $place ''
done
proposes grep tutti run -n 2 gre
# bash cuts words at = and :.
proposes core tutti run --bind =
proposes core tutti run --bind = co
proposes --log-dir tutti run --bind = core --log-d
proposes --log-dir tutti run --nnodes = 1 : 2 --rdzv-endpoint head : 29500 --log-d
proposes --log-dir tutti run --rdzv-conf = join_timeout = 60 --master-addr fd00 :: 1 --log-d
never --log-dir tutti run --master-addr fd00 :: 1 program --log-d
proposes merge tutti trace m
proposes --schedule tutti plan pipeline --sch
proposes zb-v tutti plan pipeline --schedule z
never all_reduce tutti plan pipeline ''
proposes --axis tutti plan grid --a
# Jobs that run, one and two, and no files.
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
# shellcheck disable=SC2016
ask='source "$0"; cd /; COMP_WORDS=(tutti status ""); COMP_CWORD=2; _tutti; echo "${COMPREPLY[*]}"'
jobs=$(tutti run -q --no-prefix --job-id first bash -c "$ask" "$completions/tutti.bash")
[[ $jobs == first ]] || fail "of the job first is proposed: $jobs"
jobs=$(tutti run -q --no-prefix --job-id first tutti run -q --no-prefix --job-id second bash -c "$ask" "$completions/tutti.bash")
[[ $jobs == 'first second' || $jobs == 'second first' ]] || fail "of the jobs first and second are proposed: $jobs"
# What stands behind the program is the program's.
never --bind tutti run -n 4 ./train --bi
never --bind tutti run --no-prefix -- ./train --bi
never --nproc_per_node tutti run --nproc

if command -v zsh >/dev/null; then zsh -n "$completions/_tutti" || fail "zsh does not understand its completion"; fi
if command -v fish >/dev/null; then
  home=$(mktemp -d)
  trap 'rm -rf "$home" "$XDG_RUNTIME_DIR"' EXIT
  said=$(HOME=$home fish -c "source $completions/tutti.fish; complete -C 'tutti r'; complete -C 'tutti run --bi'")
  [[ $said == *run* && $said == *--bind* ]] || fail "fish proposes: $said"
fi
