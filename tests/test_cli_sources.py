"""The readers of `mempp add`: what each format gives, where each fault is, and that nothing is read ahead."""

import csv
import datetime as dt
import io
import json
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mempp.cli.sources import Fault, Found
from mempp.cli.sources.fields import Fields, Naming, check_defaults, parse_map
from mempp.cli.sources.files import SourceFileError, find_files
from mempp.cli.sources.json_lines import read_json_lines
from mempp.cli.sources.parquet import iso_duration, read_parquet
from mempp.cli.sources.tables import read_csv, read_tsv
from mempp.cli.sources.whole_files import read_text
from mempp.errors import InputError, InvalidDateError
from mempp.records import check_document

# -- JSON Lines -------------------------------------------------------------------------------------------------------


def json_lines(data: bytes) -> list[Found | Fault]:
    return list(read_json_lines(io.BytesIO(data), "f"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5), st.booleans(), st.booleans())
def test_json_lines_round_trip(objects: list[dict[str, object]], ascii_only: bool, mark: bool) -> None:
    lines = [json.dumps(one, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for one in objects]
    data = (b"\xef\xbb\xbf" if mark else b"") + b"\n".join(lines)
    found = json_lines(data)
    assert [item.fields for item in found if isinstance(item, Found)] == objects
    assert [item.place for item in found] == [f"f:{number}" for number in range(1, len(objects) + 1)]
    assert not found or found[-1].position == len(data)


def test_json_lines_pass_over_blank_lines_and_keep_other_line_separators() -> None:
    data = '\r\n{"text": "a\u2028b\x85c"}\r\n   \n{"text": "d"}'.encode()
    assert [(item.place, item.fields["text"]) for item in json_lines(data) if isinstance(item, Found)] == [
        ("f:2", "a\u2028b\x85c"),
        ("f:4", "d"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "not JSON: Expecting ',' delimiter at column 13"),
        (b"text", "not JSON: Expecting value at column 1, near 'text'"),
        (b'["a"]', "not a JSON object but a list: '[\"a\"]'"),
        (b'"a"', "not a JSON object but a text"),
        (b"true", "not a JSON object but true or false"),
        (b"null", "not a JSON object but null"),
        (b"12.5", "not a JSON object but a number"),
        (b'{"text": "a", "text": "b"}', "the key 'text' stands twice in one object"),
        (b'{"text": "a\xff"}', "not UTF-8 at byte 12 of the line (0xff)"),
        (b'{"text": "\xed\xa0\x80"}', "not UTF-8 at byte 11 of the line (0xed)"),
        (b"[" * 100_000, "not usable JSON: nested too deep"),
        (b'{"n": ' + b"1" * 5000 + b"}", "not usable JSON: Exceeds the limit"),
    ],
)
def test_json_lines_fault_and_go_on(line: bytes, reason: str) -> None:
    first, fault, last = json_lines(b'{"text": "x"}\n' + line + b'\n{"text": "y"}\n')
    assert isinstance(fault, Fault)
    assert fault.place == "f:2"
    assert fault.reason.startswith(reason)
    assert isinstance(first, Found)
    assert isinstance(last, Found)
    assert (last.place, last.fields) == ("f:3", {"text": "y"})


class CountedStream(io.RawIOBase):
    """A stream without end that counts what was taken from it."""

    def __init__(self, head: bytes, repeated: bytes) -> None:
        self.rest, self.repeated, self.taken = head, repeated, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while len(self.rest) < len(buffer):
            self.rest += self.repeated
        count = len(buffer)
        buffer[:], self.rest = self.rest[:count], self.rest[count:]
        self.taken += count
        return count


