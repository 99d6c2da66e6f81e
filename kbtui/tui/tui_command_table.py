"""The table of all commands, each with its keys, key hint, palette entry, help text and id."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from kbtui.search.filter_definitions import format_filter_keys
from kbtui.tui.framework.tui_command_definition import (
    KEY_LABELS,
    MOVE_COMMANDS,
    PUNCTUATION_KEYS,
    TuiCommand,
    apply_keymap_to_commands,
    define_command,
    format_key_label,
    make_textual_bindings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from textual.binding import BindingType


Scope = Literal[
    "everywhere", "moving", "library", "reader", "citations", "results",
    "workshop", "doctor", "entries", "sources", "insights", "bookmarks", "marks", "help",
]  # fmt: skip

SCOPES: dict[Scope, str] = {
    "library": "In the library",
    "reader": "In the reader",
    "citations": "In the citations",
    "results": "In the search results",
    "moving": "Moving inside a pane",
    "everywhere": "Everywhere",
}
"""The heading of each scope's commands on the help page of the main screen."""


def copy_commands_with_scope(scope: Scope, *commands: TuiCommand) -> list[TuiCommand]:
    """Copy commands, and set the scope of each copy to `scope`.

    Unless the scope is "everywhere", the scope becomes the prefix of each copy's id.
    """
    prefix = "" if scope == "everywhere" else f"{scope}."
    return [
        command._replace(
            id=f"{prefix}{command.id}", scope=scope, palette=scope in SCOPES and command.palette
        )
        for command in commands
    ]


_THEME = define_command("theme", "T", "light or dark", "Switch between the dark and the light theme.", action="app.switch_light_or_dark")  # fmt: skip

