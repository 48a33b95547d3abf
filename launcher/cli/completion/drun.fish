# fish completion for drun

function __drun_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    test -n "$current"; or set current ''
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    command -q $program; or set program drun
    set -l answer ($program --complete $words $current 2>/dev/null)
    set -l directive (string split ' ' -- $answer[1])
    set -e answer[1]
    printf '%s\n' $answer

    set -l value $current
    set -l stem ''
    if string match -q -- '--*=*' $current
        set value (string replace -r '^[^=]*=' '' -- $current)
        set stem (string replace -r '=.*' '=' -- $current)
    end
    switch $directive[1]
        case :program
            set -l rest (string escape -- $words[(math $directive[2] + 1)..-1])
            complete -C (string join ' ' -- $rest (string escape -n -- $current))
        case :files
            string replace -r '^' -- $stem (__fish_complete_path "$value")
        case :directories
            string replace -r '^' -- $stem (__fish_complete_directories "$value" '')
        case :programs
            string replace -r '^' -- $stem (complete -C "$value")
        case :hosts
            set -l list (string replace -r '[^,@]*$' '' -- $value)
            string replace -r '^' -- $stem$list (__fish_print_hostnames)
    end
end

complete -c drun -f -a '(__drun_complete)'
