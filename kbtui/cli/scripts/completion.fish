# What TAB offers after kbtui. In ~/.config/fish/config.fish: kbtui completion fish | source
function __kbtui_complete
    set -l typed (commandline -ct)
    set -l current (string unescape -- $typed 2>/dev/null); or set current (string trim -l -c '\'"' -- $typed)
    set -l lines (command kbtui __complete fish (commandline -opc) "$current" 2>/dev/null)
    switch "$lines[1]"
        case :files
            __fish_complete_path "$current"
        case :directories
            __fish_complete_directories "$current"
        case '*'
            printf '%s\n' $lines[2..-1]
    end
end
complete -c kbtui -f -a '(__kbtui_complete)'
