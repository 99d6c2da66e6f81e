"""The command `completion`, and the completions that the shell offers for TAB.

argcomplete generates a script for the shell. For TAB, the script runs kbtui and passes the command
line in environment variables. argcomplete completes options from the parser, and the functions here
complete the values of arguments. They never offer disabled or hidden topics and subjects.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kbtui.cli.output import print_result
from kbtui.errors import KbtuiError
from kbtui.text import one_line, sanitize
from kbtui.workspace import find_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Callable, Iterable

    from kbtui.cli.parser import CommandParser
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.models import Topic
    from kbtui.workspace import Workspace

    Pairs = Iterable[tuple[str, str]]


def declare_completion_command_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")


def run_completion_command(args: Namespace) -> int:
    """Print the script that completes kbtui's command lines in a shell.

    bash, in ~/.bashrc:                   eval "$(kbtui completion bash)"
    zsh, in ~/.zshrc after compinit:      eval "$(kbtui completion zsh)"
    fish, in ~/.config/fish/config.fish:  kbtui completion fish | source
    """
    from argcomplete.shell_integration import shellcode

    # Without `argcomplete_script`, the script would run the first word of the command line.
    options, name = ["-o", "nospace"], "kbtui"
    print_result(
        shellcode([name], shell=args.shell, complete_arguments=options, argcomplete_script=name)
    )
    return 0


def print_shell_completions(find_parser: Callable[[list[str]], tuple[CommandParser, int]]) -> int:
    """Print completions; `find_parser` returns a parser and how many leading words to skip."""
    from argcomplete.finders import ExclusiveCompletionFinder
    from argcomplete.lexers import split_line

    words = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    parser, skipped = find_parser(words[1:])
    # argcomplete reads from this variable at which word the program's name is.
    os.environ["_ARGCOMPLETE"] = str(1 + skipped)
    ExclusiveCompletionFinder()(
        parser,
        always_complete_options=False,
        exit_method=sys.exit,
        validator=_can_offer_completion,
        default_completer=_list_argument_completions,  # type: ignore[arg-type]
    )
    return 0


def _can_offer_completion(word: str, prefix: str) -> bool:
    is_shown_unchanged = word.isprintable() and sanitize(word, "strip") == word
    return word.startswith(prefix) and is_shown_unchanged


def _list_argument_completions(
    *, prefix: str, action: Action, parser: ArgumentParser, parsed_args: Namespace
) -> Iterable[str] | dict[str, str]:
    """Return the possible values of an argument, with their descriptions if there are any."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if action.dest.startswith("filter_"):
        from kbtui.search.filter_definitions import FILTERS

        row = next(row for row in FILTERS if set(row.options) & set(action.option_strings))
        if row.kind == "choice":
            return row.shown_choices
    kind = "TOPIC" if "--topic" in action.option_strings else str(action.metavar)
    if kind == "PATH":
        return DirectoriesCompleter()(prefix)
    if kind in {"FILE", "WHAT"}:
        return FilesCompleter()(prefix)
    # NAME as the value of an option is the name of a tool, which is not completed.
    if kind not in COMPLETERS or (kind == "NAME" and action.option_strings):
        return {}
    topic = parsed_args.topic if kind == "SUBJECT" else ""
    try:
        found = COMPLETERS[kind](parsed_args.workspace, topic, prefix)
        return {word: one_line(text, "strip") for word, text in found}
    except (KbtuiError, OSError, ValueError, LookupError):
        return {}


MAX_CONVERSATIONS = 20
"""The maximum number of conversations that are offered before the user types more than a prefix."""


def _find_workspace(path: str | None) -> Workspace:
    return find_workspace(Path(path) if path is not None else None)


def _load_knowledge(path: str | None) -> KnowledgeBase:
    from kbtui.knowledge import load_knowledge

    return load_knowledge(_find_workspace(path))


def list_topic_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    return [(topic.id, topic.title or "") for topic in _list_enabled_topics(_load_knowledge(path))]


def _list_enabled_topics(knowledge: KnowledgeBase) -> list[Topic]:
    return [topic for topic in knowledge.topics.values() if topic.enable]


