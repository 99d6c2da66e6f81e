"""Whether a directory lies on a file system that other machines share."""

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2",
    "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs",
})  # fmt: skip


def network_file_system(path: Path) -> str | None:
    """The kind of the network file system that `path` lies on; None on a local one.

    None, too, where the system does not tell (only Linux does).
    """
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    place = f"{os.path.realpath(path)}/"
    longest, kind = -1, ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        if not rest:
            continue
        # Spaces and the like are octal escapes there.
        mounted = os.fsdecode(
            fields.split(" ")[4].encode().decode("unicode_escape").encode("latin-1")
        )
        if place.startswith(mounted.rstrip("/") + "/") and len(mounted) >= longest:
            longest, kind = len(mounted), rest.split(" ")[0]
    return kind if kind in _NETWORK else None
