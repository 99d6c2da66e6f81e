"""Exports the user's data for all workspaces, and merges an export into the existing data.

`user_data_export_file.py` defines the format of the file. `user_data_records.py` and
`session_archive.py` define the rules of the merge.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from kbtui.conversations.session_archive import (
    get_kept_session_records_directory,
    list_kept_sessions,
    list_record_file_changes_of_archive_merge,
    lock_session_archive,
    move_staged_session_copy_into_archive,
    plan_session_archive_merge,
    read_times_of_removal_from_session_archive,
    remove_unused_session_copies,
)
from kbtui.conversations.turn_decision_marks import Mark
from kbtui.conversations.workspace_and_worktree_directories import (
    WorkspaceAndWorktreeDirectories,
    get_remembered_worktrees_path,
    identify_project,
    make_content_of_remembered_worktrees_file,
    read_remembered_worktrees,
)
from kbtui.errors import UsageError, WorkspaceError
from kbtui.file_reading_and_writing import FileWriteOrRemoval, write_and_remove_files_atomically
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_conversation_ref
from kbtui.userdata.bookmark_anchor_store import BookmarkAnchorStore
from kbtui.userdata.user_data_export_file import (
    ExportedUserData,
    ExportedWorkspaceData,
    ExportOmission,
    UserDataFileReader,
)
from kbtui.userdata.user_data_records import (
    REMOVABLE_KINDS,
    SourceApproval,
    list_user_data_record_files,
    merge_user_records,
    write_user_record,
)
from kbtui.userdata.user_data_sqlite_file import commit_all_transactions_or_none
from kbtui.userdata.user_data_store import Bookmark, UserData
from kbtui.userdata.workspace_registry import (
    is_workspace_registered,
    list_registered_workspaces,
    register_workspace,
)
from kbtui.workspace import paths
from kbtui.workspace.workspace import Workspace, open_workspace_at_root

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from kbtui.conversations.session_archive import ArchiveMergeChanges, KeptSession
    from kbtui.userdata.user_data_records import RecordKind, UserDataRecord, UserDataRecordFile
    from kbtui.userdata.user_data_sqlite_file import UserDataSqliteFile
    from kbtui.workspace import Settings

BACKUP_COUNT = 5
"""An import makes a backup before it changes files. This many backups are retained."""
_BACKUPS, _STAGING_PREFIX = "backups", ".import-"


def collect_user_data(
    settings: Settings, here: Workspace, *, is_only_here: bool, with_searches: bool
) -> tuple[ExportedUserData, list[ExportOmission]]:
    """Read the user's data for all workspaces, or only for `here` if `is_only_here` is true.

    The second returned value lists the omitted data: damaged kept sessions, and data directories of unknown
    workspaces. Raises `WorkspaceError` if data cannot be read.
    """
    found = {str(here.root): (here, identify_project(str(here.root)).key)}
    if not is_only_here:
        for one in list_registered_workspaces(settings, here):
            found[str(one.workspace.root)] = one.workspace, one.project_key
    kept, damaged = list_kept_sessions()
    left_out = [ExportOmission(str(one.path), one.reason) for one in damaged]
    data = ExportedUserData()
    if not is_only_here:
        data.kept, data.kept_removals = kept, read_times_of_removal_from_session_archive()
        left_out += _list_unregistered_data_directories(
            [one.user_data_directory for one, _ in found.values()]
        )
    for workspace, project_key in found.values():
        records = [
            record
            for file in list_user_data_record_files(workspace)
            if with_searches or "search" not in file.kinds
            for record in file.read_user_records()
        ]
        find_directory = WorkspaceAndWorktreeDirectories(workspace).find_directory_of
        own = [one for one in kept if find_directory(one.working_directory)]
        if is_only_here:
            data.kept = own
        if records or own:
            section = _make_exported_workspace(workspace, project_key)
            section.worktrees = read_remembered_worktrees(workspace)
            section.records = records
            with suppress(WorkspaceError):  # bookmarks can be used without anchors
                section.anchors = BookmarkAnchorStore(
                    workspace, UserData(workspace)
                ).read_bookmark_anchors()
            data.workspaces.append(section)
    return data, left_out


def _make_exported_workspace(workspace: Workspace, project_key: str) -> ExportedWorkspaceData:
    repository, _, directory = project_key.partition("\0")
    root = paths.convert_path_to_utf8(workspace.root)
    if repository.startswith("jp:"):
        return ExportedWorkspaceData(root, repository.removeprefix("jp:"))
    if repository.startswith("/"):
        # A path on this machine identifies nothing on another machine.
        return ExportedWorkspaceData(root, workspace.id)
    return ExportedWorkspaceData(root, workspace.id, repository, directory)


class _UnregisteredWorkspaceWithDataDirectory(Workspace):
    """A workspace whose root is unknown. Its attribute `root` contains its data directory."""

    @property
    def user_data_directory(self) -> Path:
        return self.root


def _list_unregistered_data_directories(known: Collection[Path]) -> Iterator[ExportOmission]:
    """Yield each data directory that contains user data but belongs to no registered workspace."""
    try:
        folders = sorted(Path(paths.get_kbtui_data_directory()).iterdir())
    except OSError:
        return
    for folder in folders:
        if folder in known or not re.fullmatch(r"[0-9a-f]{16}", folder.name):
            continue
        try:
            kinds = {
                one.kind
                for file in list_user_data_record_files(
                    _UnregisteredWorkspaceWithDataDirectory(folder)
                )
                for one in file.read_user_records()
                if one.value is not None
            }
        except WorkspaceError as error:
            yield ExportOmission(str(folder), error.message)
            continue
        if kinds.intersection(REMOVABLE_KINDS):
            reason = (
                "kbtui does not know the workspace of this data; open the workspace with kbtui once"
            )
            yield ExportOmission(str(folder), reason, is_damaged=False)


class ExportedWorkspaceMatch(NamedTuple):
    """A workspace in an exported file, and the workspace on this machine that receives its data.

    `workspace` is None if no workspace or several workspaces match. `candidates` contains the roots
    of the matching workspaces.
    """

    data: ExportedWorkspaceData
    workspace: Workspace | None
    candidates: Sequence[str] = ()


def match_exported_workspaces(
    sections: Iterable[ExportedWorkspaceData],
    settings: Settings,
    here: Workspace,
    chosen: Mapping[str, Path],
) -> list[ExportedWorkspaceMatch]:
    """For each workspace in an exported file, find the matching workspace on this machine.

    `chosen` maps roots in the file to directories on this machine. For any other root, a workspace
    in the file is compared with those on this machine:

    * If both workspaces have a JP workspace id, they match if the ids are equal.
    * Otherwise, if both have a Git repository with an address, they match if the addresses are
      equal.
    * Otherwise, they match if their paths are equal.

    If several workspaces match, the one at the same path is chosen, or else the only one with the
    same name, or else `here` if it matches. Raises `UsageError` if `chosen` contains a root that is
    not in the file, or a directory that does not exist.
    """
    sections = list(sections)
    known = {str(here.root): here} | {
        str(one.workspace.root): one.workspace
        for one in list_registered_workspaces(settings, here)
        if not one.is_missing
    }
    for one in sections:
        root = os.path.realpath(one.root)
        if root not in known and os.path.isdir(root) and paths.find_workspace_root(root) == root:  # noqa: PTH112
            known[root] = Workspace(Path(root))
    identities = {
        root: _make_exported_workspace(workspace, identify_project(root).key)
        for root, workspace in known.items()
    }
    roots = {one.root for one in sections}
    for old, new in chosen.items():
        if old not in roots:
            hint = "in the file: " + (", ".join(sorted(roots)) or "no workspace")
            raise UsageError("the file has no such workspace", where=f"--map {old}", hint=hint)
        if not new.is_dir():
            raise UsageError(
                "no such directory", where=f"--map {new}", hint="clone the repository first"
            )
    return [_match_workspace(one, known, identities, here, chosen) for one in sections]


def _match_workspace(
    section: ExportedWorkspaceData,
    known: Mapping[str, Workspace],
    identities: Mapping[str, ExportedWorkspaceData],
    here: Workspace,
    chosen: Mapping[str, Path],
) -> ExportedWorkspaceMatch:
    if section.root in chosen:
        root = paths.find_workspace_root(os.path.realpath(chosen[section.root]))
        return ExportedWorkspaceMatch(section, open_workspace_at_root(Path(root)))
    found = [root for root, one in identities.items() if _is_same_workspace(section, one)]
    name = os.path.basename(section.root)  # noqa: PTH119
    for choice in (
        [root for root in found if root == section.root],
        [root for root in found if os.path.basename(root) == name],  # noqa: PTH119
        [root for root in found if root == str(here.root)],
        found,
    ):
        if len(choice) == 1:
            return ExportedWorkspaceMatch(section, known[choice[0]])
    return ExportedWorkspaceMatch(section, None, sorted(found))


def _is_same_workspace(one: ExportedWorkspaceData, other: ExportedWorkspaceData) -> bool:
    if one.jp_id and other.jp_id:
        return one.jp_id == other.jp_id
    if one.repository and other.repository:
        return (one.repository, one.directory) == (other.repository, other.directory)
    return one.root == other.root


@dataclass
class ImportedRecordCounts:
    """How many records of one kind an import adds, changes, removes, leaves unchanged and skips.

    `skipped` counts the records that the import's options exclude.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    skipped: int = 0