MAIN_SCREEN_COMMANDS: tuple[TuiCommand, ...] = (
    *copy_commands_with_scope(
        "library",
        define_command("open", "enter", "open", "Open the selected item.", 9, about="item", action="open_selected_row"),
        define_command("unfold", "l,right", "unfold", "Unfold the topic, folder or conversation.", action="unfold_selected_row"),
        define_command("fold", "h,left", "fold", "Fold the topic, folder or conversation, or go to the parent.", action="fold_row_or_select_parent"),
        define_command("toggle", "space", "fold or unfold", "Fold or unfold the topic, folder or conversation.", action="toggle_selected_fold", palette=False),
        define_command("filter", "f", "filter", f"Filter by words in the title or slug, or by {format_filter_keys('library')}.", 7, action="show_filter_input"),
        define_command("sort", "m", "sort", "Sort the conversations by activity, created, updated, title or turns (asks which).", 6, action="ask_for_sort_order"),
        define_command("clear", "escape", "clear filter", "Clear the filter.", palette=False, action="clear_filter"),
    ),
    *copy_commands_with_scope(
        "reader",
        define_command("fold", "enter", "unfold", "Fold or unfold this line, or open its link.", 9, needs="folds", action="toggle_fold_or_open_link"),
        define_command("next", "n", "next turn", "Go to the next turn or change, or to the next match while matches are highlighted.", 6, needs="turns", action="go_to_next_match_or_turn(1)"),
        define_command("previous", "N", "previous turn", "Go to the previous turn or change, or to the previous match while matches are highlighted.", needs="turns", action="go_to_next_match_or_turn(-1)"),
        define_command("next_request", "right_curly_bracket", "next request", "Go to the next request.", needs="turns", action="go_to_next_request_or_error('request',1)"),
        define_command("previous_request", "left_curly_bracket", "previous request", "Go to the previous request.", needs="turns", action="go_to_next_request_or_error('request',-1)"),
        define_command("next_error", "w", "next error", "Go to the next failed tool call.", needs="turns", action="go_to_next_request_or_error('error',1)"),
        define_command("previous_error", "W", "previous error", "Go to the previous failed tool call.", needs="turns", action="go_to_next_request_or_error('error',-1)"),
        define_command("follow", "F", "follow", "Go to the end, and follow new text as it is written.", needs="turns", action="go_to_end_and_follow"),
        define_command("find", "f,ctrl+f", "find", "Find in this page.", 5, action="open_find_bar"),
        define_command("tools", "t", "tool calls", "Unfold the tool calls with diffs, then all tool calls, then none.", 4, needs="turns", action="switch_tool_folds"),
        define_command("reasoning", "r", "reasoning", "Fold or unfold all reasoning.", 3, needs="turns", action="toggle_folds_of_kind('reasoning','reasoning')"),
        define_command("compacted", "c", "what the model sees", "Switch between the whole conversation and what the model sees after compaction.", needs="turns", action="toggle_model_view"),
        define_command("facts", "a", "details", "Show the details of the conversation: model, labels, attachments, turns, location, size.", 2, needs="turns", action="toggle_facts_bar"),
        define_command("view", "v", "view", "Switch the view of a subject: rendered, source or `learn` output. For changes: in order or by file.", 5, needs="views", action="request_next_view"),
        define_command("changes", "C", "changes", "Show the conversation's changes to files as one diff. For a subject, show each version and the turns that were given this version. Press again to go back.", 7, needs="turns", action="toggle_changes_view"),
        define_command("link", "o", "open link", "Open the link or image on this line (asks before starting another program).", action="screen.link"),
        define_command("wrap", "backslash", "wrap code", "Wrap wide code, or stop wrapping it.", action="toggle_code_wrapping"),
        define_command("code_right", "l,right", "scroll right", "Scroll wide code to the right.", action="scroll_code_sideways(1)", palette=False),
        define_command("code_left", "h,left", "scroll left", "Scroll wide code to the left.", action="scroll_code_sideways(-1)", palette=False),
        define_command("clear", "escape", "clear find", "Clear the highlighted matches.", palette=False, action="end_find_and_clear_matches"),
    ),
    *copy_commands_with_scope(
        "citations",
        define_command("open", "enter", "open", "Open the cited entry, or the turn that cites it.", 9, action="open_selected_row"),
        define_command("difference", "C", "what has changed", "Show what has changed in the cited subject since the turn.", 8, needs="difference", action="show_difference"),
        define_command("markdown", "ctrl+y", "copy as Markdown", "Copy the citations as Markdown.", 4, action="copy_citations_as('markdown')"),
        define_command("json", "J", "copy as JSON", "Copy the citations as JSON.", 3, action="copy_citations_as('json')"),
    ),
    *copy_commands_with_scope(
        "results",
        define_command("open", "enter", "open", "Open the hit in the reader.", 9, action="open_selected_row"),
        define_command("unfold", "space", "unfold", "In the hit's subject or conversation, switch between all passages found and only the best one.", 5, action="toggle_passages_of_entry"),
        define_command("explain", "a", "explain", "Explain the rank of the hit.", 7, needs="ranks", action="screen.explain_hit"),
        define_command("why", "minus", "explain missing", "Explain why an entry or a passage is missing from the results (asks for its reference).", 3, needs="ranks", action="screen.explain_missing"),
        define_command("save", "at", "save search", "Save the search under a name. An empty search input lists the saved searches.", 4, action="screen.save_search"),
        define_command("mode", "m", "mode", "Switch the search mode: both, keywords, meaning.", 6, needs="ranks", action="screen.change_search_mode"),
        define_command("close", "escape", "close", "Close the search results.", 8, action="screen.close_results"),
    ),
    *MOVE_COMMANDS,
    *copy_commands_with_scope(
        "everywhere",
        define_command("search", "slash", "search", "Search everything in this workspace.", 10, is_immediate=True),
        define_command("search_all", "asterisk,ctrl+t", "all projects", "Search all projects that you have opened; opening a hit goes to its workspace.", 1, is_immediate=True, action="search_all_projects"),
        define_command("return", "escape", "back", "Go back one step: end the zoom, close the outline, leave the citations, return from an opened hit to the results, return to the other workspace, or show what was open before.", 5, needs="step_back", palette=False, action="go_back_one_step"),
        define_command("palette", "ctrl+p,colon", "palette", "Find a command, topic, subject or conversation by name.", 2, action="open_command_palette"),
        define_command("outline", "O", "outline", "List the turns or headings of the open document. Type words to filter the list, or a number to go to that turn.", 8, needs="turns", about="item", action="show_outline"),
        define_command("go", "number_sign,ctrl+g", "go to", "Go to a turn, line or hit by its number, or to any reference.", about="item", action="ask_where_to_go"),
        define_command("jump", "semicolon", "jump", "Jump to a pane, row or link: type the letters or the digit shown on it.", about="item", action="show_jump_labels"),
        define_command("back", "left_square_bracket", "back", "Go back to what was open before.", action="move_in_history(-1)"),
        define_command("forward", "right_square_bracket", "forward", "Go forward in the history.", action="move_in_history(1)"),
        define_command("similar", "s", "more like this", "Show passages similar to the selected or open item.", about="item"),
        define_command("bookmark", "B", "bookmark", "Bookmark the selected or open item, with an optional note.", about="item"),
        define_command("bookmarks", "apostrophe", "bookmarks", "List the bookmarks, and open, change or remove them.", action="show_bookmarks"),
        define_command("mark", "M", "mark", "Mark the turn or call as decided, rejected or superseded, or change or remove its mark.", about="item"),
        define_command("marks", "quotation_mark", "marks", "List the marks, and open, change or remove them.", action="show_marks"),
        define_command("copy", "y", "copy reference", "Copy the reference of the selected or open item.", 1, about="item"),
        define_command("copy_more", "Y", "copy text", "Copy the line, block, turn or document, or the command that shows it.", about="item"),
        define_command("resume", "R", "continue in agent", "Copy or run the agent's command to continue the conversation, fork it at this turn, or attach the turn to a new conversation.", about="item", action="offer_commands_that_continue_conversation"),
        define_command("keep", "K", "keep", "Keep a copy of the conversation and its subagents. The copy stays if the agent deletes the original.", about="item"),
        define_command("edit", "e", "edit", "Open the subject, or the file of a tool call, in $EDITOR at the current line.", 9, needs="file", about="item"),
        define_command("blame", "A", "turns of this file", "List the turns that changed or read the file of this subject or tool call.", about="item"),
        define_command("prompt", "p", "prompt", "Show the whole <knowledge> prompt and its size."),
        define_command("workshop", "P", "prompt workshop", "Choose the subjects in the prompt, try patterns, and see how large the prompt is.", action="open_prompt_workshop"),
        define_command("doctor", "D", "doctor", "Check the topics, conversations, index, engine and model.", action="open_doctor"),
        define_command("hidden", "full_stop", "hidden subjects", "Show or hide hidden subjects.", action="toggle_hidden_subjects"),
        define_command("entries", "E", "entries", "List all entries, and filter, create, edit or delete them.", 3, action="open_entries_screen"),
        define_command("sources", "S", "sources", "List the sources of documents, and run, approve, add, change or remove them.", action="open_sources_screen"),
        define_command("insights", "I", "insights", "Show which queries were run, which of them found nothing useful, and which entries are cited.", action="open_insights_screen"),
        define_command("new", "plus", "new entry", "Create an entry.", action="create_entry"),
        define_command("export", "X", "export", "Export the conversation with its citations to an HTML, Markdown or JSON file; secrets are masked.", about="item"),
        define_command("tools", "L", "update tools for JP", "Show what would change in the installed tools for JP, and update them (asks first).", 9, needs="tools", action="update_tools"),
        define_command("first", "i", "first topic", "Create the first topic (shows the file and asks before writing it)."),
        define_command("home", "H", "home", "Show the home page."),
        define_command("pause_embedding", "V", "pause embedding", "Pause the embedding of passages, or resume it. It stays paused, even after a restart, until you resume it.", 2, needs="embedding"),
        define_command("pane.library", "1", "library", "Go to the library.", action="focus_pane('library')"),
        define_command("pane.reader", "2", "reader", "Go to the reader.", action="focus_pane('reader')"),
        define_command("pane.citations", "3", "citations", "Go to the citations.", action="focus_pane('citations')"),
        define_command("pane.search", "4", "search results", "Go to the search results.", action="focus_pane('search')"),
        define_command("pane.fold", "underscore", "fold pane", "Fold the focused pane (library or citations). In the reader: unfold both.", action="fold_pane"),
        define_command("pane.next", "tab", "next pane", "Go to the next pane.", action="focus_next_pane(1)", palette=False),
        define_command("pane.previous", "shift+tab", "previous pane", "Go to the previous pane.", action="focus_next_pane(-1)", palette=False),
        define_command("pane.wider", "greater_than_sign", "wider", "Make the pane wider.", action="widen(2)"),
        define_command("pane.narrower", "less_than_sign", "narrower", "Make the pane narrower.", action="widen(-2)"),
        define_command("pane.usual", "equals_sign", "reset panes", "Reset the widths of the panes, and unfold them.", action="reset_panes"),
        define_command("pane.zoom", "z", "zoom", "Zoom this pane, or show all panes again.", action="zoom"),
        _THEME,
        define_command("reload", "ctrl+r", "reload", "Reload the topics, the conversations and the open document from disk."),
        define_command("help", "question_mark", "help", "Show the keys that work here.", 11, action="show_key_help"),
        define_command("quit", "q", "quit", "Quit kbtui.", 12, action="app.quit"),
    ),
)  # fmt: skip
"""The commands of the main screen."""