def list_slug_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    """List the slugs of the topic `topic_name`, one directory level at a time."""
    knowledge = _load_knowledge(path)
    topic = knowledge.resolve_topic(topic_name)
    return _list_completions_of_next_path_level(
        knowledge.get_topic_slugs(topic.id).visible, current
    )


def list_subject_glob_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    """List the topics as `TOPIC/`; after the user has typed `TOPIC/`, list its slugs."""
    knowledge = _load_knowledge(path)
    topic, sign, rest = current.partition("/")
    if not sign:
        return [(f"{topic.id}/", topic.title or "") for topic in _list_enabled_topics(knowledge)]
    if not any(enabled.id == topic for enabled in _list_enabled_topics(knowledge)):
        return []
    steps = _list_completions_of_next_path_level(knowledge.get_topic_slugs(topic).visible, rest)
    return [(f"{topic}/{slug}", text) for slug, text in steps]


def list_reference_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    if current.isdigit() or current.startswith("jp-c"):
        return list_conversation_id_completions(path, topic_name, current)
    found = [*list_subject_glob_completions(path, topic_name, current)]
    if "/" not in current:
        found += list_conversation_id_completions(path, topic_name, current)
    return found


def list_conversation_id_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    """List the ids of the live conversations, newest first; those of JP come before those of others."""
    from kbtui.conversations.formats.jp import (
        list_conversations_for_completion,
    )

    if current.isdigit() or "jp-c".startswith(current) or current.startswith("jp-c"):
        form = "" if current.isdigit() else "jp-c"
        numbers = sorted(list_conversations_for_completion(path).items(), reverse=True)
        found = [(f"{form}{number}", name.replace("-", " ")) for number, name in numbers]
        if len(current) <= len("jp-c") and not current.isdigit():
            found = found[:MAX_CONVERSATIONS]
        if current:
            return found
    else:
        found = []
    return found + _list_ids_of_other_agents(path, current)


def _list_ids_of_other_agents(path: str | None, current: str) -> list[tuple[str, str]]:
    """List the ids of the agents with a prefix that fits, as short as they are listed elsewhere."""
    from kbtui.conversations.conversation_repository import (
        list_conversations,
        list_enabled_formats,
        shorten_conversation_ids,
    )

    prefixes = [one.id_prefix for one in list_enabled_formats() if one.name != "jp"]
    typed = next((prefix for prefix in prefixes if current.startswith(prefix)), None)
    if typed is None and not any(prefix.startswith(current) for prefix in prefixes):
        return []
    infos = list_conversations(_find_workspace(path), counts=False)
    short = shorten_conversation_ids(info.id for info in infos)
    found = []
    for info in infos:
        is_wanted = info.agent != "jp" and not info.archived
        if not is_wanted or (info.parent is not None and "~" not in current):
            continue
        if word := next((w for w in (short[info.id], info.id) if w.startswith(current)), None):
            found.append((word, info.name))
    return found if typed is not None and current != typed else found[:MAX_CONVERSATIONS]


def list_source_name_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    from kbtui.workspace.jp_config import load_config_file
    from kbtui.workspace.paths import SOURCES_FILE

    file = _find_workspace(path).config_directory / SOURCES_FILE
    found = load_config_file(file).get("source") if file.exists() else None
    return [(name, "") for name in found] if isinstance(found, dict) else []


def list_setting_key_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    from kbtui.workspace.settings import SETTING_KEYS

    return [(key.name, key.text) for key in SETTING_KEYS]


def _list_completions_of_next_path_level(slugs: list[str], current: str) -> Pairs:
    found: dict[str, None] = {}
    for slug in slugs:
        if slug.startswith(current):
            head, sign, _ = slug[len(current) :].partition("/")
            found[current + head + sign] = None
    return [(step, "") for step in found]


COMPLETERS: dict[str, Callable[[str | None, str, str], Pairs]] = {
    "TOPIC": list_topic_completions,
    "SUBJECT": list_slug_completions,
    "TOPIC/GLOB": list_subject_glob_completions,
    "REF": list_reference_completions,
    "ID": list_conversation_id_completions,
    "NAME": list_source_name_completions,
    "KEY": list_setting_key_completions,
}
"""The functions that complete arguments, by the argument's metavar.

They get the workspace's path, the topic that the user typed (for SUBJECT), and the text to complete.
"""
