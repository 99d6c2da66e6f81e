"""Finds the workspace and the directories that kbtui and JP use; paths are strings.

`kbtui search` imports this module and must start fast. Therefore the module imports `pathlib` and
`kbtui.errors`, which are slow to import, only where it needs them.
"""

from __future__ import annotations

import os
import stat
import sys

try:
    # Avoid `hashlib`, which loads OpenSSL; the standard module `random` avoids it in the same way.
    if sys.version_info >= (3, 12):
        from _sha2 import sha256 as sha256
    else:
        from _sha256 import sha256 as sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from hashlib import sha256 as sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from asyncio.trsock import TransportSocket
    from collections.abc import Callable, Mapping
    from datetime import tzinfo
    from pathlib import Path

MAX_SOCKET_BYTES = 103
"""The maximum length in bytes of a Unix socket's path.

With the final NUL, macOS allows 104 bytes, and Linux 108.
"""


AGENT_DIRECTORY_VARIABLES = (
    "AIDER_CHAT_HISTORY_FILE",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "HOME",
    "LLM_USER_PATH",
    "OPENCODE_DB",
)
"""The environment variables that name the directories and files of other agents' conversations."""

CLIENT_VARIABLES = (
    *AGENT_DIRECTORY_VARIABLES,
    "JP_GLOBAL_CONFIG_DIR",
    "JP_USER_DATA_DIR",
    "KBTUI_ENGINE_IDLE",
    "KBTUI_MODEL",
    "TZ",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
)
"""The environment variables that `read_client_environment_variable` reads. What kbtui reads and answers depends on them."""
STORE_VARIABLE_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")
"""The prefixes of environment variables that contain credentials for the stores of published libraries.

The engine needs these variables to pull a library, and does not pass them on to programs of
sources.
"""
PUBLISH_KEY_VARIABLE = "KBTUI_PUBLISH_KEY"
"""The environment variable with the private key for publishing. The engine does not receive this variable."""


def _get_process_environment() -> Mapping[str, str]:
    return os.environ


_get_variables = _get_process_environment


def set_environment_variable_source(get_variables: Callable[[], Mapping[str, str]]) -> None:
    """Make `read_client_environment_variable` read the variables that `get_variables` returns.

    Only `kbtui.workspace.client_environment` calls this. Short commands, which do not import that
    module, read the environment of their process.
    """
    global _get_variables
    _get_variables = get_variables


def read_client_environment_variable(name: str, default: str = "") -> str:
    """Return the value of an environment variable in the current client environment.

    The client environment is that of this process, unless the caller runs within
    `ClientEnvironment.apply_to_thread_or_task`.
    """
    return _get_variables().get(name, default)


def get_user_home() -> str:
    """Return the home directory. An empty or relative HOME is ignored, unlike in `os.path.expanduser`."""
    value = read_client_environment_variable("HOME")
    if value.startswith("/"):
        return value.rstrip("/")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir.rstrip("/")
    except KeyError:
        return ""


def expand_user(path: str) -> str:
    """Return a path with `~` at its beginning replaced by the home directory."""
    if path == "~" or path.startswith("~/"):
        return f"{get_user_home()}{path[1:]}" or "/"
    return os.path.expanduser(path)  # noqa: PTH111  (the home of another user: `~name`)


def get_xdg_directory(variable: str, default: str) -> str:
    """Return the XDG base directory in `variable`, or else `default` in the home directory.

    If the value of the variable is relative, it is ignored.
    """
    value = read_client_environment_variable(variable)
    return value if value.startswith("/") else f"{get_user_home()}/{default}"


def get_kbtui_cache_directory() -> str:
    """Return the directory of data that kbtui can rebuild, such as the indexes."""
    return get_xdg_directory("XDG_CACHE_HOME", ".cache") + "/kbtui"


def get_kbtui_config_directory() -> str:
    """Return the directory of `config.toml`."""
    return get_xdg_directory("XDG_CONFIG_HOME", ".config") + "/kbtui"


def get_kbtui_data_directory() -> str:
    """Return the directory of the query log and the bookmarks, which kbtui cannot rebuild."""
    return get_xdg_directory("XDG_DATA_HOME", ".local/share") + "/kbtui"