SCREENS: dict[Scope, str] = {
    "workshop": "In the prompt workshop",
    "doctor": "In the doctor",
    "entries": "In the entries",
    "sources": "In the sources",
    "insights": "In the insights",
    "bookmarks": "In the bookmarks",
    "marks": "In the marks",
    "help": "In the help",
}
"""For each screen except the main screen, the heading above its commands on its help page.

On such a screen, the commands of the scope "moving" also work, but not those of the scope
"everywhere".
"""

_HELP = define_command("help", "question_mark", "help", "Show the keys of this screen.", 11)
_RELOAD = define_command("reload", "ctrl+r", "reload", "Reload everything from disk.")
_HIDDEN = define_command("hidden", "full_stop", "hidden", "Show or hide hidden subjects.")

SCREEN_COMMANDS: tuple[TuiCommand, ...] = (
    *copy_commands_with_scope(
        "workshop",
        define_command("learn", "space", "pre-load", "Pre-load the subject, or stop pre-loading it.", 9, action="toggle_subject_mark('learned')"),
        define_command("disable", "x", "disable", "Disable the subject, or enable it again.", 8, action="toggle_subject_mark('disabled')"),
        define_command("switch", "tilde", "topic on/off", "Switch the topic on or off.", 5, action="toggle_topic"),
        define_command("write", "ctrl+s", "write", "Review the changes; press again to write them to kb.toml.", 10, action="review_or_write_marks"),
        define_command("undo", "u", "undo", "Undo the last write.", 4, needs="written", action="undo_written_change"),
        define_command("drop", "U", "discard", "Discard all unwritten changes.", 3, needs="marks", action="discard_marks"),
        define_command("try", "slash", "try pattern", "Try a pattern: TOPIC/GLOB, such as rfd/03*.", 7, action="focus_pattern_input"),
        define_command("view", "v", "view", "Switch between `learn` output and the whole prompt.", 6, action="toggle_preview_kind"),
        define_command("open", "enter", "open", "Unfold a topic or folder, or go to the text of a subject; in the review, write the changes.", action="open_row_or_write"),
        define_command("unfold", "l,right", "unfold", "Unfold the topic or folder.", action="unfold_row"),
        define_command("fold", "h,left", "fold", "Fold the topic or folder, or go to the parent.", action="fold_row"),
        define_command("filter", "f", "filter", "Filter by words in the slug.", action="focus_filter"),
        _HIDDEN._replace(action="toggle_hidden_subjects"),
        define_command("next", "tab,shift+tab", "other pane", "Switch between the list and the text.", action="focus_other_pane"),
        _RELOAD._replace(help="Reload everything from disk; unwritten changes are kept."),
        _THEME, _HELP,
        define_command("back", "escape", "back", "Close the pattern, the filter or the review; if none is open, close the screen.", 12),
        define_command("leave", "q", "leave", "Leave the prompt workshop (asks first if there are unwritten changes)."),
    ),
    *copy_commands_with_scope(
        "doctor",
        define_command("open", "enter", "open", "Open the entry that the finding is about.", 10, action="open_entry_of_finding"),
        define_command("next", "n", "next", "Go to the next finding that is not OK.", 9, action="go_to_next_problem(1)"),
        define_command("previous", "N", "previous", "Go to the previous finding that is not OK.", action="go_to_next_problem(-1)"),
        define_command("tools", "L", "update tools for JP", "Show what would change in the installed tools for JP, and update them (asks first).", 7, needs="tools", action="update_tools"),
        define_command("look", "ctrl+r", "re-check", "Check everything again.", 8, action="reload"),
        _THEME, _HELP,
        define_command("leave", "escape,q,D", "back", "Leave the doctor.", 12),
    ),
    *copy_commands_with_scope(
        "insights",
        define_command("open", "enter", "open / create", "Open the entry, or create one for a gap.", 10, action="open_or_create_entry"),
        define_command("next", "n", "next section", "Go to the next section.", 7, action="go_to_next_section(1)"),
        define_command("previous", "N", "previous section", "Go to the previous section.", action="go_to_next_section(-1)"),
        define_command("days", "m", "period", "Change the period: 30, 90 or 7 days.", 8, action="change_period"),
        _HIDDEN._replace(help="Include hidden subjects, or leave them out.", action="toggle_hidden_subjects"),
        define_command("delete", "d,delete", "delete log", "Delete all logged searches (asks first).", 5, action="delete_logged_searches"),
        _RELOAD,
        _THEME, _HELP,
        define_command("leave", "escape,q,I", "back", "Leave the insights.", 12),
    ),
    *copy_commands_with_scope(
        "entries",
        define_command("enter", "enter", "details", "Go to the details; in the details, unfold a passage or open a turn.", 9, action="open_details_or_link"),
        define_command("read", "2", "read", "Open the entry in the reader.", 8, action="open_in_reader"),
        define_command("filter", "f,slash", "filter", f"Filter by words, or by {format_filter_keys('entries')}.", 10, is_immediate=True, action="focus_filter"),
        define_command("type", "m", "type", "Cycle the type filter through the types, then show all types.", 4, action="filter_by_next_value('type')"),
        define_command("status", "ampersand", "status", "Switch the status filter: ready, pending, error, all.", 3, action="filter_by_next_value('is')"),
        define_command("new", "plus", "new", "Create an entry.", 7, action="create_subject"),
        define_command("edit", "e", "edit", "Edit the entry in $EDITOR; its id and citations stay the same.", 6, action="edit_subject"),
        define_command("remove", "d,delete", "delete", "Move the entry to the trash (asks first).", 5, action="remove_subject"),
        define_command("undo", "u", "undo", "Restore the last deleted entry from the trash.", 6, needs="trashed", action="restore_removed_subject"),
        define_command("address", "o", "open address", "Open the web address that the entry was fetched from.", 2, needs="address", action="open_web_address"),
        define_command("retry", "exclamation_mark", "retry", "Retry failed entries.", 4, needs="errors", action="retry_indexing_failed_entries"),
        define_command("copy", "y", "copy reference", "Copy the reference of the entry.", action="copy_reference"),
        _HIDDEN._replace(action="toggle_hidden_or_archived('hidden')"),
        define_command("archived", "comma", "archived", "Show or hide archived conversations.", action="toggle_hidden_or_archived('archived')"),
        _RELOAD, _THEME, _HELP,
        define_command("back", "escape", "back", "Close the details or the filter; if neither is open, close the screen.", 12),
        define_command("leave", "q,E", "leave", "Leave the entries."),
    ),
    *copy_commands_with_scope(
        "sources",
        define_command("agree", "y", "approve", "Approve exactly what is shown.", 13, needs="approving", action="approve_shown_source"),
        define_command("run", "exclamation_mark", "run", "Run the source now.", 10, needs="source", action="run_source"),
        define_command("stop", "x", "stop", "Stop the run; the documents fetched so far are kept.", 11, needs="running", action="stop_source"),
        define_command("approve", "v", "review, approve", "Review exactly what a source will do, then approve it.", 10, needs="unapproved", action="review_source"),
        define_command("new", "plus", "add", "Add a source.", 8, action="add_source"),
        define_command("edit", "e", "change", "Change the source.", 6, needs="source", action="edit_source"),
        define_command("remove", "d,delete", "remove", "Remove the source (asks whether to keep its documents).", 5, needs="source", action="remove_source"),
        define_command("enter", "enter", "details", "Go to the details.", 7, action="focus_details"),
        _RELOAD, _THEME, _HELP,
        define_command("back", "escape", "back", "Go back to the list; in the list, close the screen.", 12),
        define_command("leave", "q,S", "leave", "Close the screen (asks first if a source is running)."),
    ),
    *copy_commands_with_scope(
        "bookmarks",
        define_command("open", "enter", "open", "Open the bookmarked item.", 9, action="open_item"),
        define_command("edit", "e", "note", "Change the note of the bookmark.", 7, action="edit_item"),
        define_command("remove", "d,delete", "remove", "Remove the bookmark.", 6, action="remove_item"),
        define_command("undo", "u", "undo", "Undo the last removal.", 10, needs="removed", action="undo_removal"),
        define_command("leave", "escape,q,apostrophe", "back", "Leave the bookmarks.", 12, action="dismiss"),
    ),
    *copy_commands_with_scope(
        "marks",
        define_command("open", "enter", "open", "Open the marked turn.", 9, action="open_item"),
        define_command("edit", "e", "change", "Change the mark.", 7, action="edit_item"),
        define_command("remove", "d,delete", "remove", "Remove the mark.", 6, action="remove_item"),
        define_command("undo", "u", "undo", "Undo the last removal.", 10, needs="removed", action="undo_removal"),
        define_command("leave", "escape,q,quotation_mark", "back", "Leave the marks.", 12, action="dismiss"),
    ),
    *copy_commands_with_scope(
        "help",
        define_command("filter", "f,slash", "filter", "Show only the keys whose descriptions contain the typed words.", 9, action="filter"),
        define_command("back", "escape", "back", "Clear the filter; if there is none, close the help.", 12, action="go_back"),
        define_command("leave", "q,question_mark", "leave", "Close the help.", action="dismiss"),
    ),
)  # fmt: skip
"""The commands of all screens except the main screen."""