@pytest.mark.parametrize(
    ("reader", "head", "line"),
    [
        (read_json_lines, b"", b'{"text": "a"}\n'),
        (read_csv, b"text,n\n", b"a,1\n"),
        (read_tsv, b"text\tn\n", b"a\t1\n"),
    ],
)
def test_a_file_without_end_is_read_as_it_is_needed(reader: object, head: bytes, line: bytes) -> None:
    stream = CountedStream(head, line)
    reading = reader(io.BufferedReader(stream), "f")  # type: ignore[operator]
    for _ in range(10):
        assert next(reading).fields["text"] == "a"
    assert stream.taken <= 4 * io.DEFAULT_BUFFER_SIZE
    reading.close()


# -- CSV --------------------------------------------------------------------------------------------------------------


def table(data: bytes | str, **options: str) -> list[Found | Fault]:
    raw = data.encode() if isinstance(data, str) else data
    return list(read_csv(io.BytesIO(raw), "f", **options))


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    st.lists(st.tuples(cells, cells, cells), max_size=5),
    st.sampled_from([",", "\t", ";"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_csv_round_trip(records: list[tuple[str, str, str]], delimiter: str, line_end: str) -> None:
    target = io.StringIO(newline="")
    writer = csv.writer(target, delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "author", "x"), *records])
    found = table(target.getvalue(), delimiter=delimiter)
    assert [item.fields for item in found if isinstance(item, Found)] == [
        {"text": text, "author": author, "x": x} for text, author, x in records
    ]
    assert len(found) == len(records)


def test_csv_places_a_record_at_its_first_line() -> None:
    found = table('\ufefftext,n\n"a\nb",1\n\n"c\r\nd",2\n')
    assert [(item.place, item.fields["text"]) for item in found if isinstance(item, Found)] == [
        ("f:2", "a\nb"),
        ("f:5", "c\r\nd"),
    ]


def test_csv_takes_cells_of_any_length_and_leaves_the_limit_of_the_module_as_it_was() -> None:
    outer = csv.field_size_limit(4321)
    try:
        (found,) = table(f"text\n{'a' * 1_000_000}\n")
        assert csv.field_size_limit() == 4321
    finally:
        csv.field_size_limit(outer)
    assert isinstance(found, Found)
    assert found.fields == {"text": "a" * 1_000_000}


@pytest.mark.parametrize(
    ("record", "place", "reason"),
    [
        (b"a", "f:3", "1 cells, but the header names 3 columns"),
        (b"a,b,,c", "f:3", "4 cells, but the header names 3 columns"),
        (b"a,b,c", "f:3", "cell 3 holds 'c', but the header gives its column no name"),
        (b'a,"b"c,', "f:3", "not CSV: ',' expected after '\"'"),
        (b"a\xe9,b,", "f:3", "not UTF-8 at byte 2 of the line (0xe9)"),
        (b'"a\nb\xff",c,', "f:4", "not UTF-8 at byte 2 of the line (0xff)"),
        ("é\udcff,b,".encode("utf-8", "surrogateescape"), "f:3", "not UTF-8 at byte 3 of the line (0xff)"),
    ],
)
def test_csv_fault_and_go_on(record: bytes, place: str, reason: str) -> None:
    first, fault, last = table(b"text,n,\nx,1,\n" + record + b"\ny,2,\n")
    assert isinstance(fault, Fault)
    assert fault.place == place
    assert fault.reason.startswith(reason)
    assert isinstance(first, Found)
    assert isinstance(last, Found)
    assert last.fields == {"text": "y", "n": "2"}


def test_csv_names_the_line_of_a_quotation_mark_that_is_never_closed() -> None:
    first, fault = table('text,n\nx,1\n"y,2\nz,3\n')
    assert isinstance(first, Found)
    assert fault == Fault("f:3", "not CSV: a quotation mark that opens here is never closed", fault.position)


@pytest.mark.parametrize(
    ("header", "reason"),
    [("a,b,a", "the header names the column 'a' twice"), (",", "the header names no column"), ('"a"b', "not CSV")],
)
def test_csv_without_a_usable_header_is_one_fault(header: str, reason: str) -> None:
    (fault,) = table(f"{header}\n1,2,3\n4,5,6\n")
    assert isinstance(fault, Fault)
    assert fault.place == "f:1"
    assert fault.reason.startswith(reason)


