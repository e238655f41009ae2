_banksman() {
    local typed="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[@]}") word reply space=true i
    # A name that is typed without quotes has backslashes, which are no part of it.
    case "$typed" in
        [\'\"]*) word="$2" ;;
        *) IFS= read word <<< "$2" ;;
    esac
    words[COMP_CWORD]="$word"
    if compopt +o nospace 2> /dev/null; then
        space=false
    fi
    reply="$(
        COMPLETE=bash _CLAP_IFS=$'\013' _CLAP_COMPLETE_INDEX="$COMP_CWORD" _CLAP_COMPLETE_COMP_TYPE="$COMP_TYPE" \
            _CLAP_COMPLETE_SPACE="$space" banksman -- "${words[@]}"
    )"
    COMPREPLY=()
    if [[ -z "$reply" ]]; then
        return
    fi
    IFS=$'\013' read -r -d '' -a COMPREPLY <<< "$reply"
    COMPREPLY=("${COMPREPLY[@]%$'\n'}")
    if [[ "$space" == false && "${COMPREPLY[0]}" =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
    # Titles have blanks, and may have anything else that a shell would act on.
    for i in "${!COMPREPLY[@]}"; do
        case "$typed" in
            \'*) COMPREPLY[i]="${COMPREPLY[i]//\'/\'\\\'\'}" ;;
            \"*)
                word="${COMPREPLY[i]//\\/\\\\}" word="${word//\"/\\\"}" word="${word//\$/\\\$}"
                COMPREPLY[i]="${word//\`/\\\`}"
                ;;
            *) printf -v "COMPREPLY[i]" %q "${COMPREPLY[i]}" ;;
        esac
    done
}
complete -o nospace -o bashdefault -o nosort -F _banksman banksman 2> /dev/null || complete -o nospace -o bashdefault -F _banksman banksman
