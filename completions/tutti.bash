# bash completion for tutti. It reads the options from --help, so it knows those of the tutti that is installed.
_tutti() {
  local current=${COMP_WORDS[COMP_CWORD]} behind= i
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
        -*) _tutti_has_value "${COMP_WORDS[i]}" && ((++i)) ;;
        *) behind=1 ;;
      esac
      [[ -z $behind ]] || break
    done
    if [[ -n $behind ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
  fi
  case ${COMP_WORDS[COMP_CWORD - 1]} in
    --bind) mapfile -t COMPREPLY < <(compgen -W 'core socket numa none' -- "$current") ;;
    --split) mapfile -t COMPREPLY < <(compgen -W 'rows columns whole' -- "$current") ;;
    --visible) mapfile -t COMPREPLY < <(compgen -W 'all one' -- "$current") ;;
    *)
      if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(tutti "${command[@]}" --help | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr , '\n')" -- "$current")
      else
        mapfile -t COMPREPLY < <(compgen -fc -- "$current")
      fi
      ;;
  esac
}

# Whether an option of `tutti run` is followed by a value: in its help two words stand before the explanation.
_tutti_has_value() {
  tutti run --help | grep -qE -- "^  ([^ ]*,)?$1(,[^ ]*)? [A-Za-z]"
}

complete -o filenames -F _tutti tutti
