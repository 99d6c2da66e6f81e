"""The command `completion`."""

from __future__ import annotations

from kbtui.cli.output import emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure_completion(parser: ArgumentParser) -> None:
    """The argument of `kbtui completion` (decisions D)."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="which one")


def run_completion(args: Namespace) -> int:
    """Print the script that completes kbtui's command lines in a shell.

    bash, in ~/.bashrc:                   eval "$(kbtui completion bash)"
    zsh, in ~/.zshrc after compinit:      eval "$(kbtui completion zsh)"
    fish, in ~/.config/fish/config.fish:  kbtui completion fish | source
    """
    from pathlib import Path

    script = Path(__file__).parent / "scripts" / f"completion.{args.shell}"
    emit(script.read_text("utf-8"))
    return 0
