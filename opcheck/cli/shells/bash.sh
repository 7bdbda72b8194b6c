%(complete_func)s() {
    local IFS=$'\n' response completion type value word before line=$COMP_LINE i
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        before=${line%%%%"$word"*}
        if [[ $i -gt 0 && -n $word && -z $before ]]; then
            words[${#words[@]} - 1]+=$word
        elif [[ $i -gt 0 && -z $word && $line != [[:space:]]* ]]; then
            :
        else
            words+=("$word")
        fi
        line=${line#"$before$word"}
    done
    word=${words[${#words[@]} - 1]}
    before=
    for i in : =; do
        [[ $COMP_WORDBREAKS == *"$i"* ]] && type=${word%%"${word##*"$i"}"} || type=
        [[ ${#type} -gt ${#before} ]] && before=$type
    done
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
        %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    for completion in $response; do
        type=${completion%%%%,*} value=${completion#*,}
        if [[ $type == dir ]]; then
            compopt -o dirnames 2>/dev/null
        elif [[ $type == file ]]; then
            compopt -o default 2>/dev/null
        else
            printf -v value %%q "$value"
            COMPREPLY+=("${value#"$before"}")
        fi
    done
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:/=,.] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o nosort -F %(complete_func)s %(prog_name)s