ALL_COMMANDS: tuple[TuiCommand, ...] = (*MAIN_SCREEN_COMMANDS, *SCREEN_COMMANDS)
COMMANDS_BY_ID = {command.id: command for command in ALL_COMMANDS}


def list_commands_of_scopes(
    *scopes: Scope, keymap: Mapping[str, str] | None = None
) -> list[TuiCommand]:
    """Return the commands of `scopes` in the order of the table, with the keys from `keymap`."""
    return apply_keymap_to_commands(
        (command for command in ALL_COMMANDS if command.scope in scopes), keymap
    )


def make_key_bindings_of_scopes(*scopes: Scope) -> list[BindingType]:
    """Return the key bindings of the commands of `scopes`, for the `BINDINGS` of a class."""
    return make_textual_bindings(list_commands_of_scopes(*scopes))


def find_key_label_of_command(name: str, keymap: Mapping[str, str]) -> str:
    """Return the label of the first key of the command with the id `name`, or "" if it has no key."""
    (command,) = apply_keymap_to_commands([COMMANDS_BY_ID[name]], keymap)
    return next(iter(command.key_labels), "")


def find_key_label_for_input(name: str, keymap: Mapping[str, str]) -> str:
    """Return the label of the first key that runs the command `name` even while an input has the focus.

    Return "" if there is no such key. A key with a one-character label is typed into the input.
    """
    (command,) = apply_keymap_to_commands([COMMANDS_BY_ID[name]], keymap)
    return next((label for label in command.key_labels if len(label) > 1), "")


