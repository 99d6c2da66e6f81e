"""Reads the history of a file from Git: the commit of each line, earlier names, and the text in a commit.

A repository can be hostile: its own configuration can specify programs to run. kbtui only calls Git
commands that read commits, the index and the names of files. Commands that read or write files of
the working tree are never called, because they run filters. Hooks, pagers, external diffs, text
conversions, signatures and fetching are switched off.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.client_environment import make_client_environment_for_child_process
from kbtui.workspace.paths import find_git_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GIT_SECONDS = 20.0
"""The time limit in seconds for a `git` command."""
OUTPUT_BYTES_MAX = 64 << 20
"""The maximum size in bytes of the output of `git`. Longer output counts as a failure."""
_SAFE_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.quotePath=false",
    "log.showSignature=false",
    "log.follow=false",
    "blame.ignoreRevsFile=",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
)
_KEPT_VARIABLES = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM"}
_COMMIT_ID_LENGTHS = (40, 64)
RENAMED_SIMILARITY = 0.5
"""A new file counts as a renamed file if it is at least this similar to a deleted one, from 0 to 1.

Git uses the same value.
"""
RENAMES_MAX = 20
"""At most this many renames are followed from a file's earlier path to its current one."""
COMPARED_FILES_MAX, COMPARED_BYTES_MAX = 50, 1 << 20
"""To find a rename, a file is compared with at most `COMPARED_FILES_MAX` other files, each of at most `COMPARED_BYTES_MAX` bytes."""


class LineOrigin(NamedTuple):
    """The commit that added a line, and the place of the line in that commit.

    `time` is the time of the commit, in seconds since 1970. `line` is counted from 1.
    """

    commit: str
    path: str
    line: int
    time: int
    author: str
    summary: str


class EarlierFileName(NamedTuple):
    """An earlier path of a file, and the time of the commit that gave the file its next path."""

    path: str
    until: int


class FileCommit(NamedTuple):
    """A commit that changed a file, and the path of the file in that commit.

    `time` is when the commit was made, in seconds since 1970.
    """

    commit: str
    time: int
    author: str
    summary: str
    path: str