def get_kbtui_state_directory() -> str:
    """Return the directory of the logs."""
    return get_xdg_directory("XDG_STATE_HOME", ".local/state") + "/kbtui"


def get_jp_data_home() -> str:
    """Return JP's user data directory."""
    return read_client_environment_variable("JP_USER_DATA_DIR") or _get_jp_xdg_directory(
        "XDG_DATA_HOME", ".local/share"
    )


def get_jp_config_home() -> str:
    """Return JP's user-global configuration directory."""
    return read_client_environment_variable("JP_GLOBAL_CONFIG_DIR") or _get_jp_xdg_directory(
        "XDG_CONFIG_HOME", ".config"
    )


def _get_jp_xdg_directory(variable: str, default: str) -> str:
    if os.uname().sysname == "Darwin":
        default = "Library/Application Support"
    return get_xdg_directory(variable, default) + "/jp"


def find_runtime_directory() -> str:
    """Return the directory of the engine's socket, in XDG_RUNTIME_DIR, TMPDIR or `/tmp`.

    The first of these three that is usable is chosen. XDG_RUNTIME_DIR or TMPDIR is usable if the
    directory exists and the path of a socket in it is short enough.
    """
    runtime, temporary = os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("TMPDIR", "")
    for base, folder in (
        (runtime, f"{runtime}/kbtui"),
        (temporary, f"{temporary}/kbtui-{os.getuid()}"),
    ):
        size = len(os.fsencode(f"{folder}/{16 * 'k'}.sock"))
        if base.startswith("/") and size <= MAX_SOCKET_BYTES and os.path.isdir(base):  # noqa: PTH112
            return folder
    return f"/tmp/kbtui-{os.getuid()}"


def make_engine_socket_path() -> str:
    """Return the path of the engine's socket. There is one for each combination of user and cache directory."""
    return f"{find_runtime_directory()}/{_hash_paths('engine', get_kbtui_cache_directory())}.sock"


def is_peer_same_user(connection: socket | TransportSocket) -> bool:
    """Return whether the process at the other end of a connection belongs to this user.

    Only Linux reports the owner of the process. On other systems, the result is always True.
    """
    if sys.platform != "linux":
        return True
    from _socket import SO_PEERCRED, SOL_SOCKET

    # struct ucred: process, user and group ids of four bytes each.
    credentials = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()


def make_workspace_key(root: str) -> str:
    """Return 16 hex digits that identify the workspace at `root` in kbtui's own directories.

    The digits are a hash of the root and JP's directories. The id in `.jp/.id` is not used, because
    all clones of a repository have the same id.
    """
    return _hash_paths(root, get_jp_data_home(), get_jp_config_home())


def _hash_paths(first: str, *paths: str) -> str:
    text = "\0".join((first, *map(_remove_redundant_slashes_and_dots, paths)))
    return str(sha256(os.fsencode(text)).hexdigest()[:16])


def convert_path_to_utf8(path: str | os.PathLike[str]) -> str:
    """Return a path as text in UTF-8, which Rust code and processes with another locale need."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def convert_utf8_path_to_process_encoding(path: str) -> str:
    """Convert a path made by `convert_path_to_utf8` back to the encoding of this process."""
    return os.fsdecode(path.encode("utf-8", "surrogateescape"))


def _remove_redundant_slashes_and_dots(path: str) -> str:
    """Remove double slashes, trailing slashes and `.` components from a path, as `pathlib` does."""
    steps = [step for step in path.split("/") if step not in {"", "."}]
    return ("/" if path.startswith("/") else "") + "/".join(steps)


JP_DIRECTORY = ".jp"
"""The name of the directory that every JP workspace contains. It also contains kbtui's configuration."""
KBTUI_DIRECTORY = ".kbtui"
"""The name of the directory of kbtui's configuration in a workspace without `.jp`."""
TOPICS_FILE, SOURCES_FILE, LIBRARY_FILE = "kb.toml", "kb-sources.toml", "kb-library.toml"
"""The names of the files that declare topics, sources, and published or subscribed libraries."""