_TASKS: dict[str, tuple[str, ...]] = {
    "Find and open": (
        "search", "search_all", "palette", "go", "outline", "jump", "back", "forward", "return", "similar", "home",
    ),
    "Work on the selected or open item": (
        "bookmark", "mark", "copy", "copy_more", "resume", "keep", "edit", "blame", "export",
    ),
    "Lists and screens": (
        "bookmarks", "marks", "prompt", "workshop", "doctor", "entries", "sources", "insights", "new", "first", "hidden",
    ),
    "Panes": (
        "pane.library", "pane.reader", "pane.citations", "pane.search", "pane.next", "pane.previous", "pane.fold",
        "pane.wider", "pane.narrower", "pane.usual", "pane.zoom",
    ),
}  # fmt: skip
"""The ids of the commands of the scope "everywhere", by task."""
_OTHER_TASK = "kbtui itself"

_TASKS_IN_PANES_AND_SCREENS: dict[str, tuple[str, ...]] = {
    "move and open": (
        "open", "enter", "read", "unfold", "fold", "toggle", "next", "previous", "next_request", "previous_request",
        "next_error", "previous_error", "follow", "link", "address",
    ),
    "find and filter": (
        "filter", "find", "sort", "type", "status", "hidden", "archived", "days", "mode", "try", "clear",
    ),
    "show": (
        "reader.tools", "reasoning", "compacted", "facts", "view", "changes", "difference", "wrap",
        "code_right", "code_left", "results.unfold", "explain", "why",
    ),
    "change": (
        "new", "edit", "remove", "undo", "learn", "disable", "switch", "write", "drop", "retry", "run", "stop",
        "approve", "agree", "tools", "delete",
    ),
    "copy and save": ("copy", "markdown", "json", "save"),
    "this screen": ("reload", "look", "theme", "help", "back", "leave", "close"),
}  # fmt: skip
"""The commands in panes and screens, by task. A command is given by its id, or by its id without the scope."""


