"""Formats of archives and spreadsheets: the same rows are the same table, and nothing is lost in silence."""

import base64
import bz2
import gzip
import io
import lzma
import re
import struct
import sys
import time
import tracemalloc
import warnings
import zipfile
from contextlib import closing, suppress

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from astropy.io import fits
from astropy.io.votable import from_table, writeto
from astropy.io.votable.tree import TableElement
from astropy.table import MaskedColumn
from astropy.table import Table as Columns

from gaussguru._tables import base, catalogues, files
from gaussguru._tables.files import FileLimits, TableError, open_table, written_format
from gaussguru._tables.options import Options
from gaussguru._tables.plan import Plan
from gaussguru._tables.schema import read_all
from gaussguru.cli import main

N = 60
RNG = np.random.default_rng(0)
LABELS = np.where(np.arange(N) % 2, "yes", "no")
FLUX = np.round(RNG.standard_normal(N) + 2 * (LABELS == "yes"), 3)
ERRORS = np.round(RNG.random(N) + 0.1, 3)
COUNTS = RNG.integers(0, 99, N)
EMPTY = np.arange(N) % 7 == 3


def columns():
    """Return a table of astropy in which a number and its error, and a whole number, are masked."""
    return Columns(
        [
            MaskedColumn(FLUX, "flux", unit="mJy", mask=EMPTY),
            MaskedColumn(ERRORS, "flux_err", unit="mJy", mask=EMPTY),
            MaskedColumn(COUNTS, "counts", mask=np.arange(N) == 5),
            MaskedColumn(LABELS, "kind"),
        ]
    )


def csv_text(sep=","):
    rows = ["flux,flux_err,counts,kind"]
    for i in range(N):
        cells = ["" if EMPTY[i] else FLUX[i], "" if EMPTY[i] else ERRORS[i], "" if i == 5 else COUNTS[i], LABELS[i]]
        rows.append(",".join(map(str, cells)))
    return "\n".join(rows).replace(",", sep) + "\n"


def vizier():
    head = '#\n#   VizieR Astronomical Server\n#Column\tflux\t(F6.3)\tFlux "of the line\n#---Details of Columns:\n\n'
    rows = [line.split("\t") for line in csv_text("\t").splitlines()]
    rows[1:] = [[cell.rjust(width) for cell, width in zip(row, (7, 5, 2, 3), strict=True)] for row in rows[1:]]
    ruled = [rows[0], ["mJy", "mJy", " ", " "], ["-" * width for width in (7, 5, 2, 3)], *rows[1:]]
    return head + "\n".join(map("\t".join, ruled)) + "\n\n#END#\n"


def written(table, **options):
    file = io.BytesIO() if options["format"] != "ascii.ecsv" else io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.write(file, **options)
    content = file.getvalue()
    return content if isinstance(content, bytes) else content.encode()


def binary_fits(table=None):
    table = columns() if table is None else table
    arrays = [
        fits.Column("flux", "D", "mJy", array=table["flux"].filled(np.nan)),
        fits.Column("flux_err", "D", "mJy", array=table["flux_err"].filled(np.nan)),
        fits.Column("counts", "J", null=-99, array=table["counts"].filled(-99)),
        fits.Column("kind", "8A", array=table["kind"].astype(str)),
    ]
    return hdus(fits.BinTableHDU.from_columns(arrays, name="LINES"))


def text_fits():
    table = columns()
    arrays = [
        fits.Column("flux", "F10.3", "mJy", null="none", array=table["flux"].filled(-77.25)),
        fits.Column("flux_err", "F10.3", "mJy", null="none", array=table["flux_err"].filled(-77.25)),
        fits.Column("counts", "I6", null="-9", array=table["counts"].filled(-9)),
        fits.Column("kind", "A3", array=table["kind"].astype(str)),
    ]
    content = hdus(fits.TableHDU.from_columns(arrays))
    cells = content.count(b"   -77.250")
    assert cells == 2 * EMPTY.sum()
    halves = content.split(b"   -77.250")  # one half null, one half blank
    return b"".join(part + (b"      none" if k % 2 else b" " * 10) * (k < cells) for k, part in enumerate(halves))


