"""Readers that pull a library again and again until their standard input ends: `python -m … URI DIRECTORY…`.

Each directory is the home of a reader, with a mirror of its own. For each pull, a reader notes the text
after the last " in " of all its files, which is the version that wrote the file. The outcome is a line of JSON.
"""

import json
import os
import select
import sys
from pathlib import Path
from typing import NamedTuple

from kbtui.errors import KbtuiError
from tests.publishing.team_workspaces import mirrored_files, pull, subscribe
from tests.support import Builder

PAUSE_SECONDS = 0.25


class Reader(NamedTuple):
    home: Path
    builder: Builder
    versions: list[str]
    problems: list[str]

    def read(self, uri: str) -> None:
        os.environ["XDG_DATA_HOME"] = str(self.home)
        try:
            pull(self.builder)
        except KbtuiError as error:
            self.problems.append(str(error))
            return
        texts = {text.rpartition(" in ")[2].strip() for text in mirrored_files(uri).values()}
        if len(texts) != 1:
            self.problems.append(f"a mixture: {sorted(texts)}")
        elif texts != set(self.versions[-1:]):
            self.versions.extend(texts)


def main() -> None:
    uri, *homes = sys.argv[1:]
    readers = [Reader(Path(home), Builder(Path(home, "workspace")), [], []) for home in homes]
    for reader in readers:
        subscribe(reader.builder, uri)
        reader.read(uri)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        for reader in readers:
            reader.read(uri)
    print(json.dumps([(reader.versions, reader.problems) for reader in readers]))


if __name__ == "__main__":
    main()
