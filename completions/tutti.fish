# fish completion for tutti. It reads the options from --help, so it knows those of the tutti that is installed.
# COLUMNS keeps a list on one line.
function __tutti_commands
    env COLUMNS=1000 tutti --help | sed -n 's/^  \([a-z][a-z]*\)  *\(.*\)/\1\t\2/p'
end
# Some commands have commands of their own.
function __tutti_has_commands
    set -l words (commandline -opc)
    contains -- $words[2] ckpt data
end
function __tutti_commands_of
    set -l words (commandline -opc)
    env COLUMNS=1000 tutti $words[2] --help | sed -n 's/^  \([a-z][a-z]*\)  *\(.*\)/\1\t\2/p'
end
function __tutti_options
    set -l words (commandline -opc)
    set -l command $words[2]
    if __tutti_has_commands; and set -q words[3]
        set command $words[2] $words[3]
    end
    env COLUMNS=1000 tutti $command --help | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr , '\n'
end
complete -c tutti -n '__fish_is_nth_token 1' -f -a '(__tutti_commands)'
complete -c tutti -n '__fish_is_nth_token 2; and __tutti_has_commands' -f -a '(__tutti_commands_of)'
complete -c tutti -n 'string match -q -- "-*" (commandline -ct); and not __fish_is_nth_token 1' -f -a '(__tutti_options)'
