# bash completion for tutti. It reads the options from --help, so it knows those of the tutti that is installed.
# COLUMNS keeps a list on one line.
_tutti() {
  # bash cuts words at = and :. Here --option=value is the two words of --option value, and host:29500 is one.
  local -a words=()
  local behind="" glued="" word i
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == "=" && ${words[-1]} == -* && -z $glued ]]; then
      ((i < COMP_CWORD)) || words+=("")
    elif [[ $word =~ ^[=:]+$ && $i -gt 0 ]]; then
      words[-1]+=$word glued=1
    elif [[ -n $glued ]]; then
      words[-1]+=$word glued=""
    else
      words+=("$word")
    fi
  done
  local last=$((${#words[@]} - 1))
  local current=${words[last]}
  local -a command=("${words[1]}")
  if ((last == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$(COLUMNS=1000 tutti --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p') --help --version" -- "$current")
    return
  fi
  # Some commands have commands of their own.
  if [[ ${command[0]} == ckpt || ${command[0]} == data ]]; then
    if ((last == 2)); then
      mapfile -t COMPREPLY < <(compgen -W "$(COLUMNS=1000 tutti "${command[0]}" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p') --help" -- "$current")
      return
    fi
    command+=("${words[2]}")
  elif [[ ${command[0]} == plan && ${words[2]} == @(pipeline|grid|measure|train) ]] && ((last > 2)); then
    command+=("${words[2]}")
  fi
  # Behind the program of `tutti run` everything is the program's.
  if [[ ${command[0]} == run ]]; then
    for ((i = 2; i < last; ++i)); do
      case ${words[i]} in
        --) behind=1 ;;
        --*=*) ;;
        -*) _tutti_has_value run "${words[i]}" && ((++i)) ;;
        *) behind=1 ;;
      esac
      [[ -z $behind ]] || break
    done
    if [[ -n $behind ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
  fi
  local before=${words[last - 1]} choices
  choices=$(_tutti_choices "${command[0]}" "$before")
  if [[ -n $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(COLUMNS=1000 tutti "${command[@]}" --help 2>/dev/null | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr , '\n')" -- "$current")
  elif [[ $before == -* && $before != -- ]] && _tutti_has_value "${command[0]}" "$before"; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif [[ ${command[0]} == run ]]; then
    mapfile -t COMPREPLY < <(compgen -fc -- "$current")
  elif [[ ${command[0]} == status || ${command[0]} == top ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_tutti_jobs)" -- "$current")
  elif [[ ${command[0]} == trace ]] && ((last == 2)); then
    mapfile -t COMPREPLY < <(compgen -W "merge --help" -- "$current")
  elif [[ ${command[0]} == bench || (${command[0]} == plan && ${#command[@]} == 1) ]]; then
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
    --schedule) echo 1f1b fill-drain interleaved zb-h1 zb-v all ;;
    --show) echo all stdout stderr none ;;
    --split) echo rows columns whole ;;
    --transport) echo auto shm tcp ;;
    --visible) echo all one ;;
  esac
}

# The operations of a command: its help lists them behind the word for them.
_tutti_operations() {
  COLUMNS=1000 tutti "$1" --help 2>/dev/null | sed -n 's/^  \(OP\|VERB\)  *//p' | sed 's/;.*//; s/(or \([a-z, ]*\))/\1/' | tr -d ,
}

# The names of the jobs that run here: of one `tutti status` has the table, of several a list.
_tutti_jobs() {
  tutti status 2>&1 | sed -n 's/^job \([^ ]*\): .*/\1/p; s/.* jobs run on this host: //p' | tr -d ,
}

# Whether an option of a command is followed by a value: in its help two words stand before the explanation.
_tutti_has_value() {
  COLUMNS=1000 tutti "$1" --help 2>/dev/null | grep -qE -- "^  ([^ ]*,)?$2(,[^ ]*)? [A-Za-z]"
}

complete -o filenames -F _tutti tutti