class GitHistory:
    """Reads the history of one repository. All paths are relative to its root.

    If `git` is missing, fails or takes too long, methods return an empty result. No error is
    raised, because the history only supplements the conversations.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def read_file(self, commit: str, path: str) -> str | None:
        """Return the text of a file in a commit; None if the commit has no such file."""
        output = self._run_git("cat-file", "blob", f"{commit}:{path}")
        return None if output is None else output.decode("utf-8", "replace")

    def find_commit_before(self, time: int) -> str | None:
        """Return the last commit of the current branch before `time`, which is in seconds since 1970."""
        output = self._run_git("rev-list", "-1", f"--before={time}", "HEAD")
        return (output or b"").decode().strip() or None

    def get_current_commit(self) -> str | None:
        """Return the hash of the current commit; None if there is no commit yet."""
        output = self._run_git("rev-parse", "--verify", "--quiet", "HEAD")
        return (output or b"").decode("ascii", "replace").strip() or None

    def list_line_origins(self, path: str) -> list[LineOrigin]:
        """Return the origin of each line of a file in the current commit."""
        output = self._run_git(
            "blame", "--porcelain", "--no-ext-diff", "--no-textconv", "--ignore-revs-file=",
            "HEAD", "--", path,
        )  # fmt: skip
        return _parse_blame(output.decode("utf-8", "replace"), path) if output else []

    def list_earlier_paths(self, path: str) -> list[EarlierFileName]:
        """Return the earlier paths of a file, newest first."""
        output = self._run_git(
            "log", "--follow", "-M", "--diff-filter=R", "--name-status", "--no-ext-diff",
            "--no-textconv", "--no-show-signature", "-z", "--format=%x01%ct", "--", path,
        )  # fmt: skip
        names = []
        until = 0
        words = iter((output or b"").decode("utf-8", "surrogateescape").split("\0"))
        for word in words:
            text = word.lstrip("\n")
            if text.startswith("\1"):
                until = int(text[1:])
            elif text.startswith("R"):
                names.append(EarlierFileName(next(words, ""), until))
                next(words, None)
        return [name for name in names if name.path]

    def find_committed_path(self, path: str) -> str:
        """Return the path that a file of the working tree has in the current commit.

        The result differs from `path` if the file was renamed after that commit, even without `git mv`.
        If the current commit does not contain the file, the result is `path`.
        """
        if self._run_git("cat-file", "-e", f"HEAD:{path}") is not None:
            return path
        deleted = []
        staged = self._list_git_output_words(
            "diff-index", "--cached", "-M", "--diff-filter=DR", "--name-status", "-z", "HEAD"
        )
        for word in staged:
            old = next(staged, "")
            if word == "D":
                deleted.append(old)
            elif next(staged, "") == path:
                return old
        deleted += self._list_git_output_words("ls-files", "--deleted", "-z")
        return self._find_most_similar_deleted_file(path, dict.fromkeys(deleted)) or path

    def _find_most_similar_deleted_file(self, path: str, deleted: Iterable[str]) -> str | None:
        """Return the deleted file whose committed text is most similar to the text of the file `path`.

        The result is None if no deleted file is similar enough; see `RENAMED_SIMILARITY`.
        """
        from difflib import SequenceMatcher

        from kbtui.file_reading_and_writing import read_regular_file

        # Files with the same name or suffix first: renaming seldom changes them.
        _, suffix = os.path.splitext(path)  # noqa: PTH122
        candidates = sorted(deleted, key=lambda one: not one.endswith(suffix))
        if not candidates:
            return None
        try:
            data = read_regular_file(os.path.join(self.root, path), COMPARED_BYTES_MAX)  # noqa: PTH118
        except OSError:
            return None
        lines = data.decode("utf-8", "replace").splitlines()
        best, most = None, RENAMED_SIMILARITY
        for old in candidates[:COMPARED_FILES_MAX]:
            before = self.read_file("HEAD", old)
            if before is None or len(before) > COMPARED_BYTES_MAX:
                continue
            matcher = SequenceMatcher(None, before.splitlines(), lines, autojunk=False)
            if matcher.quick_ratio() >= most and (ratio := matcher.ratio()) >= most:
                best, most = old, ratio
        return best

    def is_current_file_text_committed(self, path: str) -> bool:
        """Return whether the current commit contains the current text of a file."""
        return (
            self._run_git("cat-file", "-e", f"HEAD:{path}") is not None
            and self._run_git(
                "diff", "--quiet", "--no-ext-diff", "--no-textconv", "HEAD", "--", path
            )
            is not None
        )

    def find_path_after_renames(self, path: str) -> str | None:
        """Return the current path of a file that was renamed from `path`; None if there is no such file."""
        for _ in range(RENAMES_MAX):
            later = self._find_uncommitted_rename_target(
                path
            ) or self._find_committed_rename_target(path)
            if later is None:
                return None
            if os.path.lexists(os.path.join(self.root, later)):  # noqa: PTH118
                return later
            path = later
        return None

    def _find_committed_rename_target(self, path: str) -> str | None:
        """Return the new path if the last commit that removed `path` renamed the file; otherwise None."""
        output = self._run_git(
            "log", "-1", "--no-renames", "--diff-filter=D", "--format=%H", "--", path
        )
        commit = (output or b"").decode().strip()
        if not commit:
            return None
        words = self._list_git_output_words(
            "diff-tree", "-r", "-M", "--diff-filter=R", "--name-status", "--no-commit-id",
            "--no-ext-diff", "--no-textconv", "-z", commit,
        )  # fmt: skip
        renamed = {old: next(words, None) for _, old in zip(words, words, strict=False)}
        return renamed.get(path)

    def _find_uncommitted_rename_target(self, path: str) -> str | None:
        """Return the new path of a committed file if it was renamed without a commit; otherwise None."""
        if self._run_git("cat-file", "-e", f"HEAD:{path}") is None:
            return None
        added = [
            *self._list_git_output_words(
                "diff-index",
                "--cached",
                "--diff-filter=A",
                "--no-renames",
                "--name-only",
                "-z",
                "HEAD",
            ),
            *self._list_git_output_words("ls-files", "--others", "--exclude-standard", "-z"),
        ][:COMPARED_FILES_MAX]
        return next((one for one in added if self.find_committed_path(one) == path), None)

    def list_paths_in_any_commit(self, directory: str) -> list[str]:
        """Return all files that a directory contained in any commit, most recently changed first."""
        words = self._list_git_output_words(
            "log", "--no-renames", "--name-only", "--no-ext-diff", "--no-textconv",
            "--no-show-signature", "-z", "--format=", "--", directory or ".",
        )  # fmt: skip
        return list(dict.fromkeys(word.lstrip("\n") for word in words))

    def _list_git_output_words(self, *arguments: str) -> Iterator[str]:
        """Run a `git` command that writes NUL after each word; return an iterator over the words."""
        output = (self._run_git(*arguments) or b"").decode("utf-8", "surrogateescape")
        return iter([word for word in output.split("\0") if word.strip("\n")])

    def list_file_commits(self, path: str) -> list[FileCommit]:
        """Return the commits that changed a file under its current or an earlier path, newest first.

        Commits that deleted the file are left out.
        """
        output = self._run_git(
            "log", "--follow", "-M", "--diff-filter=d", "--name-status", "--no-ext-diff",
            "--no-textconv", "--no-show-signature", "-z", "--format=%x01%H%x00%ct%x00%an%x00%s",
            "--", path,
        )  # fmt: skip
        commits = []
        for record in (output or b"").decode("utf-8", "surrogateescape").split("\1")[1:]:
            commit, time, author, summary, *changes = record.split("\0")
            paths = [word for word in changes if word.strip("\n")][1:]
            if paths:
                commits.append(FileCommit(commit, int(time), author, summary, paths[-1]))
        return commits

    def find_history_problem(self) -> str | None:
        """Return the reason why the history cannot be read; None if it can be read, or has no commits yet."""
        try:
            done = self._run_git_and_return_completed_process(
                "log", "-1", "--no-show-signature", "--format=%H"
            )
        except subprocess.TimeoutExpired:
            return f"it took more than {GIT_SECONDS:.0f} seconds"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return getattr(error, "strerror", None) or str(error)
        said = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode == 0 or "does not have any commits yet" in said:
            return None
        first = said.partition("\n")[0].removeprefix("fatal: ")
        return first or f"it exited with code {done.returncode}"

    def _run_git(self, *arguments: str) -> bytes | None:
        """Return the output of a `git` command; None if it fails."""
        try:
            done = self._run_git_and_return_completed_process(*arguments)
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        is_usable = done.returncode == 0 and len(done.stdout) <= OUTPUT_BYTES_MAX
        return done.stdout if is_usable else None

    def _run_git_and_return_completed_process(
        self, *arguments: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a `git` command. Raises `OSError`, `ValueError` or `SubprocessError` if it cannot run."""
        settings = [word for setting in _SAFE_SETTINGS for word in ("-c", setting)]
        command = ["git", "--no-pager", "--literal-pathspecs", *settings, "-C", self.root]
        environment = {
            name: value
            for name, value in make_client_environment_for_child_process().items()
            if not name.startswith("GIT_") or name in _KEPT_VARIABLES
        }
        environment |= {
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
        }
        return subprocess.run(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=GIT_SECONDS,
            check=False,
        )


