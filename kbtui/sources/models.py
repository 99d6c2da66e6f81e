"""What the sources room hands out: a source as configured, and how far a run is."""

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["url_crawl", "file_upload", "mcp"]


@dataclass(frozen=True)
class Source:
    """One `[source.NAME]` of `.jp/kb-sources.toml`.

    Its documents lie in the directory `name` of the topic's directory. `url`,
    `depth` (how many links away from it), `prefixes` (what addresses must begin
    with) and `allow_hosts` (hosts that may lie in a private network) belong to
    `url_crawl`; `file` (a file or directory, relative to the workspace or
    absolute) to `file_upload`; `server` (a command line), `pattern` (a glob over
    resource addresses) and `env` (names of variables that the server gets) to `mcp`.
    """

    name: str
    kind: Kind
    topic: str
    url: str | None = None
    depth: int = 1
    prefixes: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    file: str | None = None
    server: tuple[str, ...] = ()
    pattern: str | None = None
    env: tuple[str, ...] = ()
    cron: str | None = None
    block: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def what(self) -> str:
        """What it fetches, in one line."""
        import shlex

        if self.kind == "mcp":
            command = shlex.join(self.server)
            return f"{command} ({self.pattern})" if self.pattern else command
        return self.url or self.file or ""


@dataclass(frozen=True)
class SourceProgress:
    """How far a run is; `total` counts the documents known so far, `now` is the one at hand."""

    source: str
    done: int
    total: int
    now: str
