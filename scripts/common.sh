# shellcheck shell=bash
# What ./quickstart and ./run-tests share: words, packages, a clean environment, how many jobs. To be sourced.

say() { printf '== %s\n' "$*"; }
warn() { printf '== warning: %s\n' "$*" >&2; }
die() {
  printf '== %s\n' "$*" >&2
  exit 1
}

# nearest WORD KNOWN...: the KNOWN with the fewest letters to change, as did_you_mean() of tutti/base/text.h finds it.
nearest() {
  awk 'function least(a, b) { return a < b ? a : b }
    function edits(a, b,   i, j, row, above, corner) {
      for (j = 0; j <= length(b); ++j) row[j] = j
      for (i = 1; i <= length(a); ++i) {
        corner = row[0]++
        for (j = 1; j <= length(b); ++j) {
          above = row[j]
          row[j] = least(least(above, row[j - 1]) + 1, corner + (substr(a, i, 1) != substr(b, j, 1)))
          corner = above
        }
      }
      return row[length(b)]
    }
    BEGIN {
      most = length(ARGV[1]) < 9 ? 3 : int(length(ARGV[1]) / 3) + 1
      for (k = 2; k < ARGC; ++k) if ((d = edits(ARGV[1], ARGV[k])) < most) { most = d; found = ARGV[k] }
      if (found != "") print found
    }' "$@"
}

# unknown_option OPTION KNOWN...
unknown_option() {
  local hint
  hint=$(nearest "$@")
  hint=${hint:+did you mean $hint?}
  die "unknown option: $1 (${hint:-see --help})"
}

# Variables that an earlier job, a batch script or an MPI launcher may have left in this shell. Ranks that we start
# would take them for theirs.
forget_stale_variables() {
  unset CDPATH GTEST_FILTER
  unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT
  unset GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "${!TORCHELASTIC_@}"
  unset "${!OMPI_@}" "${!HYDI_@}" "${!JSM_@}" "${!FLUX_@}" "${!PMI_@}" "${!PMIX_@}" "${!MV2_@}" "${!MPI_@}" "${!PALS_@}" "${!SLURM_@}" "${!SLURMD_@}" "${!PBS_@}"
  local name
  for name in "${!TUTTI_@}"; do
    [[ $name == TUTTI_LOG || $name == TUTTI_PYTHON ]] || unset "$name"
  done
}

# packages_for PART...: the Debian packages that a part of the house needs.
packages_for() {
  local part
  for part in "$@"; do
    case $part in
      core) printf '%s\n' g++ cmake ninja-build libcli11-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libtomlplusplus-dev libssl-dev zlib1g-dev libpcre2-dev libcurl4-openssl-dev libhwloc-dev pkg-config ;;
      torch) printf '%s\n' libtorch-dev libopenblas0-pthread ;;
      tests) printf '%s\n' libgtest-dev libgmock-dev python3 python3-yaml iproute2 ;;
      python) printf '%s\n' python3-torch python3-numpy python3-venv ;;
      data) printf '%s\n' dataset-fashion-mnist ;;
      engines) printf '%s\n' libgloo-dev libopenmpi-dev openmpi-bin ;;
      bench) printf '%s\n' gnuplot-nox iperf3 iproute2 ;;
      docs) printf '%s\n' doxygen chromium fonts-dejavu-core python3-venv ;;
      clang) printf '%s\n' clang ;;
      package) printf '%s\n' python3-dev python3-venv ;;
      wheel) printf '%s\n' python3-pip unzip ;;
      *) die "packages_for: no part $part" ;;
    esac
  done
}

# Those of the packages named that are not installed, one a line. Either OpenBLAS will do.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $package == libopenblas0-pthread ]] && is_installed libopenblas0-openmp && continue
    is_installed "$package" || printf '%s\n' "$package"
  done
}