@dataclass
class WorkspaceUserDataImportReport:
    """The changes that an import makes in one workspace.

    `references` contains the references of the added and changed bookmarks and marks.
    """

    root: str
    imported_from: list[str]
    counts: dict[RecordKind, ImportedRecordCounts] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)


@dataclass
class UserDataImportReport:
    """The changes that an import made or, in a dry run, would make."""

    workspaces: list[WorkspaceUserDataImportReport]
    missing: list[ExportedWorkspaceMatch]
    kept_sessions: ImportedRecordCounts
    backup: Path | None = None

    @property
    def has_changes(self) -> bool:
        """Whether the import changes anything."""
        counts = [self.kept_sessions, *(n for one in self.workspaces for n in one.counts.values())]
        return any(one.added or one.changed or one.removed for one in counts)


class UserDataImportOptions(NamedTuple):
    """The options of an import.

    With `is_dry_run`, nothing is written. Approvals of sources are added only with
    `with_approvals`. Searches are added only with `with_searches`.
    """

    with_approvals: bool = False
    with_searches: bool = False
    is_dry_run: bool = False


def import_user_data(
    source: IO[bytes],
    where: str,
    settings: Settings,
    here: Workspace,
    chosen: Mapping[str, Path],
    options: UserDataImportOptions,
) -> UserDataImportReport:
    """Merge an exported file into the user's data. If an error occurs, nothing is changed.

    `where` identifies the file in errors. For `chosen`, see `match_exported_workspaces`. Files are
    backed up before they are changed. Raises `UsageError` if the exported file cannot be used, and
    `WorkspaceError` if the data on this machine cannot be changed.
    """
    home = Path(paths.get_kbtui_data_directory())
    try:
        paths.make_private_directory(home)
        _remove_staging_directories_of_killed_imports(home)
        with TemporaryDirectory(prefix=_STAGING_PREFIX, dir=home) as name:
            staging = Path(name)
            data = UserDataFileReader(source, where, staging).read()
            matches = match_exported_workspaces(data.workspaces, settings, here, chosen)
            report = _UserDataImport(data, matches, options, staging).run()
            if not options.is_dry_run:
                for match in matches:
                    if match.workspace and not is_workspace_registered(match.workspace):
                        register_workspace(match.workspace, settings)
            return report
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"{reason}; nothing was imported"
        raise WorkspaceError(message, where=str(error.filename or home)) from error