def find_git_history_problem(directory: str) -> str | None:
    """Return the reason why the history of the repository around a directory cannot be read.

    Returns None if the history can be read or has no commits yet, or if there is no repository.
    """
    history = find_git_history(directory)
    return None if history is None else history.find_history_problem()


def find_git_history(directory: str) -> GitHistory | None:
    """Return the history of the repository around a directory; None if there is no repository."""
    root = find_git_root(directory)
    return None if root is None else GitHistory(root)


def _parse_blame(output: str, path: str) -> list[LineOrigin]:
    """Parse the output of `git blame --porcelain`, which states the facts about each commit only once."""
    facts: dict[str, dict[str, str]] = {}
    origins: list[LineOrigin] = []
    commit, line = "", 0
    for row in output.split("\n"):
        if row.startswith("\t"):
            known = facts[commit]
            origins.append(
                LineOrigin(
                    commit,
                    known.get("filename", path),
                    line,
                    int(known.get("committer-time", "0")),
                    known.get("author", ""),
                    known.get("summary", ""),
                )
            )
            continue
        word, _, rest = row.partition(" ")
        if len(word) in _COMMIT_ID_LENGTHS and rest[:1].isdigit():
            commit, line = word, int(rest.split()[0])
            facts.setdefault(commit, {})
        elif commit:
            facts[commit][word] = rest
    return origins
