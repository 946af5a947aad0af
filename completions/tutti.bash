# bash completion for tutti. It reads the options from --help, so it knows those of the tutti that is installed.
_tutti() {
  local current=${COMP_WORDS[COMP_CWORD]} behind="" i
  local -a command=("${COMP_WORDS[1]}")
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$(tutti --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p') --help --version" -- "$current")
    return
  fi
  # Some commands have commands of their own.
  if [[ ${command[0]} == ckpt || ${command[0]} == data ]]; then
    if ((COMP_CWORD == 2)); then
      mapfile -t COMPREPLY < <(compgen -W "$(tutti "${command[0]}" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p') --help" -- "$current")
      return
    fi
    command+=("${COMP_WORDS[2]}")
  fi
  # Behind the program of `tutti run` everything is the program's.
  if [[ ${command[0]} == run ]]; then
    for ((i = 2; i < COMP_CWORD; ++i)); do
      case ${COMP_WORDS[i]} in
        --) behind=1 ;;
        --*=* | =) ;;
        -*) _tutti_has_value run "${COMP_WORDS[i]}" && ((++i)) ;;
        *) behind=1 ;;
      esac
      [[ -z $behind ]] || break
    done
    if [[ -n $behind ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
  fi
  local before=${COMP_WORDS[COMP_CWORD - 1]} choices
  choices=$(_tutti_choices "${command[0]}" "$before")
  if [[ -n $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(tutti "${command[@]}" --help | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr , '\n')" -- "$current")
  elif [[ $before == -* && $before != -- ]] && _tutti_has_value "${command[0]}" "$before"; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif [[ ${command[0]} == run ]]; then
    mapfile -t COMPREPLY < <(compgen -fc -- "$current")
  elif [[ ${command[0]} == bench || ${command[0]} == plan ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_tutti_operations "${command[0]}")" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

# What may stand behind an option of a command, where it is one of a few words.
_tutti_choices() {
  case $2 in
    --algorithm) echo auto ring recursive_doubling "$([[ $1 != plan ]] || echo all)" ;;
    --bind) echo core socket numa none ;;
    --dtype) echo f32 f64 f16 bf16 i8 u8 i32 i64 bool c64 c128 ;;
    --engine) echo tutti gloo mpi nccl ;;
    --level) echo debug info warn error ;;
    --log-format) echo text json ;;
    --memory) echo heap private cuda ;;
    --op) echo sum avg product min max band bor bxor premul_sum ;;
    --rdzv-backend | --rdzv_backend) echo static elastic c10d etcd ;;
    -r | --redirects | -t | --tee) [[ $1 != run ]] || echo 0 1 2 3 ;;
    --show) echo all stdout stderr none ;;
    --split) echo rows columns whole ;;
    --transport) echo auto shm tcp ;;
    --visible) echo all one ;;
  esac
}

# The operations of a command: its help lists them behind the word for them.
_tutti_operations() {
  tutti "$1" --help | sed -n 's/^  \(OP\|VERB\)  *//p' | sed 's/;.*//; s/(or \([a-z]*\))/\1/' | tr -d ,
}

# Whether an option of a command is followed by a value: in its help two words stand before the explanation.
_tutti_has_value() {
  tutti "$1" --help | grep -qE -- "^  ([^ ]*,)?$2(,[^ ]*)? [A-Za-z]"
}

complete -o filenames -F _tutti tutti
