"""`kintune completion`: the scripts that complete commands, options, files and names in bash, zsh and fish.

A script asks `kintune` itself what fits, by the protocol of click: the environment names the shell and has the line.
"""

from __future__ import annotations

import os
import shlex

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete, add_completion_class

__all__ = ["VARIABLE", "command", "script_for"]

VARIABLE = "_KINTUNE_COMPLETE"
"""The environment variable by which a shell asks."""

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} item kind before="" found
    local typed=${line##*[[:space:]]}
    [[ $typed == --*=* ]] && typed=${typed#*=}
    # readline takes what follows a colon for a word of its own
    [[ $COMP_WORDBREAKS == *:* && $typed == *:* ]] && before=${typed%%"${typed##*:}"}
    COMPREPLY=()
    mapfile -t found < <(COMP_WORDS="$line" %(complete_var)s=bash_complete "$1")
    for item in "${found[@]}"; do
        case ${item%%%%,*} in
            plain) item=${item#*,}; COMPREPLY+=("${item#"$before"}") ;;
            file | dir) kind=${item%%%%,*} ;;
        esac
    done
    if [[ $kind && ${#COMPREPLY[@]} -gt 0 ]]; then
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$typed")
    elif [[ $kind == dir ]]; then
        compopt -o dirnames
    elif [[ $kind == file ]]; then
        compopt -o default
    fi
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Bash(BashComplete):
    """Gets the line as it was typed: the words of bash are cut at colons, as in zoo:resnet18."""

    source_template = _BASH

    @staticmethod
    def _check_version() -> None:
        """The script is for any bash since 4.4; the one that runs it need not be the one on the path."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the complete words of the line, without the command, and the incomplete one."""
        line = os.environ["COMP_WORDS"]
        lexer = shlex.shlex(line, posix=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        words: list[str] = []
        try:
            words.extend(lexer)
        except ValueError:  # a quote is open
            words.append(lexer.token)
        incomplete = "" if line[-1:].isspace() else words.pop()
        return words[1:], incomplete


add_completion_class(_Bash, "bash")

_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": ZshComplete, "fish": FishComplete}


def script_for(shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`."""
    from kintune.cli.root import root

    return _SHELLS[shell](root, {}, "kintune", VARIABLE).source()


@click.command("completion", short_help="Print the shell completion script.")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(shell: str) -> None:
    """Print the script with which SHELL completes commands, options, files and names of models.

    Put the line  eval "$(kintune completion bash)"  into ~/.bashrc, or the same with zsh into ~/.zshrc.  For fish,
    write the script to a file: kintune completion fish > ~/.config/fish/completions/kintune.fish
    """
    click.echo(script_for(shell), nl=False)
