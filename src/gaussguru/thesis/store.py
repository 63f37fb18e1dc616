"""Results that outlive the process: a file of lines, one for each finished piece of work.

A piece is finished when its line is on the disk: a killed process loses the pieces in work only.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from gaussguru._utils.types import Record

try:
    import fcntl
except ImportError:  # Windows: without a lock between processes
    fcntl = None  # type: ignore[assignment]  # a module, or None

Key = Record


class StoreError(ValueError):
    """A file of results cannot be used."""


class Store:
    """Results by key, in a file.

    Parameters
    ----------
    path : path
        The file; it is made if it is not there. A last line without an end, of a process that was killed while it
        wrote, is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._results: dict[str, Record] = {}
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                message = f"another process is writing to {self.path}; wait for it, or give another directory"
                raise StoreError(message) from error

    def _read(self) -> None:
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                self._results[_name(entry["key"])] = entry["result"]
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"line {number} of {self.path} is not a result ({error}); remove the line, and it is computed again"
                ) from error
            end += len(line)
        self._file.truncate(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def __contains__(self, key: Key) -> bool:
        return _name(key) in self._results

    def __getitem__(self, key: Key) -> Record:
        return self._results[_name(key)]

    def __len__(self) -> int:
        return len(self._results)

    def add(self, key: Key, result: Record, **remarks: object) -> None:
        """Write a result to the disk."""
        line = json.dumps({"key": key, "result": result, **remarks}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._results[_name(key)] = json.loads(line)["result"]

    def matching(self, keys: Iterable[Key]) -> Iterator[tuple[Key, Record]]:
        """Yield each key that has a result, with the result."""
        return ((key, self[key]) for key in keys if key in self)


def make_key(experiment: str, **parts: object) -> Key:
    """Return the key of a piece of work.

    The protocol is raised when the same piece would give another result: older results are then computed again.
    """
    return {"experiment": experiment, **parts, "protocol": 2}


def _name(key: Key) -> str:
    return json.dumps(key, sort_keys=True)
