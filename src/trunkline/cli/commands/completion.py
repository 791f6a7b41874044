"""``trunkline completion``: prints the completion script of a shell, and answers the script's questions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import click

from trunkline.cli.exit_codes import Exit

__all__ = ["command"]

_EPILOG = """\
\b
Where to put it:
  bash  trunkline completion bash > ~/.local/share/bash-completion/completions/trunkline
  zsh   trunkline completion zsh > ~/.zfunc/_trunkline
        and in ~/.zshrc, before compinit: fpath+=(~/.zfunc)
  fish  trunkline completion fish > ~/.config/fish/completions/trunkline.fish

\b
Or for one shell only:
  source <(trunkline completion bash)

Server names come from your configuration, tools and arguments from the lists of earlier runs; no configured server is
started. The server of a .py file is run to list its tools, for three seconds at most.
"""

# Bash breaks words at = and :, so only the part after the last of them is replaced. It inserts words as they are,
# and a server could name a resource "x;command", which would be run with the next Enter: so they are quoted. Beside
# file names, Readline quotes all words itself, but leaves a $: those that need quotes are omitted there.
_BASH = """\
_trunkline() {
    local line="${COMP_LINE:0:COMP_POINT}" current prefix="" files="" word rest
    local -a words=() named=()
    IFS=$' \\t\\n' read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    current="${words[${#words[@]}-1]}"
    [[ "$current" == *[=:]* ]] && prefix="${current%"${current##*[=:]}"}"
    COMPREPLY=()
    while IFS=$'\\t' read -r word rest; do
        if [[ "$word" == ":files" ]]; then
            files=1
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("${word#"$prefix"}"); done < <(compgen -f -- "$current")
        else
            [[ "$word" == *= ]] && compopt -o nospace 2>/dev/null
            named+=("${word#"$prefix"}")
        fi
    done < <(trunkline completion --query -- "${words[@]:1}" 2>/dev/null)
    for word in "${named[@]}"; do
        [[ -n "$word" ]] || continue
        printf -v rest '%q' "$word"
        [[ -n "$files" && "$rest" != "$word" ]] || COMPREPLY+=("$rest")
    done
    return 0
}
complete -F _trunkline trunkline
"""
_ZSH = """\
#compdef trunkline
_trunkline() {
    local line word tab=$'\\t' files=""
    local -a closed closed_shown open open_shown
    while IFS= read -r line; do
        word="${line%%$tab*}"
        if [[ "$word" == ":files" ]]; then
            files=1
        elif [[ "$word" == *= ]]; then
            open+=("$word")
            open_shown+=("${line/$tab/  -- }")
        else
            closed+=("$word")
            closed_shown+=("${line/$tab/  -- }")
        fi
    done < <(trunkline completion --query -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#closed} )) && compadd -l -d closed_shown -a closed
    (( ${#open} )) && compadd -S '' -l -d open_shown -a open
    [[ -n "$files" ]] && _files
    return 0
}
if [[ "${funcstack[1]}" == "_trunkline" ]]; then _trunkline "$@"; else compdef _trunkline trunkline; fi
"""
_FISH = """\
function __trunkline_complete
    set -l words (commandline -opc) (commandline -ct)
    trunkline completion --query -- $words[2..-1] 2>/dev/null | while read -l line
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c trunkline -f -a '(__trunkline_complete)'
"""
_SCRIPTS: Mapping[str, str] = MappingProxyType({"bash": _BASH, "zsh": _ZSH, "fish": _FISH})


@click.command(epilog=_EPILOG)
@click.argument("words", nargs=-1, metavar="bash|zsh|fish")
@click.option("--query", is_flag=True, hidden=True)
def command(words: tuple[str, ...], *, query: bool) -> int:
    """Print the completion script of a shell.

    It completes commands, options, server names, tools and the names of their arguments.
    """
    if query:
        _answer(words)
        return Exit.OK
    if len(words) != 1 or words[0] not in _SCRIPTS:
        from trunkline.cli.suggestions import suggestion

        near = suggestion(words[0], _SCRIPTS) if words else ""
        raise click.UsageError(f"Name the shell: bash, zsh or fish{near or '.'}")
    click.echo(_SCRIPTS[words[0]], nl=False)
    return Exit.OK


def _answer(words: tuple[str, ...]) -> None:
    """Print the words that may follow, each with a description after a tab."""
    from trunkline.cli.completion import propose
    from trunkline.cli.ui.output import clip, one_line

    root = cast("click.Group", click.get_current_context().find_root().command)
    for proposal in propose(root, words):
        about = clip(one_line(proposal.help), 80)
        click.echo(f"{one_line(proposal.word)}\t{about}" if about else one_line(proposal.word))
