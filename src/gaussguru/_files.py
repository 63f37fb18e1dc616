"""Files that are there whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write that takes the place of ``path`` when all is well; until then that stays as it is.

    Its name until then is of no other file, in the same directory, or it could not be renamed. Of several that write
    to one path at the same time, the last to end wins.

    Parameters
    ----------
    path : path
        If it is a link, what it leads to is replaced. The new file has the permissions of the old one.
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
