"""The S3 server of moto, without a race of version 5 in which a reader gets an empty object.

moto computes the checksum of an object when it is first needed. To do this, it reads the same buffer
that answers use, without the lock of the buffer. A read of an object that was written in the same
millisecond can then return no bytes, with status 200.
"""

from typing import Any

from moto.s3.models import FakeKey
from moto.server import main

_make_key = FakeKey.__init__


def _make_key_with_checksum(key: FakeKey, *args: Any, **kwargs: Any) -> None:
    _make_key(key, *args, **kwargs)
    _ = key.etag


if __name__ == "__main__":
    FakeKey.__init__ = _make_key_with_checksum  # type: ignore[method-assign]
    main()
