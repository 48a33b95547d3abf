# bash completion for drun                                     -*- shell-script -*-

_drun() {
  local line=${COMP_LINE:0:COMP_POINT} words=() starts=() word blanks i
  # bash divides words at =, : and @ as well; drun does not.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    blanks=${line%%[![:space:]]*}
    line=${line#"$blanks"}
    word=${COMP_WORDS[i]}
    ((i < COMP_CWORD)) || word=$line
    line=${line#"$word"}
    if [[ $i -gt 0 && -z $blanks ]]; then
      words[${#words[@]} - 1]+=$word
    else
      words+=("$word")
      starts+=("$i")
    fi
  done

  local current=${words[${#words[@]} - 1]} program=${words[0]/#\~\//$HOME/} answer=()
  type -P "$program" >/dev/null || program=drun
  mapfile -t answer < <("$program" --complete "${words[@]}" 2>/dev/null)
  local directive=${answer[0]} candidates=("${answer[@]:1}")
  candidates=("${candidates[@]%%$'\t'*}")

  local value=$current stem=''
  if [[ $current == --*=* ]]; then
    value=${current#*=}
    stem=${current%"$value"}
  fi
  local found=() list=''
  case $directive in
    ':program '*)
      if declare -F _command_offset >/dev/null; then
        _command_offset "${starts[${directive#:program }]}"
      else
        compopt -o default
      fi
      return
      ;;
    :files) mapfile -t found < <(compgen -f -- "$value") ;;
    :directories) mapfile -t found < <(compgen -d -- "$value") ;;
    :programs) mapfile -t found < <(compgen -c -- "$value"; compgen -f -- "$value") ;;
    :hosts)
      list=${value%"${value##*[,@]}"}
      mapfile -t found < <(compgen -A hostname -- "${value#"$list"}")
      ;;
  esac
  [[ $directive == :nothing || $directive == :hosts ]] || compopt -o filenames
  for word in "${found[@]}"; do candidates+=("$stem$list$word"); done

  # What precedes the last word break stays as it is. An @ belongs to the word that it begins.
  local kept='' mark rest
  for mark in = : @; do
    [[ $COMP_WORDBREAKS == *$mark* && $current == *$mark* ]] || continue
    rest=${current##*"$mark"}
    [[ $mark != @ ]] || rest=@$rest
    ((${#kept} + ${#rest} >= ${#current})) || kept=${current:0:${#current}-${#rest}}
  done
  COMPREPLY=()
  for word in "${candidates[@]}"; do
    [[ $word != "$current"* ]] || COMPREPLY+=("${word#"$kept"}")
  done
}

complete -F _drun drun
