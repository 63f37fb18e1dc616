"""Bytes of files and pipes: looked at before they are read, hashed, unpacked within limits, decoded."""

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

# So many bytes are looked at to recognise an encoding.
LOOK = 1 << 16


class TableError(ValueError):
    """What is wrong with a file, a column or a value, and what is expected, in one line."""


@dataclass(frozen=True)
class FileLimits:
    """What a file may ask for before it is refused; each is an option of the command.

    Parameters
    ----------
    columns : int or None, default=None
        The most columns of a table, and the largest index of libsvm; None is 60,000, and 2,000,000 for libsvm.
    line : int, default=16,000,000
        Bytes of a line, or of a row of CSV with line ends inside quotes, that can be read. One of more than twice as
        many is refused.
    unpacked : int, default=100,000,000
        The most bytes that a compressed file may unpack to. It may unpack to 100 times its size even if that is more.
    """

    columns: int | None = None
    line: int = 16_000_000
    unpacked: int = 100_000_000

    def check_unpacked(self, name: str, unpacked: int, packed: int) -> None:
        """Raise if a file unpacks to more bytes than it may."""
        # Numbers are packed to a third or a tenth, zeros and few ones to a fiftieth; gzip packs nothing but zeros to a
        # thousandth.
        expansion = 100
        if unpacked > max(self.unpacked, expansion * packed):
            raise TableError(
                f"{name} unpacks to more than {self.unpacked / 1e6:g} MB, and more than {expansion} times its size; "
                "--max-unpacked allows for more"
            )

    def check_columns(self, name: str, format: str, count: int) -> None:
        """Raise if a table has more columns than it may."""
        # Arrow takes 7 kB for each column of CSV: 400 MB for 60,000, more than the 54,675 probes of the widest common
        # gene chips. An index of libsvm costs 100 bytes; large collections of texts have a million.
        most = self.columns or (2_000_000 if format == "libsvm" else 60_000)
        if count > most:
            what = "an index beyond" if format == "libsvm" else "more columns than"
            raise TableError(f"{name} has {what} {most}; --max-columns allows for more")