def hdus(*tables):
    file = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(np.zeros((3, 3))), *tables]).writeto(file)
    return file.getvalue()


def votable(serialisation="tabledata", table=None):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = from_table(columns() if table is None else table)
        for field in tree.get_first_table().fields:
            field.values.null = -99 if field.datatype == "long" else None
        writeto(tree, file, tabledata_format=serialisation)
    return file.getvalue()


def workbook(rows=None, *more):
    book = openpyxl.Workbook()
    if rows is None:
        rows = [line.split(",") for line in csv_text().splitlines()]
        rows[1:] = [[*(float(cell) if cell else None for cell in row[:3]), row[3]] for row in rows[1:]]
    book.active.title = "lines"
    for row in rows:
        book.active.append(row)
    for name, others in more:
        sheet = book.create_sheet(name)
        for row in others:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def arrow(compression="lz4", *, stream=False, table=None):
    table = as_arrow() if table is None else table
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, table.schema, options=options) as writer:
        writer.write_table(table, max(25, len(table) // 4))
    return file.getvalue()


def as_arrow():
    return pa.table(
        {
            "flux": pa.array(FLUX, mask=EMPTY), "flux_err": pa.array(ERRORS, mask=EMPTY),
            "counts": pa.array(COUNTS, mask=np.arange(N) == 5), "kind": pa.array(LABELS.tolist()).dictionary_encode(),
        }
    )  # fmt: skip


def zipped(content, *more):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("lines", content)
        for name, other in more:
            archive.writestr(name, other)
    return file.getvalue()


UNITS = {"flux": "mJy", "flux_err": "mJy"}
FORMATS = {
    "binary.fits": (binary_fits, UNITS), "text.fits": (text_fits, UNITS),
    "tabledata.vot": (votable, UNITS), "binary.vot": (lambda: votable("binary"), UNITS),
    "binary2.xml": (lambda: votable("binary2"), UNITS),
    "t.ecsv": (lambda: written(columns(), format="ascii.ecsv"), UNITS),
    "commas.ecsv": (lambda: written(columns(), format="ascii.ecsv", delimiter=","), UNITS),
    "vizier.tsv": (vizier, UNITS), "vizier-cr.tsv": (lambda: vizier().replace("\n", "\r\n"), UNITS),
    "t.xlsx": (workbook, {}), "packed.feather": (arrow, {}), "zstd.arrow": (lambda: arrow("zstd"), {}),
    "plain.feather": (lambda: arrow(None), {}), "stream.arrow": (lambda: arrow(stream=True), {}),
    "comments.csv": (lambda: "# a survey, 2026\n\n# \"of lines\n" + csv_text() + "# the end\n", {}),
    "commented-header.csv": (lambda: "# a survey\n#" + csv_text(), {}),
}  # fmt: skip
PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zip": zipped}


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(path, target="kind", **options):
    roles = {name: options.pop(name) for name in ("drop", "features", "missing") if name in options}
    table = open_table(path, **options)
    try:
        return read_all(table, Plan.of(table, target, Options(**roles)).check()), table
    finally:
        table.close()


def check_same(path, units, **options):
    data, table = read(path, **options)
    np.testing.assert_allclose(data.X["flux"], np.where(EMPTY, np.nan, FLUX), rtol=1e-15)
    np.testing.assert_array_equal(data.X["counts"], np.where(np.arange(N) == 5, np.nan, COUNTS))
    np.testing.assert_allclose(data.X_err[:, 0], np.where(EMPTY, np.inf, ERRORS), rtol=1e-15)
    assert data.y.tolist() == LABELS.tolist()
    assert table.units == units
    return table


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_same_rows_units_and_gaps(tmp_path, name):
    content, units = FORMATS[name]
    check_same(put(tmp_path / name, content()), units)
    check_same(put(tmp_path / "no-name", content()), units)  # by content


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("name", ["binary.fits", "binary2.xml", "t.ecsv", "vizier.tsv", "t.xlsx", "packed.feather"])
def test_compressed_files_are_the_same(tmp_path, name, packer):
    content, units = FORMATS[name]
    content = content()
    content = content if isinstance(content, bytes) else content.encode()
    check_same(put(tmp_path / f"{name}.{packer}", PACKERS[packer](content)), units)


@pytest.mark.parametrize("name", ["binary.fits", "binary2.xml", "t.xlsx", "packed.feather", "csv.zip", "vizier.tsv"])
def test_standard_input_is_the_same(tmp_path, monkeypatch, name):
    content, units = (lambda: zipped(csv_text()), {}) if name == "csv.zip" else FORMATS[name]
    content = content()
    content = content if isinstance(content, bytes) else content.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    check_same("-", units)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["binary.fits", "binary2.xml", "t.xlsx", "packed.feather"])
def test_parts_are_bounded_and_the_first_rows_are_shown(tmp_path, monkeypatch, name):
    monkeypatch.setattr(base, "BLOCK", 500)
    path = put(tmp_path / name, FORMATS[name][0]())
    table = open_table(path)
    shown = table.peek()
    assert shown.num_rows == N
    assert [str(kind) for kind in shown.schema.types][0::3] == ["double", "string"]
    assert shown["counts"].null_count == 1
    parts = list(table.parts(["flux", "counts"], ["kind"]))
    table.close()
    assert max(len(X) for X, _ in parts) < 40
    np.testing.assert_array_equal(np.concatenate([X for X, _ in parts])[:, 1][:5], COUNTS[:5])


@pytest.mark.parametrize("name", ["binary.fits", "binary2.xml", "t.ecsv", "t.xlsx", "packed.feather", "vizier.tsv"])
def test_the_same_rows_give_the_same_model(tmp_path, name):
    options = ["--target", "kind", "--model", "linear", "--folds", "2", "-q"]
    found = []
    for file, content in (("t.csv", csv_text()), (name, FORMATS[name][0]())):
        path, model, output = put(tmp_path / file, content), str(tmp_path / f"{file}.model"), str(tmp_path / "out.csv")
        assert main(["fit", path, *options, "-o", model]) == 0
        assert main(["predict", model, path, "-q", "--force", "-o", output]) == 0
        found.append((tmp_path / "out.csv").read_text())
    assert found[0] == found[1]


ENCODINGS = {
    "latin-1": "Windows-1252",
    "cp1252": "Windows-1252",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("first", ["größe", "size"])
def test_encodings_are_recognised_and_said(tmp_path, encoding, first):
    rows = [f"{2 * i},{'né' if i % 2 else 'oui'}" for i in range(20_000)]
    path = put(tmp_path / "t.csv", "\n".join([f"{first},kind", *rows]).encode(encoding))
    data, table = read(path)
    assert data.X[first].tolist() == list(range(0, 40_000, 2))
    assert set(data.y) == {"né", "oui"}
    assert len(table.notes) == 1
    assert ENCODINGS[encoding] in table.notes[0]
    put(tmp_path / "t.csv", "\n".join([f"{first},kind", *rows]).encode())
    assert read(path)[1].notes == []


def refuses(path, *words, target="kind", **options):
    begin = time.perf_counter()
    with pytest.raises(TableError) as caught:
        read(path, target, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700 + len(path)
    for word in words:
        assert word in message
    assert time.perf_counter() - begin < 20  # seconds; tracing makes it several times slower


def test_values_that_are_null_in_their_own_way(tmp_path):
    arrays = [
        fits.Column("flag", "L", array=np.arange(4) % 2 == 0),
        fits.Column("big", "I", bzero=32768, null=7, array=np.array([1, 2, 40_000, 32775], np.uint16)),
        fits.Column("name", "6A", array=[" a ", "", "b", "c"]),
        fits.Column("curve", "3D", array=np.ones((4, 3))), fits.Column("wave", "C", array=np.ones(4, complex)),
        fits.Column("var", "PD()", array=np.array([[1.0], [1.0, 2.0], [], [3.0]], dtype=object)),
        fits.Column("kind", "3A", array=["no", "yes", "no", "yes"]),
    ]  # fmt: skip
    content = hdus(fits.BinTableHDU.from_columns(arrays))
    row = content.index(b"T", content.index(b"END", content.index(b"XTENSION")) + 3)
    content = content[:row] + b"\0" + content[row + 1 :]
    path = put(tmp_path / "t.fits", content)
    table = open_table(path)
    shown = table.peek().to_pydict()
    table.close()
    assert shown["flag"] == [None, False, True, False]
    assert shown["big"] == [1, 2, 40_000, None]
    assert shown["name"] == ["a", None, "b", "c"]
    refuses(path, "'curve'", "list<", "--drop", features=["curve"])
    for name, words in (("wave", "list<"), ("var", "list<"), ("name", "3 different texts")):
        refuses(path, f"'{name}'", words, "--drop", features=[name])
    assert read(path, features=["big"], missing="mean")[0].X["big"].isna().tolist() == [False, False, False, True]


def test_files_of_several_tables(tmp_path):
    one, two = columns(), columns()
    two["flux"] += 1
    path = put(tmp_path / "t.fits", hdus(*[fits.open(io.BytesIO(binary_fits(each)))[1] for each in (one, two)]))
    table = check_same(path, UNITS)
    assert len(table.notes) == 1
    assert "2 tables (LINES, LINES); the first is read" in table.notes[0]
    assert read(path, which="2")[0].X["flux"][0] == FLUX[0] + 1
    refuses(path, "'3'", "there are LINES, LINES", which="3")
    sheets = [("empty", []), ("other", [["flux", "kind"], [7.5, "no"]])]
    path = put(tmp_path / "t.xlsx", workbook(None, *sheets))
    assert "2 tables (lines, other)" in check_same(path, {}).notes[0]
    assert read(path, which="other")[0].X["flux"].tolist() == [7.5]
    refuses(path, "'empty'", which="empty")
    refuses(put(tmp_path / "t.csv", csv_text()), "--table is for files of several", which="1")


def test_votable_of_several_tables(tmp_path):
    tree = from_table(columns())
    other = columns()
    other["flux"] += 1
    second = TableElement.from_table(tree, other)
    second.name = "second"
    tree.resources[0].tables.append(second)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writeto(tree, file)
    path = put(tmp_path / "t.vot", file.getvalue())
    assert "2 tables" in check_same(path, UNITS).notes[0]
    for which in ("2", "second"):
        assert read(path, which=which)[0].X["flux"][0] == FLUX[0] + 1


def test_cells_of_a_workbook(tmp_path):
    rows = [["Survey of 2026"], [], ["a", "b", None, "day", "mixed", "kind"]]
    cells = [[1, "2.5", "note", None, "x", "no"], [2, 3, None, None, 1, "yes"], [], [None, "NA", None, None, 2.5, "no"]]
    path = put(tmp_path / "t.xlsx", workbook(rows + cells))
    data, table = read(path, features=["a", "b"], missing="mean")
    np.testing.assert_array_equal(data.X, [[1, 2.5], [2, 3], [np.nan, np.nan]])
    assert len(table.notes) == 2
    assert "row 3" in table.notes[0]
    assert "'b'" in table.notes[1]
    refuses(path, "'mixed'", "'x' in row 1", "expected is a number", features=["mixed"])
    path = put(tmp_path / "t.xlsx", workbook([["a", "kind"], ["=1+1", "no"], [2, "yes"]]))
    refuses(path, "'a'", "formula without its value in row 2", "save")


XML = (
    "<VOTABLE version='1.4' xmlns='http://www.ivoa.net/xml/VOTable/v1.3'><RESOURCE>"
    "<TABLE{}>{}{}</TABLE></RESOURCE></VOTABLE>"
)
FIELDS = "<FIELD name='flux' datatype='double'/><FIELD name='kind' datatype='char' arraysize='3'/>"
STREAM = "<DATA><BINARY><STREAM encoding='base64'>{}</STREAM></BINARY></DATA>"
ROW = struct.pack(">d3s", 1.5, b"yes")


def binary(content, fields=FIELDS, attributes=""):
    return XML.format(attributes, fields, STREAM.format(base64.b64encode(content).decode()))


HOSTILE = {
    "cut": (lambda: binary(ROW * 3 + ROW[:5]), ["3 rows have 33 of the 38 bytes", "BINARY"]),
    "cut-in-text": (lambda: binary(ROW * 3 + ROW[:9]), ["33 of the 42 bytes"]),
    "cut-array": (
        lambda: binary(b"\0\0\0\2" + b"ab" + b"\0\0\0\7ab", "<FIELD name='kind' datatype='char' arraysize='*'/>"),
        ["1 rows have 6 of the 12 bytes"],
    ),
    "nrows": (lambda: binary(ROW, attributes=" nrows='99999999999'"), ["--max-unpacked"]),
    "arraysize": (
        lambda: binary(ROW, "<FIELD name='x' datatype='double' arraysize='100000x100000'/>", " nrows='1'"),
        ["--max-unpacked"],
    ),
    "nothing": (lambda: binary(ROW, "<FIELD name='x' datatype='double' arraysize='0'/>"), ["size 0"]),
    "columns": (lambda: binary(ROW, "<FIELD name='x' datatype='int'/>" * 70_000), ["60000", "--max-columns"]),
    "href": (lambda: binary(ROW).replace("encoding='base64'", "href='http://example.org/rows'"), ["in another file"]),
    "local": (
        lambda: binary(ROW).replace("encoding='base64'", "encoding='base64' href='file:///etc/passwd'"),
        ["another file"],
    ),
    "gzip": (lambda: binary(ROW).replace("'base64'", "'gzip'"), ["packed"]),
    "fits": (
        lambda: XML.format("", FIELDS, "<DATA><FITS><STREAM href='http://example.org/'/></FITS></DATA>"),
        ["FITS"],
    ),
    "parquet": (lambda: XML.format("", FIELDS, "<DATA><PARQUET type='VOTable-remote-file'/></DATA>"), ["PARQUET"]),
    "entity": (lambda: "<!DOCTYPE VOTABLE [<!ENTITY a 'aaaa'>]>" + binary(ROW), ["document type"]),
    "external": (lambda: "<!DOCTYPE VOTABLE SYSTEM 'http://example.org/v.dtd'>" + binary(ROW), ["document type"]),
    "value": (
        lambda: XML.format("", FIELDS, "<DATA><TABLEDATA><TR><TD>many</TD><TD>no</TD></TR></TABLEDATA></DATA>"),
        ["many"],
    ),
    "short": (
        lambda: XML.format("", FIELDS, "<DATA><TABLEDATA><TR><TD>1</TD></TR></TABLEDATA></DATA>"),
        ["fewer columns"],
    ),
    "half": (lambda: binary(ROW)[:-40], ["cannot be read as VOTable"]),
    "html": (lambda: "<!DOCTYPE html><html><body>502</body></html>", ["XML or HTML"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_votables_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("a file opened another"))
    content, words = HOSTILE[name]
    refuses(put(tmp_path / "t.vot", content()), *words)


def test_a_whole_binary_stream_is_read(tmp_path):
    data, _ = read(put(tmp_path / "t.vot", binary(ROW * 3)))
    assert data.X["flux"].tolist() == [1.5] * 3
    odd = Columns({"x": [1.0, 2.0], "note": ["é", "long text"], "curve": [[1, 2], [3, 4]], "ok": [True, False],
                   "kind": ["no", "yes"]})  # fmt: skip
    for serialisation in ("binary", "binary2"):
        data, _ = read(put(tmp_path / "t.vot", votable(serialisation, odd)), features=["x", "ok"])
        assert data.X.to_numpy().tolist() == [[1, 1], [2, 0]]


def changed(content, *pairs):
    for old, new in pairs:
        assert old in content
        content = content.replace(old, new.ljust(len(old)) if isinstance(new, bytes) else new)
    return content


def bomb_workbook(entry, start, unit, times):
    file = io.BytesIO(workbook())
    with zipfile.ZipFile(file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries[entry] = re.sub(start, lambda found: found[0] + unit * times, entries[entry], count=1)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


def claimed_feather():
    content = bytearray(arrow("zstd"))
    place = content.index(b"\x28\xb5\x2f\xfd") - 8
    content[place : place + 8] = (1 << 50).to_bytes(8, "little")
    return bytes(content)


MANY = b"NAXIS2  =                   60", b"NAXIS2  =         990000000000"
SHEET = "xl/worksheets/sheet1.xml"
GREEDY = {
    "zeros.xlsx": (lambda: bomb_workbook(SHEET, b"<sheetData>", b"<row/>", 60_000_000), ["--max-unpacked"]),
    "styles.xlsx": (
        lambda: bomb_workbook("xl/styles.xml", b"<fonts[^>]*>", b"<font/>", 2_000_000),
        ["styles.xml", "8 MB"],
    ),
    "entity.xlsx": (lambda: bomb_workbook(SHEET, b"^", b"<!DOCTYPE x [<!ENTITY a 'b'>]>", 1), ["document type"]),
    "rows.fits": (lambda: changed(binary_fits(), MANY), ["FITS"]),
    "empty.fits": (
        lambda: changed(binary_fits(), MANY, (b"NAXIS1  =                   28", b"NAXIS1  =                    0")),
        [],
    ),
    "fields.fits": (
        lambda: changed(binary_fits(), (b"TFIELDS =                    4", b"TFIELDS =           4000000000")),
        ["--max-columns"],
    ),
    "cut.fits": (lambda: binary_fits()[:-2880], ["ends before"]),
    "zeros.feather": (
        lambda: arrow("zstd", table=pa.table({"a": np.zeros(1 << 24), "kind": np.zeros(1 << 24)})),
        ["--max-unpacked"],
    ),
    "claim.feather": (claimed_feather, ["--max-unpacked"]),
    "nulls.feather": (
        lambda: arrow(table=pa.table({"a": pa.nulls(1 << 26), "kind": pa.nulls(1 << 26)})),
        ["--max-unpacked"],
    ),
    "old.feather": (lambda: b"FEA1" + bytes(99), ["first version of Feather"]),
    "old.xls": (lambda: b"\xd0\xcf\x11\xe0" + bytes(99), ["save it as .xlsx"]),
    "two.zip": (lambda: zipped(csv_text(), ("more", "a,b\n")), ["2 files (lines, more)"]),
    "zeros.zip": (lambda: zipped(bytes(300_000_000)), ["--max-unpacked"]),
    "zeros.csv.xz": (lambda: lzma.compress(bytes(300_000_000), preset=0), ["--max-unpacked"]),
    "zeros.csv.bz2": (lambda: bz2.compress(bytes(300_000_000)), ["--max-unpacked"]),
    "cut.csv.xz": (lambda: lzma.compress(csv_text().encode())[:-20], ["cannot be read"]),
    "cut.csv.bz2": (lambda: bz2.compress(csv_text().encode())[:-20], ["cannot be read"]),
    "comments.csv": (lambda: "# no table\n" * 2_000_000, ["comments above its header"]),
    "comment.csv": (lambda: "#" * 40_000_000, ["comments above its header"]),
    "yaml.ecsv": (lambda: "# %ECSV 1.0\n# ---\n# datatype: &a [1, 2\na b\n1 2\n", ["cannot be read as ECSV"]),
    "object.ecsv": (
        lambda: "# %ECSV 1.0\n# ---\n# datatype: !!python/object/apply:os.system ['true']\na b\n1 2\n",
        ["ECSV"],
    ),
    "masks.ecsv": (
        lambda: (
            "# %ECSV 1.0\n# ---\n# datatype: [{name: a, datatype: float64}, {name: a.mask, datatype: bool}]\n"
            "a a.mask\n1 True\n"
        ),
        ["masks"],
    ),
}


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_feather_file_is_refused_or_read(tmp_path, seed):
    content = bytearray(arrow("zstd"))
    rng = np.random.default_rng(seed)
    start = content.index(b"\x28\xb5\x2f\xfd")
    place = rng.integers(start - 400, start) & ~7  # in the description of the first batch
    content[place : place + 8] = rng.bytes(8)
    with suppress(TableError):  # anything else would be a traceback for the user
        read(put(tmp_path / "t.feather", bytes(content)))


@pytest.mark.parametrize("name", GREEDY)
def test_files_that_ask_for_much_are_refused_soon(tmp_path, name):
    content, words = GREEDY[name]
    path = put(tmp_path / name, content())
    tracemalloc.start()
    try:
        refuses(path, name, *words)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 3e8


def test_a_row_far_away_is_refused(tmp_path):
    far = b"<row r='9999999999'><c r='A9999999999'><v>1</v></c></row>"
    refuses(put(tmp_path / "t.xlsx", bomb_workbook(SHEET, b"</row>", far, 1)), "1048576 rows")


def test_a_file_beyond_what_is_read_as_a_whole_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogues, "WHOLE", 1000)
    for name in ("t.xlsx", "tabledata.vot"):
        refuses(put(tmp_path / name, FORMATS[name][0]()), "read as a whole", "FITS, Parquet or CSV")
    check_same(put(tmp_path / "t.fits", binary_fits()), UNITS)


@pytest.mark.parametrize(("name", "module", "command"), [
    ("binary.fits", "astropy.io.fits", "pip install 'gaussguru[astro]'"),
    ("tabledata.vot", "astropy.io.votable", "pip install 'gaussguru[astro]'"),
    ("t.ecsv", "astropy.table.meta", "pip install 'gaussguru[astro]'"),
    ("t.xlsx", "openpyxl", "pip install 'gaussguru[excel]'"),
])  # fmt: skip
def test_a_missing_extra_is_named(tmp_path, monkeypatch, name, module, command):
    path = put(tmp_path / name, FORMATS[name][0]())
    monkeypatch.setitem(sys.modules, module, None)
    refuses(path, module.split(".")[0], command)


@pytest.mark.parametrize("name", ["t.xlsx", "binary.fits", "packed.feather", "tabledata.vot"])
def test_a_format_that_is_given_counts(tmp_path, name):
    path = put(tmp_path / "t.csv", FORMATS[name][0]())
    format = next(format for format, ends in files.FORMATS.items() if name.endswith(ends))
    check_same(path, FORMATS[name][1], format=format)
    refuses(path, format="csv")
    refuses(put(tmp_path / name, csv_text()), "does not begin as one")


def test_limits_hold_for_every_format(tmp_path):
    for name in ("binary.fits", "tabledata.vot", "t.xlsx", "packed.feather", "vizier.tsv", "t.ecsv"):
        path = put(tmp_path / name, FORMATS[name][0]())
        check_same(path, FORMATS[name][1], limits=FileLimits(columns=4))
        refuses(path, "more columns than 3", limits=FileLimits(columns=3))


def test_tables_are_written_as_csv_or_parquet_only():
    assert [written_format(path) for path in ("a", "a.csv", "b.parquet")] == ["csv", "csv", "parquet"]
    for path in ("a.fits", "b.xlsx", "c.svm"):
        with pytest.raises(TableError, match="only read"):
            written_format(path)


def test_packed_columns_of_parquet_are_not_all_in_memory(tmp_path):
    X = np.random.default_rng(0).standard_normal((200_000, 10))
    path = tmp_path / "a.parquet"
    columns = pa.table({f"x{j}": X[:, j] for j in range(10)})
    pyarrow.parquet.write_table(columns, path, row_group_size=len(X), use_dictionary=False, data_page_size=1 << 16)
    most, begin, stacked = 0, pa.total_allocated_bytes(), []
    with closing(open_table(str(path))) as table:
        for numbers, _ in table.parts(table.columns, []):
            most = max(most, pa.total_allocated_bytes() - begin)
            stacked.append(numbers)
    assert np.array_equal(np.concatenate(stacked), X)
    assert most < path.stat().st_size / 2


def test_memory_that_runs_out_is_no_damage_of_the_file(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pa.table({"x": [1.0]}), tmp_path / "a.parquet")

    def batches(*_):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    with closing(open_table(str(tmp_path / "a.parquet"))) as table:
        monkeypatch.setattr(type(table), "_batches", batches)
        with pytest.raises(MemoryError, match="malloc of size 64 failed"):
            list(table.parts(["x"], []))
