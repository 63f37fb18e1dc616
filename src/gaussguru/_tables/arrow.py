"""Tables in the formats of Arrow: Parquet, and Feather, which is Arrow's IPC format, as a file or as a stream."""

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from gaussguru._tables import base
from gaussguru._tables.base import Batched, is_text

# A column of Parquet is read by so many bytes at a time; else all packed columns of a row group are in memory.
BUFFERED: dict[str, Any] = {"buffer_size": 1 << 16, "pre_buffer": False}


class Parquet(Batched):
    """A Parquet file."""

    title = "Parquet"
    _parquet: Any = None

    def _open(self) -> None:
        self._parquet = pyarrow.parquet.ParquetFile(self._path, **BUFFERED)
        metadata = self._parquet.metadata
        self._limits.check_columns(self.name, "parquet", metadata.num_columns)
        self.schema, self._n_rows = self._parquet.schema_arrow, metadata.num_rows
        # By what the file says of itself; a column without any value takes nothing in the file.
        groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
        chunks = (group.column(place) for group in groups for place in range(group.num_columns))
        self._check_unpacked(sum(max(8 * chunk.num_values, chunk.total_uncompressed_size) for chunk in chunks))

    def close(self) -> None:
        if self._parquet is not None:
            self._parquet.close(force=True)
        super().close()

    def _read(self, columns: list[str], texts: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches of columns, texts as codes: one that stands in many rows may be in the file once."""
        metadata = self._parquet.metadata
        self._parquet.close(force=True)
        self._parquet = pyarrow.parquet.ParquetFile(self._path, metadata=metadata, read_dictionary=texts, **BUFFERED)
        yield from self._parquet.iter_batches(batch_size=base.rows_of(columns), columns=columns)


class Feather(Batched):
    """A file or a stream in Arrow's IPC format."""

    title = "Feather"
    damage = (*Batched.damage, struct.error)

    def _open(self) -> None:
        claimed = 0
        with self._messages() as file:
            messages = pa.ipc.MessageReader.open_stream(file)
            self.schema = pa.ipc.read_schema(messages.read_next_message())
            self._limits.check_columns(self.name, "", len(self.schema))
            for message in messages:
                rows, size = _claims(message)
                self._n_rows += rows
                claimed += max(size, 8 * rows * len(self.schema))
                self._check_unpacked(claimed)

    def _messages(self) -> pa.NativeFile:
        """Return the file where its messages begin: a file has a stream in it."""
        file = pa.memory_map(self._path)
        file.seek(8 if file.read(6) == b"ARROW1" else 0)
        return file

    def _read(self, columns: list[str], texts: list[str]) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=[self.schema.get_field_index(name) for name in columns])
        with self._messages() as file, pa.ipc.open_stream(file, options=options) as reader:
            for batch in reader:
                batch.validate(full=True)  # its offsets are as the file has them
                plain = pa.Table.from_arrays([_as_string(batch.column(name)) for name in columns], columns)
                yield from plain.to_batches(max_chunksize=base.rows_of(columns))


def _as_string(column: pa.Array) -> pa.Array:
    """Return texts of any width as strings, and other columns as they are."""
    kind = column.type
    wide = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pc.cast(column, pa.string()) if wide and not is_text(kind) else column


def _claims(message: Any) -> tuple[int, int]:
    """Return the rows and the bytes that a message of a dictionary or a batch says to have when it is unpacked.

    Arrow believes the size that stands before each packed buffer, and has no function that returns it.
    """
    data, body = memoryview(message.metadata), message.body
    # Fields by their numbers: of a message 1 (the kind of its header) and 2 (the header); of a dictionary 1 (a batch);
    # of a batch 0 (its length), 2 (buffers) and 3 (compression). The kind 2 is a dictionary, 3 a batch.
    root = struct.unpack_from("<I", data)[0]
    header, kind = _field(data, root, 2), _field(data, root, 1)
    if not header or not kind or data[kind] not in (2, 3) or body is None:
        return 0, 0
    batch = _followed(data, header)
    if data[kind] == 2:
        batch = _followed(data, _field(data, batch, 1))
    length, buffers = _field(data, batch, 0), _field(data, batch, 2)
    rows = struct.unpack_from("<q", data, length)[0] if length else 0
    if not buffers or not _field(data, batch, 3):
        return rows, body.size
    vector, packed, size = _followed(data, buffers), memoryview(body), 0
    for place in range(struct.unpack_from("<I", data, vector)[0]):
        offset, count = struct.unpack_from("<qq", data, vector + 4 + 16 * place)
        if count:
            claim = struct.unpack_from("<q", packed, offset)[0]
            size += count if claim < 0 else claim
    return rows, size


def _field(data: memoryview, table: int, number: int) -> int:
    """Return where a table of a message has a field; 0 if it has none."""
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    if 4 + 2 * number >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, fields + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _followed(data: memoryview, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])
