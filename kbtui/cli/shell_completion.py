"""The command `completion`, and the completions that a shell offers when the user presses TAB.

argcomplete generates a script for the shell. When the user presses TAB, the script runs kbtui with
the command line in environment variables. argcomplete completes options from the parser. The
functions here complete the values of arguments, and never offer topics or subjects that are disabled
or hidden.
"""

from __future__ import annotations

import os
import sys

from kbtui.cli.cli_output import print_result
from kbtui.errors import KbtuiError
from kbtui.references import JP_ID_PREFIX, shorten_conversation_ids
from kbtui.terminal_text import sanitize, sanitize_to_one_line
from kbtui.workspace import find_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Callable, Iterable

    from kbtui.cli.argument_parser_base_class import CliArgumentParser
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Topic

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


def print_completions_of_command_line(
    find_parser: Callable[[list[str]], tuple[CliArgumentParser, int]],
) -> int:
    """Print completions for the command line that the shell passes in environment variables.

    `find_parser` receives the words after `kbtui`. It returns the parser for these words, and the
    number of words before the parser's own arguments.
    """
    from argcomplete.finders import ExclusiveCompletionFinder
    from argcomplete.lexers import split_line

    words = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    parser, skipped = find_parser(words[1:])
    # This variable tells argcomplete which word is the name of the program.
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
    """Return the values that complete an argument, with descriptions if there are any."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if action.dest.startswith("filter_"):
        from kbtui.search.filter_definitions import FILTERS

        row = next(row for row in FILTERS if set(row.options) & set(action.option_strings))
        if row.kind == "choice":
            return row.shown_choices
    options = {"--topic": "TOPIC", "--agent": "AGENT"}
    named = [options[option] for option in action.option_strings if option in options]
    kind = named[0] if named else str(action.metavar)
    if kind == "PATH":
        return DirectoriesCompleter()(prefix)
    if kind in {"FILE", "WHAT"}:
        return FilesCompleter()(prefix)
    # As the value of an option, NAME is not the name of a source, so it is not completed.
    if kind not in COMPLETERS or (kind == "NAME" and action.option_strings):
        return {}
    topic = parsed_args.topic if kind == "SUBJECT" else ""
    try:
        found = COMPLETERS[kind](parsed_args.workspace, topic, prefix)
        return {word: sanitize_to_one_line(text, "strip") for word, text in found}
    except (KbtuiError, OSError, ValueError, LookupError):
        return {}


MAX_CONVERSATIONS = 20
"""Before the user types a digit of an id, at most this many of JP's conversations are offered."""
MAX_TITLES = 200
"""If more than this many ids of an agent match, they are offered without titles."""


def _load_knowledge(path: str | None) -> KnowledgeBase:
    from kbtui.knowledge import load_knowledge

    return load_knowledge(find_workspace(path))


def _list_topic_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    return [(topic.id, topic.title or "") for topic in _list_enabled_topics(_load_knowledge(path))]


def _list_enabled_topics(knowledge: KnowledgeBase) -> list[Topic]:
    return [topic for topic in knowledge.topics.values() if topic.enable]


def _list_subject_slug_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    """List the visible slugs of a topic that begin with `current`, one path level at a time."""
    knowledge = _load_knowledge(path)
    topic = knowledge.resolve_topic(topic_name)
    return _list_completions_of_next_path_level(
        knowledge.get_topic_slugs_by_visibility(topic.id).visible, current
    )


def _list_topic_or_subject_path_completions(
    path: str | None, topic_name: str, current: str
) -> Pairs:
    """List the enabled topics as `TOPIC/` or, if `current` already contains `TOPIC/`, the slugs of this topic."""
    knowledge = _load_knowledge(path)
    topic, sign, rest = current.partition("/")
    if not sign:
        return [(f"{topic.id}/", topic.title or "") for topic in _list_enabled_topics(knowledge)]
    if not any(enabled.id == topic for enabled in _list_enabled_topics(knowledge)):
        return []
    steps = _list_completions_of_next_path_level(
        knowledge.get_topic_slugs_by_visibility(topic).visible, rest
    )
    return [(f"{topic}/{slug}", text) for slug, text in steps]


def _list_reference_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    if current.isdigit() or current.startswith(JP_ID_PREFIX):
        return _list_conversation_id_completions(path, topic_name, current)
    found = [*_list_topic_or_subject_path_completions(path, topic_name, current)]
    if "/" not in current:
        found += _list_conversation_id_completions(path, topic_name, current)
    return found


