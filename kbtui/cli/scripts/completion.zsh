#compdef kbtui
# What TAB offers after kbtui. In ~/.zshrc, after compinit: eval "$(kbtui completion zsh)"
_kbtui() {
    local line word text
    local -a lines ended ended_texts open open_texts
    lines=("${(@f)$(command kbtui __complete zsh "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    case $lines[1] in
        :files) _files; return ;;
        :directories) _files -/; return ;;
    esac
    for line in "${(@)lines[2,-1]}"; do
        word=${line%%$'\t'*}
        text=${line#*$'\t'}
        [[ -n $text ]] && text="$word  -- $text" || text=$word
        if [[ $word == */ ]]; then
            # A step into a topic or a directory is not the end of the word.
            open+=("$word") open_texts+=("$text")
        else
            ended+=("$word") ended_texts+=("$text")
        fi
    done
    (( $#ended )) && compadd -l -d ended_texts -a -- ended
    (( $#open )) && compadd -l -S '' -d open_texts -a -- open
    (( $#ended + $#open ))
}
if [[ $funcstack[1] == _kbtui ]]; then
    _kbtui "$@"
else
    compdef _kbtui kbtui
fi