def test_csv_header_that_is_not_utf8_is_one_fault() -> None:
    (fault,) = table(b"text,gr\xf6\xdfe\na,1\n")
    assert fault == Fault("f:1", "not UTF-8 at byte 8 of the line (0xf6); convert the file to UTF-8", fault.position)


@pytest.mark.parametrize("data", ["", "\ufeff", "text\n", "\n\n"])
def test_csv_without_records_holds_nothing(data: str) -> None:
    assert table(data) == []


# -- Parquet ----------------------------------------------------------------------------------------------------------


def parquet(table: pa.Table, **options: object) -> list[Found | Fault]:
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    return list(read_parquet(io.BytesIO(target.getvalue()), "f"))


def test_parquet_rows_with_lists_dates_and_nulls() -> None:
    moment = dt.datetime(2024, 3, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
    rows = {
        "text": ["a", "b"],
        "occurred_at": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
        "author": [["Ada", "Bob"], []],
        "n": [1, None],
    }
    found = parquet(pa.table(rows))
    assert [(item.place, item.fields) for item in found if isinstance(item, Found)] == [
        ("f:1", {"text": "a", "occurred_at": moment, "author": ["Ada", "Bob"], "n": 1}),
        ("f:2", {"text": "b", "occurred_at": None, "author": [], "n": None}),
    ]


def test_parquet_nanoseconds_are_cut_to_microseconds() -> None:
    array = pa.array([1_709_294_400_123_456_789], pa.timestamp("ns"))
    (found,) = parquet(pa.table({"text": ["a"], "occurred_at": array}))
    assert isinstance(found, Found)
    assert found.fields["occurred_at"] == dt.datetime(2024, 3, 1, 12, 0, 0, 123456)


MOMENT = 1_709_294_400_123_456_789
TIMES = [
    (pa.timestamp("ns"), MOMENT, "2024-03-01T12:00:00.123456"),
    (pa.timestamp("ns", tz="+02:00"), MOMENT, "2024-03-01T14:00:00.123456+02:00"),
    (pa.timestamp("s"), -1, "1969-12-31T23:59:59"),
    (pa.date32(), 0, "1970-01-01"),
    (pa.time64("ns"), 3_723_000_000_999, "01:02:03"),
    (pa.time32("ms"), 1500, "00:00:01.500000"),
    (pa.duration("ns"), 93_784_000_005_999, "P1DT2H3M4.000005S"),
    (pa.duration("s"), -90, "-PT1M30S"),
]
SHAPES = [
    (lambda kind: kind, lambda value: value),
    (pa.list_, lambda value: [value, None]),
    (pa.large_list, lambda value: [value]),
    (lambda kind: pa.list_(kind, 2), lambda value: [value, None]),
    (lambda kind: pa.struct({"a": kind, "b": pa.string()}), lambda value: {"a": value, "b": "x"}),
    (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    (lambda kind: pa.list_(pa.struct({"a": pa.list_(kind)})), lambda value: [{"a": [None, value]}]),
]


@pytest.mark.parametrize(("kind", "value", "text"), TIMES)
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_parquet_dates_times_and_durations_become_text_at_any_depth(
    kind: pa.DataType, value: int, text: str, shape: int
) -> None:
    of_type, around = SHAPES[shape]
    column = pa.array([around(value), None], of_type(kind))
    found = parquet(pa.table({"text": ["a", "b"], "x": column}))
    assert all(isinstance(item, Found) for item in found), found
    first, second = (document(item.fields, "parquet")[0] for item in found if isinstance(item, Found))
    assert first["metadata"] == {"x": json.loads(json.dumps(around(text)))}
    assert second == {"text": "b"}


def test_parquet_zone_that_is_none_is_one_fault_that_names_it() -> None:
    zoned = pa.array([0], pa.timestamp("us", tz="Mars/Base"))
    for column in (zoned, pa.StructArray.from_arrays([zoned], ["a"]), pa.array([[0]], pa.list_(zoned.type))):
        (fault,) = parquet(pa.table({"text": ["a"], "when": column}))
        assert isinstance(fault, Fault)
        assert fault.reason.startswith("the column 'when' has the time zone 'Mars/Base', which is not known here")


def test_parquet_dates_that_python_does_not_have_lose_their_row_only() -> None:
    column = pa.array([2**50, 0], pa.timestamp("s"))
    fault, found = parquet(pa.table({"text": ["a", "b"], "x": column}))
    assert isinstance(fault, Fault)
    assert fault.reason.startswith("column 'x' holds a value that cannot be read")
    assert isinstance(found, Found)


@given(st.timedeltas())
def test_durations_in_iso_8601(value: dt.timedelta) -> None:
    match = re.fullmatch(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?", iso_duration(value))
    assert match is not None
    sign, days, hours, minutes, seconds = match.groups()
    whole, _, fraction = (seconds or "0").partition(".")
    read = dt.timedelta(
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(whole),
        microseconds=int(fraction.ljust(6, "0") or 0),
    )
    assert (-read if sign else read) == value
    assert not iso_duration(value).endswith(("P", "T"))


def test_parquet_goes_through_many_row_groups_in_order() -> None:
    texts = [f"document {number}" for number in range(1000)]
    found = parquet(pa.table({"text": texts}), row_group_size=70)
    assert [item.fields["text"] for item in found if isinstance(item, Found)] == texts
    positions = [item.position for item in found]
    assert positions == sorted(positions)


def test_parquet_faults() -> None:
    (fault,) = read_parquet(io.BytesIO(b"no parquet at all, by no means"), "f")
    assert isinstance(fault, Fault)
    assert fault.place == "f"
    assert fault.reason.startswith("not readable as Parquet: ")
    (fault,) = read_parquet(io.BytesIO(b""), "f")
    assert isinstance(fault, Fault)
    (fault,) = parquet(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]))
    assert isinstance(fault, Fault)
    assert fault.reason == "the file has the column 'text' twice; no row of it is read"


def test_parquet_bad_utf8_loses_its_row_only() -> None:
    bad = pa.Array.from_buffers(pa.utf8(), 3, pa.array([b"a", b"b\xff", b"c"], pa.binary()).buffers())
    first, fault, last = parquet(pa.table({"text": bad}))
    assert isinstance(first, Found)
    assert fault == Fault("f:2", "column 'text' is not UTF-8 at byte 2", fault.position)
    assert isinstance(last, Found)
    assert last.fields == {"text": "c"}


def test_parquet_damaged_in_the_middle_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    texts = [f"{number} {'x' * 50}" for number in range(3000)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=1000, compression="none", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[data.index(b"xxx", len(data) // 2)] = ord("y")  # it still decodes: only a checksum can tell
    found = list(read_parquet(io.BytesIO(bytes(data)), "f"))
    assert isinstance(found[-1], Fault)
    assert found[-1].reason.startswith("not readable as Parquet: ")
    assert [item.fields["text"] for item in found[:-1] if isinstance(item, Found)] == texts[: len(found) - 1]


# -- whole files ------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_a_text_file_is_one_document_byte_for_byte_but_for_a_byte_order_mark(text: str, mark: bool) -> None:
    if not mark and text.startswith("\ufeff"):
        text = text[1:]
    (found,) = read_text(io.BytesIO(("\ufeff" if mark else "").encode() + text.encode()), "f")
    assert isinstance(found, Found)
    assert found.fields == {"text": text}


def test_a_text_file_keeps_line_ends_and_loses_its_byte_order_mark() -> None:
    data = b"\xef\xbb\xbfa\r\nb\rc\n\x00\xef\xbb\xbf"
    (found,) = read_text(io.BytesIO(data), "f")
    assert isinstance(found, Found)
    assert found.fields["text"] == "a\r\nb\rc\n\x00\ufeff"


def test_a_text_file_names_line_and_byte_of_what_is_not_utf8() -> None:
    (fault,) = read_text(io.BytesIO(b"a\nb\xc3\xa9\xe9 c\n"), "f")
    assert fault == Fault("f:2", "not UTF-8 at byte 4 of the line (0xe9); convert the file to UTF-8", 9)


# -- fields -----------------------------------------------------------------------------------------------------------


def document(
    fields: dict[str, object], form: str = "json", *, maps: list[str] | None = None, **defaults: object
) -> tuple[dict[str, object], list[str]]:
    notes: list[str] = []
    naming = Naming(names=parse_map(maps or []), defaults=check_defaults(**defaults))
    return Fields(naming, notes.append).document(Found("f:1", fields, 0, form)), notes  # type: ignore[arg-type]


def test_known_keys_pass_and_others_go_to_metadata_with_a_note() -> None:
    given = {"text": "a", "occured_at": "2024-01-01", "metadata": {"x": 1}, "zzz": None, "date": "2024"}
    found, notes = document(given)
    assert found == {"text": "a", "metadata": {"x": 1, "occured_at": "2024-01-01", "zzz": None, "date": "2024"}}
    assert notes == [
        "f:1: 'occured_at' is no field of a document; kept in metadata; "
        "if it is the occurred_at, give --map occurred_at=occured_at",
        "f:1: 'zzz' is no field of a document; kept in metadata",
        "f:1: 'date' is no field of a document; kept in metadata; "
        "if it is the occurred_at, give --map occurred_at=date",
    ]


def test_a_key_is_named_once_and_not_every_one_of_very_many() -> None:
    notes: list[str] = []
    fields = Fields(Naming(), notes.append)
    for number in range(100):
        fields.document(Found(f"f:{number}", {"text": "a", f"key{number}": 1, "same": 2}, 0))
    assert sum("'same'" in note for note in notes) == 1
    assert len(notes) == 21
    assert "not named" in notes[-1]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("autor", "author"),
        ("tag", "tags"),
        ("Thread-ID", "thread"),
        ("sender", "author"),
        ("meta_data", "metadata"),
        ("price", None),
        ("x", None),
    ],
)
def test_hints_for_misspelt_and_for_customary_names(key: str, hint: str | None) -> None:
    _, (note,) = document({"text": "a", key: "v"})
    assert (f"if it is the {hint}, give --map {hint}={key}" in note) == (hint is not None)


def test_map_takes_a_field_from_another_key_and_frees_the_old_one() -> None:
    given = {"body": "a", "text": "short", "from": "Ada", "authors": ["x"], "id": 7}
    found, notes = document(given, maps=["text=body", "authors=from", "source=id", "thread=id"])
    assert found == {
        "text": "a",
        "author": "Ada",
        "source": "7",
        "thread": "7",
        "metadata": {"text": "short", "authors": ["x"]},
    }
    assert not any("give --map" in note for note in notes)


def test_maps_that_no_document_has() -> None:
    fields = Fields(Naming(names=parse_map(["text=body", "occurred_at=dat"])), lambda note: None)
    assert fields.unused() == []
    fields.document(Found("f:1", {"body": "a"}, 0))
    assert fields.unused() == ["occurred_at=dat"]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("text", "FIELD=KEY"),
        ("text=", "FIELD=KEY"),
        ("txt=body", "did you mean 'text'"),
        ("body=text", "the key in the file stands after the ="),
    ],
)
def test_map_that_is_not_usable(pair: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_map([pair])
    with pytest.raises(InputError, match="twice"):
        parse_map(["author=a", "authors=b"])


def test_cells_of_csv() -> None:
    given = {
        "text": " a ",
        "occurred_at": "",
        "author": "Doe, Jane; Bob ;",
        "tags": "x",
        "thread": " ",
        "metadata": '{"n": [1, null]}',
        "price": "12",
        "empty": "",
    }
    found, _ = document(dict(given), "csv")
    assert check_document(found) == check_document(
        {
            "text": " a ",
            "author": ["Doe, Jane", "Bob"],
            "tags": ["x"],
            "metadata": {"n": [1, None], "price": "12"},
        }
    )
    with pytest.raises(InputError, match="the column of metadata does not hold JSON"):
        document({"text": "a", "metadata": "{x}"}, "csv")


def test_values_of_parquet_become_json_in_metadata() -> None:
    given = {
        "text": "a",
        "occurred_at": dt.date(2024, 2, 29),
        "thread": 12,
        "day": dt.date(2024, 1, 2),
        "price": Decimal("1.50"),
        "nested": {"at": [dt.datetime(2024, 1, 2, tzinfo=dt.UTC)]},
    }
    found, _ = document(given, "parquet")
    assert found["thread"] == "12"
    assert found["metadata"] == {
        "day": "2024-01-02",
        "price": "1.50",
        "nested": {"at": ["2024-01-02T00:00:00+00:00"]},
    }
    nan = float("nan")
    found, _ = document({"text": "a", "n": nan, "deep": [nan, 1.5], "gone": None, "empty": ""}, "parquet")
    assert found["metadata"] == {"deep": [None, 1.5], "empty": ""}
    for value, what in ((b"x", "bytes"), ([{"a": b"x"}], "bytes"), (float("inf"), "a value of type float")):
        with pytest.raises(InputError, match=f"column 'raw' holds {what}, which metadata cannot keep"):
            document({"text": "a", "raw": value}, "parquet")
    with pytest.raises(InputError, match=r"column 'metadata\.raw' holds bytes"):
        document({"text": "a", "metadata": {"raw": b"x"}}, "parquet")
    with pytest.raises(InputError, match="no text: the column 'body' holds null"):
        document({"body": None}, "parquet", maps=["text=body"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"body": "a"}, "no text: there is no key 'text', only 'body'"),
        ({}, "no text: there is no key 'text', only none"),
        ({"text": None}, "no text: the key 'text' holds null"),
        ({"text": 5}, "text must be text, not int"),
        ({"text": "a", "tags": 5}, "tags must be a text or several texts"),
        ({"text": "a", "author": "x", "authors": "y"}, "both 'author' and 'authors'"),
        ({"text": "a", "metadata": [1]}, "metadata must be an object, not list"),
        ({"text": "a", "metadata": {"x": 1}, "x": 2}, "'x' stands in metadata and beside it"),
        ({"text": "a\ud800"}, "lone surrogate"),
        ({"text": "a", "thread": True}, "thread must be text, not bool"),
        ({"text": "a", "x": float("nan")}, "metadata is not JSON"),
    ],
)
def test_documents_that_are_not_usable(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        document(fields)


@pytest.mark.parametrize("date", ["", "2024-06", 1717200000, "yesterday"])
def test_dates_that_are_none(date: object) -> None:
    with pytest.raises(InvalidDateError, match="occurred_at is no date"):
        document({"text": "a", "occurred_at": date})


def test_defaults_apply_where_a_document_has_none() -> None:
    defaults = {"author": ["Ada"], "tags": ["t"], "thread": "x", "kind": "mail", "occurred_at": "2024-01-01"}
    found, _ = document({"text": "a", "author": [], "tags": None, "thread": ""}, **defaults)
    assert found == {"text": "a", **defaults}
    own = {"text": "a", "author": "Bob", "tags": ["own"], "thread": "y", "kind": "chat", "occurred_at": "2023-01-01"}
    assert document(own, **defaults)[0] == own
    assert document({"text": "a"}, "file", thread="x")[0] == {"text": "a", "source": "f:1", "thread": "x"}
    with pytest.raises(InputError, match="occurred_at is no date: '2024'"):
        check_defaults(occurred_at="2024")


# -- which files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.MD", "a.txt", "sub/c.jsonl", "sub/.hidden.md", ".git/x.md", "z.pdf", "sub/noext", "a0/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def test_a_folder_is_read_in_sorted_order_without_hidden_and_unknown_files(folder: Path) -> None:
    found = find_files([str(folder)])
    assert [(file.path.removeprefix(f"{folder}/"), file.format.name) for file in found.files] == [
        ("a.txt", "text"),
        ("b.MD", "text"),
        ("a0/d.csv", "csv"),
        ("sub/c.jsonl", "jsonl"),
    ]
    assert [path.removeprefix(f"{folder}/") for path in found.unknown] == ["z.pdf", "sub/noext"]


def test_a_named_format_holds_for_every_file(folder: Path) -> None:
    found = find_files([str(folder)], format_name="text")
    assert len(found.files) == 6
    assert {file.format.name for file in found.files} == {"text"}
    assert found.unknown == ()


def test_a_store_in_a_folder_is_not_read(folder: Path) -> None:
    store = folder / "acme.mempp"
    (store / "log").mkdir(parents=True)
    (store / "store.json").write_text("{}")
    (store / "log" / "1.parquet").write_text("x")
    found = find_files([str(folder)])
    assert found.stores == (str(store),)
    assert not any("acme" in file.path for file in found.files)


def test_paths_that_cannot_be_read_or_whose_format_is_unknown(folder: Path) -> None:
    with pytest.raises(SourceFileError, match=r"cannot read .*missing.*: No such file or directory"):
        find_files([str(folder / "missing.jsonl")])
    with pytest.raises(SourceFileError):
        find_files(["a\0b"])
    with pytest.raises(InputError, match=r"z\.pdf' does not tell its format; name it with --format: jsonl, csv"):
        find_files([str(folder / "z.pdf")])
    with pytest.raises(InputError, match="there is no format 'xml'"):
        find_files([str(folder)], format_name="xml")
    with pytest.raises(InputError, match="named twice"):
        find_files(["-", "-"])
    with pytest.raises(InputError, match="cannot be read from standard input"):
        find_files(["-"], format_name="parquet")


def test_a_file_that_vanishes_or_is_refused_is_a_fault(folder: Path) -> None:
    (file,) = find_files([str(folder / "a.txt")]).files
    (folder / "a.txt").unlink()
    assert list(file.read()) == [Fault(file.path, "cannot be read: No such file or directory")]


def test_a_file_name_that_is_not_utf8_gives_a_source_that_can_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9.md"
    try:
        path.write_text("x")
    except OSError:
        pytest.skip("this file system takes only names in UTF-8")
    (file,) = find_files([str(tmp_path)]).files
    (found,) = file.read()
    assert isinstance(found, Found)
    fields = Fields(Naming(), lambda note: None).document(found)
    assert str(fields["source"]).endswith("caf\ufffd.md")


def test_a_delimiter_for_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text;tags\na, b;x\n")
    (file,) = find_files([str(tmp_path)], delimiter=";").files
    assert [item.fields for item in file.read() if isinstance(item, Found)] == [{"text": "a, b", "tags": "x"}]


def test_a_mapped_field_is_also_taken_under_its_own_name():
    """A file that says `date` here and `occurred_at` there loses neither, whatever --map names."""
    notes = []
    fields = Fields(Naming(names={"occurred_at": "date"}), notes.append)
    mapped = fields.document(Found("f:1", {"text": "a", "date": "2024-01-01"}, 0))
    own = fields.document(Found("f:2", {"text": "b", "occurred_at": "2024-02-02"}, 0))
    both = fields.document(Found("f:3", {"text": "c", "occurred_at": "2024-02-02", "date": "2024-03-03"}, 0))
    assert mapped["occurred_at"] == "2024-01-01"
    assert own["occurred_at"] == "2024-02-02"
    assert "metadata" not in own
    assert both["occurred_at"] == "2024-03-03"
    assert both["metadata"] == {"occurred_at": "2024-02-02"}
    assert notes == ["f:3: 'occurred_at' is not used, since --map takes the occurred_at from 'date'; kept in metadata"]