is_installed() {
  [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Installs what is missing, and says so; silent when all is there.
install_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "No apt here: the build will say what it misses. In Debian's names: $*"
    return
  fi
  local missing=() as_root=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "These packages are missing and there is no sudo. As root: apt-get install ${missing[*]}"
    as_root=(sudo)
    # Without a terminal nobody can type a password.
    [[ -t 0 ]] || sudo -n true 2>/dev/null || die "These packages are missing and sudo wants a password. First: sudo apt-get install ${missing[*]}"
  fi
  say "Installing with apt: ${missing[*]}"
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" update && "${as_root[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    die "apt could not install them (its last words stand above). Tutti is built from Debian 12's packages; README.md says what to do elsewhere."
  fi
  rm -f "$log"
}

# The first number of a file, or nothing.
number_in() { grep -o -m1 '[0-9]*' "$1" 2>/dev/null | head -n 1; }

# Cores that this process may use: its affinity, and the quota of its container.
cores() {
  local cores quota period
  cores=$(nproc)
  if read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max && [[ $quota != max ]]; then
    quota=$(((quota + period - 1) / period))
    ((quota < cores)) && cores=$quota
  fi
  printf '%s\n' "$((cores > 0 ? cores : 1))"
}

# Compilers at a time: one a core, as far as memory goes (a translation unit takes up to 2 GiB).
jobs_for_build() {
  local jobs memory_kb limit
  jobs=$(cores)
  memory_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
  limit=$(number_in /sys/fs/cgroup/memory.max)
  if [[ -n $limit ]] && ((limit / 1024 < memory_kb)); then memory_kb=$((limit / 1024)); fi
  local fitting=$((memory_kb / 2097152))
  ((fitting < jobs)) && jobs=$fitting
  printf '%s\n' "$((jobs > 0 ? jobs : 1))"
}

# Debian's libtorch pulls in the reference BLAS, which is 13 to 60 times slower than OpenBLAS. Where an administrator has
# pinned that one, our own processes take OpenBLAS all the same.
use_fast_blas() {
  local triple blas folder
  triple=$(g++ -print-multiarch 2>/dev/null) || return 0
  blas=$(readlink -f "/usr/lib/$triple/libblas.so.3" 2>/dev/null) || return 0
  case $blas in *openblas* | *mkl* | *blis* | *atlas*) return 0 ;; esac
  for folder in "/usr/lib/$triple"/openblas-{pthread,openmp,serial}; do
    if [[ -e $folder/libblas.so.3 ]]; then
      export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
      warn "the system's BLAS is $blas, the slow one; this run uses $folder. For good: sudo update-alternatives --auto libblas.so.3-$triple"
      return 0
    fi
  done
  warn "the system's BLAS is $blas, 13 to 60 times slower than OpenBLAS: sudo apt-get install libopenblas0-pthread"
}

# python_for_tests FOLDER: the Python of the tests that compare with PyTorch, numpy, safetensors, TensorBoard and HiGHS.
python_for_tests() {
  if [[ -n ${TUTTI_PYTHON-} ]]; then
    say "Tests compare with $TUTTI_PYTHON (TUTTI_PYTHON)"
    return
  fi
  [[ -e $1/installed ]] || say "Installing safetensors, TensorBoard and HiGHS in $1"
  local log code=0
  log=$(mktemp)
  scripts/python-for-tests "$1" >"$log" 2>&1 || code=$?
  case $code in
    0) ;;
    3) warn "python3 -m venv failed (Debian: apt-get install python3-venv): tests against safetensors, TensorBoard and HiGHS do not run ($(tail -n 1 "$log"))" ;;
    *) warn "PyPI cannot be reached, or lacks safetensors, TensorBoard or HiGHS for this Python: tests against them do not run ($(tail -n 1 "$log"))" ;;
  esac
  rm -f "$log"
  [[ ! -x $1/bin/python ]] || export TUTTI_PYTHON=$1/bin/python
}

# torch_venv: sets `venv` to a virtual environment with PyTorch: the one that is active, else build/venv.
torch_venv() {
  venv=${VIRTUAL_ENV-}
  if [[ -z $venv ]]; then
    venv=$PWD/build/venv
    [[ -x $venv/bin/python ]] || say "Making the virtual environment $venv"
    [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  fi
  "$venv/bin/python" -c 'import torch' 2>/dev/null && return
  say "Installing PyTorch in $venv (2.5 GB with its CUDA libraries)"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check torch
}

# configure PRESET [cmake options]: quiet unless it fails.
configure() {
  local log
  log=$(mktemp)
  if ! cmake --preset "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "CMake could not configure the preset $1 (see above). A stale build/$1 from another compiler? Remove it and try again."
  fi
  rm -f "$log"
}