def _list_conversation_id_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    """List the completions for a conversation's id.

    If `current` begins with the prefix of an agent, such as `codex-`, the completions are the ids of this
    agent's conversations. Otherwise, they are the ids of JP's live conversations, newest first, and the
    prefixes of other agents.
    """
    found: list[tuple[str, str]] = []
    if current.isdigit() or current.startswith(JP_ID_PREFIX) or JP_ID_PREFIX.startswith(current):
        found += _list_jp_id_completions(path, current)
    if not (current.isdigit() or current.startswith(JP_ID_PREFIX)):
        found += _list_non_jp_id_completions(path, current)
    return found


def _list_jp_id_completions(path: str | None, current: str) -> Pairs:
    from kbtui.conversations.formats.jp import list_jp_conversations_for_completion

    form = "" if current.isdigit() else JP_ID_PREFIX
    found = sorted(list_jp_conversations_for_completion(path).items(), reverse=True)
    named = [(f"{form}{number}", name.replace("-", " ")) for number, name in found]
    return (
        named
        if len(current) > len(JP_ID_PREFIX) or current.isdigit()
        else named[:MAX_CONVERSATIONS]
    )


def _list_non_jp_id_completions(path: str | None, current: str) -> Pairs:
    """Return the completions of `current` for conversations with agents other than JP.

    A completion is a conversation's short id, or its full id if only the full id begins with `current`.
    """
    from kbtui.conversations.conversation_repository import (
        iterate_conversations_of_agent,
        list_enabled_conversation_formats,
    )

    workspace = find_workspace(path)
    found: list[tuple[str, str]] = []
    for one in list_enabled_conversation_formats():
        prefix = one.id_prefix
        if one.name == "jp" or not (prefix.startswith(current) or current.startswith(prefix)):
            continue
        stored = {each.id: each for each in iterate_conversations_of_agent(workspace, one)}
        if not current.startswith(prefix):
            found += [(prefix, one.label)] if stored else []
            continue
        short = shorten_conversation_ids(stored)
        words = {
            id_: short[id_] if short[id_].startswith(current) else id_
            for id_ in stored
            if id_.startswith(current) or short[id_].startswith(current)
        }
        if len(words) > MAX_TITLES:
            found += [(word, "") for word in words.values()]
            continue
        infos = [stored[id_].read_conversation_info() for id_ in words]
        infos.sort(key=lambda info: info.make_time_sort_key(), reverse=True)
        found += [(words[info.id], info.name) for info in infos]
    return found


def _list_agent_name_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    from kbtui.conversations.conversation_repository import list_conversation_formats

    return [(one.name, one.label) for one in list_conversation_formats()]


def _list_document_source_name_completions(
    path: str | None, topic_name: str, current: str
) -> Pairs:
    from kbtui.workspace.jp_config import load_config_file
    from kbtui.workspace.paths import SOURCES_FILE

    file = find_workspace(path).config_directory / SOURCES_FILE
    found = load_config_file(file).get("source") if file.exists() else None
    return [(name, "") for name in found] if isinstance(found, dict) else []


def _list_setting_key_completions(path: str | None, topic_name: str, current: str) -> Pairs:
    from kbtui.workspace.user_settings import SETTING_KEYS

    return [(key.name, key.text) for key in SETTING_KEYS]


def _list_completions_of_next_path_level(slugs: list[str], current: str) -> Pairs:
    found: dict[str, None] = {}
    for slug in slugs:
        if slug.startswith(current):
            head, sign, _ = slug[len(current) :].partition("/")
            found[current + head + sign] = None
    return [(step, "") for step in found]


COMPLETERS: dict[str, Callable[[str | None, str, str], Pairs]] = {
    "TOPIC": _list_topic_completions,
    "SUBJECT": _list_subject_slug_completions,
    "TOPIC/GLOB": _list_topic_or_subject_path_completions,
    "REF": _list_reference_completions,
    "ID": _list_conversation_id_completions,
    "AGENT": _list_agent_name_completions,
    "NAME": _list_document_source_name_completions,
    "KEY": _list_setting_key_completions,
}
"""Maps the metavar of an argument to the function that completes the argument.

The function's parameters are the path of the workspace, the topic before a SUBJECT ("" for other
arguments), and the text to complete.
"""