def group_commands_by_task(commands: Iterable[TuiCommand]) -> dict[str, list[TuiCommand]]:
    """Group commands by their tasks. All `commands` must have the same scope."""
    groups: dict[str, list[TuiCommand]] = {
        task: [] for task in (*_TASKS, _OTHER_TASK, *_TASKS_IN_PANES_AND_SCREENS)
    }
    for command in commands:
        is_everywhere = command.scope == "everywhere"
        names = _TASKS if is_everywhere else _TASKS_IN_PANES_AND_SCREENS
        tasks = {name: task for task, listed in names.items() for name in listed}
        short = command.id if is_everywhere else command.id.partition(".")[2]
        groups[tasks.get(command.id) or tasks.get(short, _OTHER_TASK)].append(command)
    return {task: members for task, members in groups.items() if members}


NO_KEY = "no-key"
"""A key that does not exist. Commands without a key have it, because Textual's keymap requires a key."""
RESERVED_KEYS = {"ctrl+q": "quits kbtui on every screen", "ctrl+c": "copies the selected text"}

_KEY_NAMES = {shown.casefold(): key for key, shown in KEY_LABELS.items()}
_KEY_NAMES |= {shown: key for key, shown in PUNCTUATION_KEYS.items()}
_KEY_NAMES |= {key: key for key in (*KEY_LABELS, "insert", "delete", "backspace")}
_KEY_NAMES |= {f"f{number}": f"f{number}" for number in range(1, 25)} | {"return": "enter"}
"""Maps every name that users may write for a key to Textual's name of the key."""


