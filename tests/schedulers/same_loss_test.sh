#!/usr/bin/env bash
# same_loss_test.sh TRAIN_IMAGE TUTTI: a training gives the same numbers whoever starts its ranks.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need openmpi-bin -- mpirun
[[ -d /usr/share/datasets/fashion-mnist ]] || skip "no Fashion-MNIST here (sudo apt-get install dataset-fashion-mnist)"
options=(--oversubscribe)
[[ $(id -u) != 0 ]] || options+=(--allow-run-as-root)
train=("$1" --model cnn --max-steps 4 --batch-size 16 --log-every 0)
# The last line has a rate, which is nobody's to repeat.
numbers() { grep -oE '(loss|accuracy) [0-9.]+' <<<"$1"; }
export OMP_NUM_THREADS=1
ours=$(timeout 200 "$2" run -q -n 4 --no-tune "${train[@]}" 2>&1) || fail "tutti run: $ours"
theirs=$(timeout 200 mpirun "${options[@]}" -np 4 "${train[@]}" 2>&1) || fail "mpirun: $theirs"
[[ -n $(numbers "$ours") ]] || fail "no number in: $ours"
[[ $(numbers "$ours") == "$(numbers "$theirs")" ]] || fail "they differ:
$(diff <(numbers "$ours") <(numbers "$theirs"))"