# What readers of compressed bytes raise where these are damaged, or packed in a way that they do not know.
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class ByteStream(io.RawIOBase):
    """Bytes of a file or pipe that can be looked at before they are read, and that are hashed on the way.

    ``path`` is that of a regular file, None of a pipe. ``below`` has the bytes from which ``raw`` makes these, no more
    than the limits allow.
    """

    def __init__(
        self, name: str, raw: Any, limits: FileLimits, path: str | None = None, below: "ByteStream | None" = None
    ) -> None:
        super().__init__()
        self.name, self.path, self._raw, self._limits, self.below = name, path, raw, limits, below
        self._total = None if path is None else os.path.getsize(path)
        self._head, self._digest, self._size = bytearray(), hashlib.sha256(), 0
        self._copy: str | None = None

    def _more(self, size: int) -> bytes:
        try:
            part = bytes(self._raw.read1(size))
        except _DAMAGE as error:
            raise TableError(f"{self.name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        self._size += len(part)
        self._limits.check_unpacked(self.name, self._size, self.packed)
        return part

    def look(self, size: int) -> bytes:
        """Return what comes first, so many bytes; fewer only if there are no more."""
        if self._copy is not None:
            with open(self._copy, "rb") as copy:
                return copy.read(size)
        while len(self._head) < size and (more := self._more(1 << 16)):
            self._head += more
        return bytes(self._head[:size])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = bytes(self._head[: len(buffer)]) or self._more(len(buffer))
        del self._head[: len(buffer)]
        self._digest.update(part)
        buffer[: len(part)] = part
        return len(part)

    @property
    def packed(self) -> int:
        """How many bytes the file itself has, or as many as were read of a pipe."""
        if self.below is not None:
            return self.below.packed
        return self._size if self._total is None else self._total

    @property
    def share(self) -> float | None:
        """The part of the file that was read, from 0 to 1; None of a pipe."""
        if self.below is not None:
            return self.below.share
        return None if not self._total else min(1.0, self._size / self._total)

    def stored(self) -> str:
        """Return the path of a file with these bytes, none of which was read: the file itself, or a temporary copy."""
        if self.path is not None:
            return self.path
        if self._copy is None:
            handle, self._copy = tempfile.mkstemp(prefix="gaussguru-")
            with open(handle, "wb") as copy:
                shutil.copyfileobj(self, copy)
        return self._copy

    def drain(self) -> None:
        """Read what is left."""
        while self.read(1 << 20):
            pass

    def sha256(self) -> str:
        """Return the hash of the file, of its own bytes where it is compressed, after what is left unread."""
        self.drain()
        return self._digest.hexdigest() if self.below is None else self.below.sha256()

    def close(self) -> None:
        if self._raw is not getattr(sys.stdin, "buffer", None):
            self._raw.close()
        if self._copy is not None:
            with suppress(OSError):
                os.unlink(self._copy)
        self._head.clear()  # megabytes of the first rows, if nothing else was read
        super().close()
        if self.below is not None:
            self.below.close()


class Decoded(ByteStream):
    """Text in UTF-8, made of one in UTF-8, UTF-16 or Windows-1252, which has latin-1 in it; ``notes`` say which.

    A text is in Windows-1252 if it has a byte that is not UTF-8, and none beyond ASCII before.
    """

    def __init__(self, below: ByteStream, limits: FileLimits, notes: list[str]) -> None:
        super().__init__(below.name, io.BufferedReader(below, LOOK), limits, below=below)
        self._notes, self._is_ascii = notes, True
        head = below.look(LOOK)
        wide = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""
        if not wide and b"\0" in head and len(head) > 3:  # letters that are ASCII have every second byte 0
            wide = "utf-16-be" if not any(head[:200:2]) else ""
            wide = "utf-16-le" if not any(head[1:200:2]) else wide
        if wide:
            notes.append(f"{self.name} is read as UTF-16")
        self._encoding = wide or "utf-8-sig"
        self._decoder: Any = codecs.getincrementaldecoder(self._encoding)()

    def _more(self, size: int) -> bytes:
        while True:
            part = super()._more(size)
            text = self._text(part)
            if text or not part:
                return text.encode("utf-8", "surrogatepass")

    def _text(self, part: bytes) -> str:
        pending = self._decoder.getstate()[0]
        try:
            text: str = self._decoder.decode(part, not part)
        except UnicodeDecodeError as error:
            wrong = error.object[error.start]
            is_first = self._is_ascii and error.object[: error.start].isascii()
            if self._encoding != "utf-8-sig" or not is_first:
                kind = "UTF-16" if "16" in self._encoding else "UTF-8, or else in Windows-1252 (latin-1)"
                raise TableError(f"{self.name} is not a text in {kind} (byte {wrong:#04x}); convert it") from None
            self._notes.append(f"{self.name} is not in UTF-8 (byte {wrong:#04x}); it is read as Windows-1252 (latin-1)")
            self._encoding, self._decoder = "cp1252", codecs.getincrementaldecoder("cp1252")()
            return self._text(pending + part)
        self._is_ascii = self._is_ascii and text.isascii()
        return text


def shortened(value: Any, length: int = 40) -> str:
    """Return a value as text, without the end of a long one."""
    text = str(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def quoted(name: str) -> str:
    """Return a name in quotes, as errors have it, without the end of a very long one."""
    return repr(shortened(name, 100))


_PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.BZ2File, b"\xfd7zXZ\0": lzma.LZMAFile}


def open_stream(path: str, name: str, limits: FileLimits) -> ByteStream:
    """Return the bytes of a file, or of standard input, unpacked if they are compressed by gzip, bzip2, xz or zip."""
    try:
        raw: Any = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115  closed by the table
        stream = ByteStream(name, raw, limits, path if path != "-" and os.path.isfile(path) else None)
    except OSError as error:
        raise TableError(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        head = stream.look(6)
        for magic, packer in _PACKERS.items():
            if head.startswith(magic):
                return ByteStream(name, packer(io.BufferedReader(stream)), limits, below=stream)
        if head.startswith(b"PK\3\4") and (entry := _only_entry(stream)) is not None:
            return ByteStream(name, entry, limits, below=stream)
    except BaseException:
        stream.close()
        raise
    return stream


def _only_entry(stream: ByteStream) -> Any:
    """Return the file that a zip archive has, opened; None of a workbook."""
    try:
        archive = zipfile.ZipFile(stream.stored())
        if "xl/workbook.xml" in archive.namelist():
            return archive.close()
        entries = [each for each in archive.namelist() if not each.endswith("/") and not each.startswith("__MACOSX/")]
        if len(entries) == 1:
            return archive.open(entries[0])
    except _DAMAGE as error:
        raise TableError(f"{stream.name} cannot be read as zip: {error}") from None
    names = ", ".join(map(shortened, entries[:4])) or "none"
    raise TableError(f"{stream.name} has {len(entries)} files ({names}); expected is a zip archive of one table")