class ConfiguredKeymap:
    """The keys that the user's settings assign to commands, and messages about mistakes in the settings."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        """Textual's names of each command's keys, separated by commas, by command id."""
        self.problems: list[str] = []

    @property
    def textual_keymap(self) -> dict[str, str]:
        """The keymap in the form that `App.set_keymap` expects."""
        return {name: keys or NO_KEY for name, keys in self.keys.items()}


def parse_keymap_settings(table: Mapping[str, Any]) -> ConfiguredKeymap:
    """Parse the table `keys` of the settings; `problems` of the result contains a message for each mistake."""
    from difflib import get_close_matches

    keymap = ConfiguredKeymap()
    for name, value in _flatten_keymap_table(table):
        if name not in COMMANDS_BY_ID:
            near = get_close_matches(name, COMMANDS_BY_ID, n=1, cutoff=0.5)
            hint = "type `id:` in the command palette to list the commands"
            if near:
                hint = f"did you mean {near[0]!r}?"
            keymap.problems.append(f"unknown command {name!r}; {hint}")
            continue
        try:
            keymap.keys[name] = ",".join(dict.fromkeys(_parse_key_names(value)))
        except ValueError as error:
            keymap.problems.append(f"{name}: {error}")
    _remove_conflicting_configured_keys(keymap)
    keymap.problems += _describe_shadowed_keys(keymap)
    return keymap


def _flatten_keymap_table(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command id with its value.

    TOML parses `reader.find = "x"`, in which the key is not quoted, as nested tables. This function
    joins their keys to the id `reader.find`.
    """
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten_keymap_table(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parse_key_names(value: Any) -> list[str]:
    if isinstance(value, str):
        # A single comma means the comma key. In a longer string, commas separate keys.
        names = [value] if value.strip() == "," else value.split(",") if value.strip() else []
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        names = value
    else:
        raise ValueError("write a key, or a list of keys")
    return [_parse_key_name(name) for name in names]


def _parse_key_name(text: str) -> str:
    """Return Textual's name for a key. Raises `ValueError` if the key is unknown or reserved."""
    name = text.strip()
    if name.startswith("^") and len(name) > 1:
        name = f"ctrl+{name[1:]}"
    *modifiers, last = name.split("+") if len(name) > 1 else [name]
    is_exact = (len(last) == 1 and last.isalnum()) or last in PUNCTUATION_KEYS
    key = last if is_exact else _KEY_NAMES.get(last.casefold(), "")
    if not key:
        raise ValueError(f"unknown key {text!r}")
    modifiers = sorted(modifier.casefold() for modifier in modifiers)
    if not set(modifiers) <= {"ctrl", "alt", "shift"}:
        raise ValueError(f"unknown key {text!r}; the modifiers are ctrl+, alt+ and shift+")
    key = "+".join([*modifiers, key])
    if key in RESERVED_KEYS:
        raise ValueError(f"{text} is reserved: it {RESERVED_KEYS[key]}")
    return key


def _map_keys_to_commands(keymap: ConfiguredKeymap) -> dict[tuple[str, str], list[TuiCommand]]:
    """Map each pair of a scope and a key to the commands that the key runs in this scope."""
    commands: dict[tuple[str, str], list[TuiCommand]] = {}
    for command in ALL_COMMANDS:
        for key in keymap.keys.get(command.id, command.keys).split(","):
            if key:
                commands.setdefault((command.scope, key), []).append(command)
    return commands


def _remove_conflicting_configured_keys(keymap: ConfiguredKeymap) -> None:
    """Remove each configured key that another command of the same scope already has, and report it."""
    while True:
        conflicts = (
            (key, commands, [command for command in commands if command.id in keymap.keys])
            for (_, key), commands in _map_keys_to_commands(keymap).items()
            if len(commands) > 1
        )
        key, commands, changed = next((one for one in conflicts if one[2]), ("", [], []))
        if not changed:
            return
        loser = changed[-1]
        other = next(command for command in commands if command is not loser)
        default = " ".join(loser.key_labels) or "no key"
        owner = f"{other.id} ({other.label}), so {loser.id} keeps {default}"
        keymap.problems.append(f"{loser.id}: {format_key_label(key)} is already the key of {owner}")
        del keymap.keys[loser.id]


def _describe_shadowed_keys(keymap: ConfiguredKeymap) -> list[str]:
    """Return a message about each command whose key, in some panes, runs another command.

    Only conflicts that the settings cause are reported.
    """
    by_key = _map_keys_to_commands(keymap)
    problems = []
    for (scope, key), commands in by_key.items():
        if key == "escape":
            continue  # If a pane has nothing to close or clear, it passes this key on.
        outer_scopes = ["everywhere"] if scope in SCOPES and scope != "everywhere" else []
        if scope == "moving":
            outer_scopes = [one for one in (*SCOPES, *SCREENS) if one != scope]
        outers = [outer for one in outer_scopes for outer in by_key.get((one, key), ())]
        for inner, outer in product(commands, outers):
            if inner.id not in keymap.keys and outer.id not in keymap.keys:
                continue
            # A command with `is_immediate` comes before all others.
            first, second = (outer, inner) if outer.is_immediate else (inner, outer)
            shared = second.scope if first.scope == "everywhere" else first.scope
            where = {"moving": "in every pane", "everywhere": shared}.get(
                shared, f"in the {shared}"
            )
            instead = f"{first.id} ({first.label}) {where} instead"
            problems.append(f"{second.id}: {format_key_label(key)} runs {instead}")
    return problems