def _remove_staging_directories_of_killed_imports(home: Path) -> None:
    """Remove the temporary directories of imports that were killed more than a day ago."""
    now = datetime.now(UTC).timestamp()
    for folder in home.glob(f"{_STAGING_PREFIX}*"):
        if now - folder.stat().st_mtime > 24 * 3600:
            shutil.rmtree(folder, ignore_errors=True)


class _UserDataImport:
    """One import. `staging` is the directory with the imported copies of the kept sessions."""

    def __init__(
        self,
        data: ExportedUserData,
        matches: Sequence[ExportedWorkspaceMatch],
        options: UserDataImportOptions,
        staging: Path,
    ) -> None:
        self._data, self._options, self._staging = data, options, staging
        self._matches: dict[str, list[ExportedWorkspaceData]] = {}
        self._workspaces: dict[str, Workspace] = {}
        for one in matches:
            if one.workspace is not None:
                root = str(one.workspace.root)
                self._workspaces[root] = one.workspace
                self._matches.setdefault(root, []).append(one.data)
        imports = [
            WorkspaceUserDataImportReport(root, [one.root for one in sections])
            for root, sections in self._matches.items()
        ]
        missing = [one for one in matches if one.workspace is None]
        self._report = UserDataImportReport(imports, missing, ImportedRecordCounts())
        self._stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self._backup = Path(paths.get_kbtui_data_directory(), _BACKUPS, self._stamp)
        self._has_backup = False

    def run(self) -> UserDataImportReport:
        if self._options.is_dry_run:
            self._count_changes_of_kept_sessions(self._plan_archive_merge())
            for _, file, added, counted in self._iterate_local_record_files_with_imported_records():
                self._merge_records(file.read_user_records(), added, counted)
            return self._report
        try:
            self._merge_data_into_files()
        except BaseException as error:
            shutil.rmtree(self._backup, ignore_errors=True)
            if isinstance(error, WorkspaceError):
                message = f"{error.message}; nothing was imported"
                raise WorkspaceError(message, where=error.where, hint=error.hint) from error
            raise
        if self._has_backup:
            self._report.backup = self._backup
            for folder in sorted(self._backup.parent.iterdir())[:-BACKUP_COUNT]:
                shutil.rmtree(folder, ignore_errors=True)
        return self._report

    def _merge_data_into_files(self) -> None:
        """Merge all imported data into the files. If an error occurs, restore the files."""
        with ExitStack() as stack:
            stack.enter_context(lock_session_archive())
            transactions: list[tuple[UserDataSqliteFile, sqlite3.Connection, Path]] = []
            for number, (workspace, file, added, counted) in enumerate(
                self._iterate_local_record_files_with_imported_records()
            ):
                is_new = not file.file.path.exists()
                with file.file.convert_sqlite_errors():
                    paths.make_private_directory(file.file.path.parent)
                    db = stack.enter_context(closing(file.file.connect_to_database()))
                    db.execute("BEGIN IMMEDIATE")
                    changed = self._merge_records(
                        file.read_user_records_from_connection(db), added, counted
                    )
                    for record in changed:
                        write_user_record(db, record)
                if changed:
                    copy = self._staging / f"database-{number}"
                    # The query log is not backed up, because the user can erase it, and its rows expire.
                    if "search" not in file.kinds and not is_new:
                        copy = self._make_backup_path(
                            f"{workspace.storage_key}/{file.file.path.name}"
                        )
                    file.file.copy_database_to(copy)
                    transactions.append((file.file, db, copy))
            changes = [*self._install_imported_copies(), *self._merge_remembered_worktrees()]
            self._back_up_files(changes)
            write_and_remove_files_atomically(changes)
            try:
                commit_all_transactions_or_none(transactions)
            except BaseException:
                write_and_remove_files_atomically(
                    [FileWriteOrRemoval(one.path, one.new, one.old) for one in changes]
                )
                raise
            remove_unused_session_copies()
        self._add_bookmark_anchors()

    def _iterate_local_record_files_with_imported_records(
        self,
    ) -> Iterator[
        tuple[Workspace, UserDataRecordFile, list[UserDataRecord], WorkspaceUserDataImportReport]
    ]:
        """Yield each local file that will receive imported records.

        Each file comes with its workspace, the records to import, and the
        `WorkspaceUserDataImportReport` that counts them.
        """
        for one in self._report.workspaces:
            workspace = self._workspaces[one.root]
            records = [record for data in self._matches[one.root] for record in data.records]
            if not self._options.with_searches:
                records = [record for record in records if record.kind != "search"]
            for file in list_user_data_record_files(workspace):
                if added := [record for record in records if record.kind in file.kinds]:
                    yield workspace, file, added, one

    def _merge_records(
        self,
        known: list[UserDataRecord],
        added: list[UserDataRecord],
        counted: WorkspaceUserDataImportReport,
    ) -> list[UserDataRecord]:
        """Merge the records `added` into the records `known`, and return the records to write.

        The changes are counted in `counted`.
        """
        changed, replaced = merge_user_records(known, added)
        earlier = {one.key: one for one in replaced}
        allowed = []
        for kind in {one.kind for one in added}:
            counted.counts[kind] = ImportedRecordCounts(
                unchanged=len(
                    {one.key for one in added if one.kind == kind and one.value is not None}
                )
            )
        for record in changed:
            counts = counted.counts[record.kind]
            is_known = record.key in earlier and earlier[record.key].value is not None
            if record.value is None:
                counts.removed += is_known
                allowed.append(record)
                continue
            counts.unchanged -= 1
            is_approval = isinstance(record.value, SourceApproval)
            if is_approval and not self._options.with_approvals and not is_known:
                counts.skipped += 1
                continue
            counts.changed += is_known
            counts.added += not is_known
            allowed.append(record)
            if isinstance(record.value, Bookmark | Mark):
                counted.references.append(get_reference_of_record(record.value))
        return allowed

    def _plan_archive_merge(self) -> ArchiveMergeChanges:
        kept = list_kept_sessions()[0]
        added = [self._convert_session_directory_to_local(one) for one in self._data.kept]
        return plan_session_archive_merge(
            kept, read_times_of_removal_from_session_archive(), added, self._data.kept_removals
        )

    def _convert_session_directory_to_local(self, session: KeptSession) -> KeptSession:
        """Return a session with its directory converted to a path on this machine.

        If the directory begins with the path of an exported workspace, this prefix is replaced by the
        path of the matching local workspace.
        """
        directory = paths.convert_utf8_path_to_process_encoding(session.working_directory)
        for root, sections in sorted(self._matches.items()):
            for one in sections:
                rest = directory.removeprefix(one.root)
                if directory.startswith(one.root) and (not rest or rest.startswith("/")):
                    return replace(session, working_directory=root + rest)
        return session

    def _count_changes_of_kept_sessions(self, merge: ArchiveMergeChanges) -> None:
        earlier = {one.id for one in merge.replaced}
        counts, written = self._report.kept_sessions, {one.id for one in merge.written}
        counts.added = len(written - earlier)
        counts.changed = len(written & earlier)
        counts.removed = len(merge.removed)
        counts.unchanged = len({one.id for one in self._data.kept} - written)

    def _install_imported_copies(self) -> list[FileWriteOrRemoval]:
        """Install the imported copies of sessions in the archive.

        Returns the other files of the archive that must be written or removed.
        """
        merge = self._plan_archive_merge()
        self._count_changes_of_kept_sessions(merge)
        for one in merge.replaced:
            with suppress(FileNotFoundError):
                target = self._make_backup_path(f"kept/files/{one.file_name}")
                if not target.exists():
                    shutil.copy2(one.path, target)
        written = []
        for one in merge.written:
            staged = self._staging / one.file_name
            written.append(
                move_staged_session_copy_into_archive(one, staged) if staged.exists() else one
            )
        if written:
            paths.make_private_directory(get_kept_session_records_directory())
        return list_record_file_changes_of_archive_merge(merge._replace(written=written))

    def _merge_remembered_worktrees(self) -> list[FileWriteOrRemoval]:
        changes = []
        for root, sections in self._matches.items():
            workspace = self._workspaces[root]
            known = read_remembered_worktrees(workspace)
            found = [pair for one in sections for pair in one.worktrees]
            added = [pair for pair in found if pair not in known and pair[1] != root]
            data = make_content_of_remembered_worktrees_file(workspace, added) if added else None
            if data is not None:
                paths.make_private_directory(workspace.user_data_directory)
                path = get_remembered_worktrees_path(workspace)
                old = path.read_bytes() if path.exists() else None
                changes.append(FileWriteOrRemoval(path, old, data))
        return changes

    def _add_bookmark_anchors(self) -> None:
        """Store the anchors of the bookmarks that were added or changed."""
        for one in self._report.workspaces:
            added = set(one.references)
            anchors = {
                name: anchor
                for data in self._matches[one.root]
                for name, anchor in data.anchors.items()
                if name in added
            }
            if anchors:
                workspace = self._workspaces[one.root]
                with suppress(WorkspaceError):  # bookmarks can be used without anchors
                    BookmarkAnchorStore(
                        workspace, UserData(workspace)
                    ).add_imported_bookmark_anchors(anchors)

    def _make_backup_path(self, name: str) -> Path:
        path = self._backup / name
        paths.make_private_directory(path.parent)
        self._has_backup = True
        return path

    def _back_up_files(self, changes: Iterable[FileWriteOrRemoval]) -> None:
        home = Path(paths.get_kbtui_data_directory())
        for path, old, _ in changes:
            if old is not None:
                self._make_backup_path(str(path.relative_to(home))).write_bytes(old)


def get_reference_of_record(value: Bookmark | Mark) -> str:
    """Return the reference of a bookmark or mark."""
    if isinstance(value, Bookmark):
        return value.ref
    return str(make_conversation_ref(value.conversation, value.turn, value.call))
