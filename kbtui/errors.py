"""The errors that users see, with a message, a place and a hint.

Front ends show the `message`, `where` and `hint` of a `KbtuiError`. A command that raises a
`KbtuiError` exits with the error's `exit_code`: 1 if nothing was found, 2 for a usage or
configuration error, 3 for an error of the workspace or the index.
"""

from __future__ import annotations

import os.path

TYPE_CHECKING = False  # no command should wait for `typing`
if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class KbtuiError(Exception):
    """Base class of errors that a user can understand and act on.

    * `message` says what happened.
    * `where` names the file, key or argument that caused the error. It may be None.
    * `hint` says what to do. It may be None.
    * `brief` is a version of `message` for front ends that show only a single line.
    """

    exit_code = 3
    is_hint_for_user = True
    """Whether the hint is only for people, because an assistant that calls a tool cannot follow it."""

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        brief: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.brief = brief or message

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text


class NothingFound(KbtuiError):
    """The target of a reference does not exist, or nothing matches."""

    exit_code = 1
    is_hint_for_user = False


class OtherWorkspaceReferenceError(NothingFound):
    """A reference names a conversation of another workspace."""

    is_hint_for_user = True


class UsageError(KbtuiError):
    """A command line, a reference or a query is not valid."""

    exit_code = 2
    is_hint_for_user = False


class ConfigError(KbtuiError):
    """A configuration file has an error."""

    exit_code = 2


class WorkspaceError(KbtuiError):
    """The workspace, or a file that kbtui keeps for it, cannot be found, read or changed."""


class IndexUnavailable(KbtuiError):
    """The index cannot be opened, built or written."""


class CallCancelledError(KbtuiError):
    """The caller cancelled the call."""


class EngineUnavailableError(KbtuiError):
    """The engine cannot be reached or started; keyword search still works."""


class RequiredPackageUnavailableError(KbtuiError):
    """A package that kbtui depends on is missing or cannot be imported."""

    def __init__(self, error: ImportError) -> None:
        name = (error.name or "").partition(".")[0]
        named = f"the package {name}" if name else "a package"
        super().__init__(
            f"{named} cannot be imported: {' '.join(str(error).split())}",
            hint="reinstall kbtui; `kbtui doctor` lists the missing packages",
        )


class DamagedUserDataFileError(WorkspaceError):
    """A file with the user's data is damaged. `kbtui doctor` names the file and says what to do."""


def format_error_on_one_line(error: Exception, root: Path) -> str:
    """Format an error on one line: its place, message and hint.

    A path is shown relative to `root`, the root of the workspace.
    """
    if not isinstance(error, KbtuiError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, DamagedUserDataFileError):
        return f"{os.path.basename(error.where or '')} is damaged; `kbtui doctor` says what to do"  # noqa: PTH119
    where = ""
    # Leave out the workspace's own path: users know it, and the message needs the space.
    if error.where and error.where != str(root):
        where = os.path.normpath(error.where).removeprefix(f"{str(root).rstrip('/')}/") + ": "
    return where + error.brief + (f" ({error.hint})" if error.hint else "")


def suggest_similar_key(key: str, known: Collection[str]) -> str:
    """Return a hint for an unknown key: the most similar known key, else all known keys."""
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "known keys: " + ", ".join(known)
