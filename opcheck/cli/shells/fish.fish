function %(complete_func)s
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp | string collect) \
        COMP_CWORD=(commandline -ct | string collect) %(prog_name)s)
    for completion in $response
        set -l parts (string split --max 1 , -- $completion)
        set -l flag (string match --regex -- '^--[^=]*=' $parts[2])
        set -l path (string replace --regex -- '^--[^=]*=' '' $parts[2])
        if test $parts[1] = dir
            string replace --regex -- '^' "$flag" (__fish_complete_directories "$path")
        else if test $parts[1] = file
            string replace --regex -- '^' "$flag" (__fish_complete_path "$path")
        else
            echo $parts[2]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