def find_workspace_root(start: str) -> str:
    """Return the root of the workspace around the real path `start`, which exists.

    The root is the first of these directories that exists:

    * the nearest directory at or above `start` that contains `.jp` (a directory or a pointer file) or
      `.kbtui`
    * the root of the Git repository or worktree around `start`
    * `start` itself; for a file, the directory that contains it

    If `start` is in a repository under the home directory, a `.kbtui` in the home directory is
    ignored, unless there is a `.jp` next to it.
    """
    if not os.path.isdir(start):  # noqa: PTH112
        start = os.path.dirname(start)  # noqa: PTH120
    git_root = find_git_root(start)
    root = _find_nearest_directory_upwards_that_satisfies(start, contains_jp_or_kbtui_directory)
    if root is None or (
        git_root and len(git_root) > len(root) and is_user_home_without_jp_directory(root)
    ):
        return git_root or start
    return root


def find_git_root(directory: str) -> str | None:
    """Return the root of the Git repository or worktree that contains a directory, or None."""
    return _find_nearest_directory_upwards_that_satisfies(directory, is_git_root)


def is_git_root(directory: str) -> bool:
    """Return whether a directory is the root of a Git repository or worktree."""
    return os.path.exists(os.path.join(directory, ".git"))  # noqa: PTH110, PTH118


def is_user_home_without_jp_directory(directory: str) -> bool:
    """Return whether `directory`, a real path, is the user's home and contains no `.jp`."""
    jp = get_jp_directory_of_workspace(directory)
    return directory == os.path.realpath(get_user_home()) and not os.path.isdir(jp)  # noqa: PTH112


def _find_nearest_directory_upwards_that_satisfies(
    directory: str, condition: Callable[[str], bool]
) -> str | None:
    below = ""
    while directory != below:
        if condition(directory):
            return directory
        directory, below = os.path.dirname(directory), directory  # noqa: PTH120
    return None


def contains_jp_or_kbtui_directory(folder: str) -> bool:
    """Return whether a directory contains `.jp` or `.kbtui`, which mark the root of a workspace."""
    has_directory = os.path.isdir(choose_jp_or_kbtui_config_directory(folder))  # noqa: PTH112
    return has_directory or read_jp_pointer_file(folder) is not None


_MAX_POINTER_BYTES = 4096


def read_jp_pointer_file(root: str) -> str | None:
    """Return the path in a pointer file `.jp`; None if there is no such file, or if it has no valid path.

    Some versions of JP accept a one-line file `.jp` in place of the directory `.jp`. A relative
    path starts from `root`, and must name a directory, so that other files are not mistaken for
    pointers. An absolute path need not exist.
    """
    file = os.path.join(root, JP_DIRECTORY)  # noqa: PTH118
    if not os.path.isfile(file):  # noqa: PTH113
        return None
    try:
        with open(file, "rb") as opened:  # noqa: PTH123
            data = opened.read(_MAX_POINTER_BYTES + 1)
    except OSError:
        return None
    lines = data.strip().split(b"\n")
    if len(data) > _MAX_POINTER_BYTES or len(lines) > 1 or not lines[0] or b"\0" in data:
        return None
    line = expand_user(os.fsdecode(lines[0].strip()))
    path = os.path.normpath(os.path.join(root, line))  # noqa: PTH118
    return path if line.startswith("/") or os.path.isdir(path) else None  # noqa: PTH112


def get_jp_directory_of_workspace(root: str) -> str:
    """Return a workspace's JP directory: `.jp`, or the directory that a pointer file `.jp` points to.

    The directory may not exist.
    """
    return read_jp_pointer_file(root) or os.path.join(root, JP_DIRECTORY)  # noqa: PTH118


def choose_jp_or_kbtui_config_directory(root: str) -> str:
    """Return kbtui's configuration directory: JP's if it exists, else `.kbtui` under `root`."""
    jp = get_jp_directory_of_workspace(root)
    return jp if os.path.isdir(jp) else os.path.join(root, KBTUI_DIRECTORY)  # noqa: PTH112, PTH118


def is_config_directory_readable(root: str) -> bool:
    """Return whether the directory of kbtui's configuration can be read. True if there is none."""
    config = choose_jp_or_kbtui_config_directory(root)
    return not os.path.isdir(config) or os.access(config, os.R_OK | os.X_OK)  # noqa: PTH112


