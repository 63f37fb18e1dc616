"""Files that are written completely or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file for writing, which replaces ``path`` if the context ends without an exception.

    It has a unique name in the same directory, so that it can be renamed. If several processes write to one path at the
    same time, the last to finish wins.

    Parameters
    ----------
    path : path
        The target of a link is replaced. The new file has the permissions of the old one.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".gaussguru-{os.urandom(8).hex()}.part")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
