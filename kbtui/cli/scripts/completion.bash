# What TAB offers after kbtui. In ~/.bashrc: eval "$(kbtui completion bash)"
_kbtui() {
    local kind= word text
    COMPREPLY=()
    {
        IFS= read -r kind
        while IFS=$'\t' read -r word text; do
            COMPREPLY+=("$word")
        done
    } < <(command kbtui __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
    case $kind in
        :files) compopt -o default -o filenames 2>/dev/null ;;
        :directories) compopt -o dirnames -o filenames 2>/dev/null ;;
        # A step into a topic or a directory is not the end of the word.
        *) [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != */ ]] || compopt -o nospace 2>/dev/null ;;
    esac
    return 0
}
complete -F _kbtui kbtui