def get_time_zone_variable() -> str:
    """Return the value of the environment variable TZ, or `local` if TZ is not set."""
    return read_client_environment_variable("TZ", "local")


def is_time_zone_of_process(name: str) -> bool:
    """Return whether a value of `get_time_zone_variable` means the local time of this process."""
    return name == os.environ.get("TZ", "local")


def find_client_time_zone() -> tzinfo | None:
    """Return the time zone that TZ specifies in the current client environment; None for the local time.

    The result is None in three cases: TZ is not set, TZ does not name a time zone, or TZ names the time
    zone of this process. `datetime` interprets None as the local time of this process.
    """
    name = get_time_zone_variable()
    if name == "local" or is_time_zone_of_process(name):
        return None
    from kbtui.dates import parse_time_zone

    try:
        return parse_time_zone(name)
    except ValueError:
        return None


def make_fingerprint_of_settings_affecting_search() -> str:
    """Return a fingerprint of the settings and variables that affect answers. When one of them changes, so does the fingerprint."""
    # The fingerprint covers everything that affects an answer, except the query and kbtui's version.
    settings = get_kbtui_config_directory() + "/config.toml"
    try:
        status = os.stat(settings)  # noqa: PTH116
        state = f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
    except OSError:
        state = "none"
    zone, model = (
        read_client_environment_variable("TZ"),
        read_client_environment_variable("KBTUI_MODEL"),
    )
    agents = read_agent_directory_variables().values()
    parts = (get_kbtui_cache_directory(), get_kbtui_data_directory(), settings, state, zone, model)
    return "\n".join([*map(convert_path_to_utf8, parts), *agents])


def collect_client_variables_for_engine_request() -> dict[str, str]:
    """Return the variables in `CLIENT_VARIABLES` that are set, with their values, for a message to the engine."""
    variables = _get_variables()
    return {
        name: convert_path_to_utf8(variables[name])
        for name in CLIENT_VARIABLES
        if name in variables
    }


def read_agent_directory_variables() -> dict[str, str]:
    """Return the values of the variables in `AGENT_DIRECTORY_VARIABLES`; "" for a variable that is not set."""
    return {
        name: convert_path_to_utf8(read_client_environment_variable(name))
        for name in AGENT_DIRECTORY_VARIABLES
    }


def make_private_directory(folder: Path) -> None:
    """Make a directory and its missing parents, all with mode 0700."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private_directory(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def format_path_relative_to_root(root: Path, path: Path) -> str:
    """Return a path for messages: relative to the workspace's `root` if the path is inside it."""
    normal = os.path.normpath(path)
    inside = str(root).rstrip("/") + "/"
    return normal[len(inside) :] if normal.startswith(inside) else normal


def make_runtime_directory() -> Path:
    """Make the private directory for sockets. Raises `WorkspaceError` if that fails."""
    from pathlib import Path

    from kbtui.errors import WorkspaceError

    path = Path(find_runtime_directory())
    hint = "set XDG_RUNTIME_DIR to a directory of your own"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        message = f"cannot create the runtime directory: {error.strerror}"
        raise WorkspaceError(message, where=str(path), hint=hint) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise WorkspaceError("the runtime directory is not yours", where=str(path), hint=hint)
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path


def find_jp_user_directory(root: Path, workspace_id: str | None) -> Path | None:
    """Return JP's user-local directory for a workspace, or None if there is none.

    The directory's name is `NAME-ID` or `ID`. If several directories have the workspace's id, the
    one whose NAME is the name of the root is chosen. If no directory has this name, the one that
    was modified last is chosen.
    """
    if not workspace_id:
        return None
    from pathlib import Path

    try:
        found = [
            entry
            for entry in Path(get_jp_data_home(), "workspace").iterdir()
            if entry.name == workspace_id or entry.name.endswith(f"-{workspace_id}")
            if entry.is_dir()
        ]
    except OSError:
        return None

    def rank_directory(entry: Path) -> tuple[bool, int, str]:
        try:
            modified = entry.stat().st_mtime_ns
        except OSError:
            modified = 0
        return (entry.name == f"{root.name}-{workspace_id}", modified, entry.name)

    return max(found, key=rank_directory, default=None)
