"""Writing a conversation with its sources to a Markdown file of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, describe_error
from kbtui.tui.framework.dialogs import ConfirmDialog, FormDialog, FormField, Values
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from kbtui.library import Library
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation import NavigationTarget

WHAT: dict[str, list[str] | None] = {
    "messages": ["chat"],
    "messages, reasoning, tools": None,
}
"""What a choice leaves in; None: everything."""


def export_conversation(
    screen: StyledScreen, library: Library, status: StatusBar, place: NavigationTarget | None
) -> None:
    """Ask where to, and write the conversation that is being read."""
    conversation = place.ref.conversation if place and place.ref else None
    if conversation is None:
        status.flash("open a conversation to export it", "warning")
        return
    lane = LatestOnlyWorker(screen)

    def words(error: Exception) -> str:
        return describe_error(error, library.workspace.root)

    def written(made: tuple[Path, str, bool] | None) -> None:
        if made is None:
            return
        path, text, there = made
        if not there:
            write(path, text)
            return

        def answered(answer: str | None) -> None:
            if answer == "y":
                write(path, text)

        question = f"{path} is there already. Write over it?"
        screen.app.push_screen(ConfirmDialog(question, {"y": "write over it"}), answered)

    def write(path: Path, text: str) -> None:
        lane.submit(
            lambda: _write(library, path, text),
            lambda _: status.flash(f"written: {path}"),
            lambda error: status.flash(words(error), "error"),
        )

    fields = (
        FormField("what", "what", "messages", "What of each turn; sources always.", tuple(WHAT)),
        FormField(
            "path", "file", str(Path.cwd() / f"{conversation}.md"), "Where it is written to."
        ),
    )
    title = f"Export {conversation} with its sources"
    save = _Maker(library, conversation)
    screen.app.push_screen(FormDialog(title, fields, save, words, "write"), written)


class _Maker:
    """Makes the document of a filled form, in the form's thread."""

    def __init__(self, library: Library, conversation: str) -> None:
        self._library, self._conversation = library, conversation

    def __call__(self, values: Values) -> tuple[Path, str, bool]:
        from kbtui.assistant.conversation_tools import included_kinds
        from kbtui.citations.markdown_export import to_markdown
        from kbtui.workspace.export import check_export

        if not values["path"]:
            raise KbtuiError("say where it is to be written")
        path = Path(values["path"]).expanduser()
        if path.is_dir():
            path /= f"{self._conversation}.md"
        if not path.parent.is_dir():
            raise KbtuiError("there is no such directory", where=str(path.parent))
        check_export(self._library.workspace, path)
        found = self._library.conversation(self._conversation)
        kinds = included_kinds(WHAT[values["what"]])
        text = to_markdown(found, self._library.cited(found), found.turns, kinds)
        return path, text, path.exists()


def _write(library: Library, path: Path, text: str) -> None:
    from kbtui.workspace.export import write_export

    write_export(library.workspace, path, text)
