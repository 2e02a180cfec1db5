"""Export and back, proof, copies, the past and changes of state, from the command line."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import WordEncoder

import mempp
from mempp.cli import export, main

ROOT = Path(__file__).resolve().parent.parent

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _without_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPP_ENCODER", "none")


def in_process_of_its_own(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return subprocess.run(
        [sys.executable, "-m", "mempp", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, "MEMPP_ENCODER": "none"},
        timeout=120,
        check=False,
    )


def run(capsys: Capture, *arguments: object, code: int = 0) -> str:
    """What a command prints on stdout; nothing else there when it fails."""
    assert main([*map(str, arguments)]) == code
    return capsys.readouterr().out


def result(capsys: Capture, *arguments: object, code: int = 0) -> dict[str, object]:
    value = json.loads(run(capsys, *arguments, "--json", code=code))
    assert isinstance(value, dict)
    return value


def make(path: Path) -> Path:
    """A store of five documents in five commits: 0 superseded by 1, 2 retracted, 3 archived into 4."""
    with mempp.open(path, encoder="none") as memory:
        memory.add("We use Vendor A.", occurred_at="2024-01-10", author="it", tags=["vpn"], metadata={"prio": 3})
        memory.add("Board approved Vendor B.", occurred_at="2025-03-27", author=["board", "Ada"], thread="7")
        memory.add("Said in error.", source="m-1", kind="mail")
        memory.add("Part one.", occurred_at="2025-05-01")
        memory.add("The whole.", occurred_at="2025-06-01")
        memory.supersede(0, by=1)
        memory.retract(2, reason="wrong\nperson")
        memory.archive(3, into=4)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "s")


def contents(path: Path) -> list[tuple[object, ...]]:
    """Every document of a store, in order, whatever its state, without what storing gave it."""
    with mempp.open(path, read_only=True, encoder="none") as memory:
        records = [memory.get(row) for row in range(len(memory))]
    return [
        (one.text, one.occurred_at, one.authors, one.tags, one.source, one.thread, one.kind, one.metadata)
        for one in records
    ]


# -- export -----------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]))
odd_texts = texts | st.sampled_from(
    ["\ufeffmarked", "a\u2028b\x85c\x0cd", "\r\n \r", '"\\\n{"', "\x00\x1b[31m", "日本語 👩‍🚀", " x ", "null", "1e5"]
)
dates = st.none() | st.datetimes(timezones=st.just(dt.UTC)) | st.dates()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
documents = st.fixed_dictionaries(
    {"text": odd_texts},
    optional={
        "occurred_at": dates,
        "author": st.lists(odd_texts, max_size=3),
        "tags": st.lists(odd_texts, max_size=3),
        "source": odd_texts,
        "thread": odd_texts | st.just("123"),
        "kind": odd_texts,
        "metadata": st.dictionaries(texts | st.sampled_from(["text", "author", "metadata"]), json_values, max_size=3),
    },
)


@settings(max_examples=40)
@given(given_documents=st.lists(documents, max_size=8), file_format=st.sampled_from(["jsonl", "parquet"]))
def test_what_is_exported_comes_back_as_the_same_documents(
    given_documents: list[dict[str, object]], file_format: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with mempp.open(folder / "a", encoder="none") as memory:
            memory.add_many(given_documents)
        out = folder / f"out.{file_format}"
        assert main(["export", str(folder / "a"), "--out", str(out), "-q"]) == 0
        expected = contents(folder / "a")
        if file_format == "parquet":
            assert pq.read_table(out)["text"].to_pylist() == [one[0] for one in expected]
        else:
            assert [json.loads(line)["text"] for line in out.read_bytes().splitlines() if line] == [
                one[0] for one in expected
            ]
        with mempp.open(folder / "b", encoder="none"):
            pass
        assert main(["add", str(folder / "b"), str(out), "--encoder", "none", "-q"]) == 0
        assert contents(folder / "b") == expected


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_all_brings_archived_and_retracted_documents_along(store: Path, capsys: Capture, file_format: str) -> None:
    out = store.parent / f"out.{file_format}"
    assert main(["export", str(store), "--all", "--out", str(out)]) == 0
    message = capsys.readouterr().err
    assert message == (
        f"mempp: exported 5 documents to {out} "
        "(2 of them archived or retracted, which `mempp add` takes back as active)\n"
    )
    run(capsys, "add", store.parent / "back", out)
    assert contents(store.parent / "back") == contents(store)
    assert main(["export", str(store), "--out", str(out), "--force"]) == 0
    assert capsys.readouterr().err == (
        f"mempp: exported 3 documents to {out} (without 2 archived or retracted; see --all)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ([], [0, 1, 4]),
        (["--all"], [0, 1, 2, 3, 4]),
        (["--as-of", "2024-12-31"], [0]),
        (["--as-of", "2025-05-15"], [0, 1, 3]),  # before its group is complete, an archived row is there
        (["--since", "2025-01-01"], [1, 4]),
        (["--known-at", "2"], [0, 1, 2]),
        (["--author", "ADA", "--author", "it"], [0, 1]),
        (["--tag", "vpn"], [0]),
        (["--thread", "7"], [1]),
        (["--source", "m-1"], []),
        (["--where", "prio=3"], [0]),
        (["--at", "3", "--source", "m-1"], [2]),
        (["--at", "3"], [0, 1, 2, 3]),
        (["--at", "1", "--all"], [0, 1]),
        (["--at", "2000-01-01"], []),
    ],
)
def test_a_scope_of_the_record(
    store: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, arguments: list[str], rows: list[int]
) -> None:
    monkeypatch.setattr(export, "_ROWS_AT_ONCE", 2)
    expected = [contents(store)[row][0] for row in rows]
    lines = run(capsys, "export", store, *arguments).splitlines()
    assert [json.loads(line)["text"] for line in lines] == expected


def test_many_documents_are_written_in_portions(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(export, "_GROUP_ROWS", 10)
    monkeypatch.setattr(export, "_PORTION_CHARACTERS", 100)
    with mempp.open(tmp_path / "s", encoder="none") as memory:
        memory.add_many(f"document {number}" for number in range(53))
    expected = [f"document {number}" for number in range(53)]
    for name in ("a.jsonl", "a.ndjson", "a.PARQUET"):
        run(capsys, "export", tmp_path / "s", "--out", tmp_path / name, "-q")
    assert [json.loads(line)["text"] for line in (tmp_path / "a.jsonl").read_text().splitlines()] == expected
    assert (tmp_path / "a.ndjson").read_text() == (tmp_path / "a.jsonl").read_text()
    file = pq.ParquetFile(tmp_path / "a.PARQUET")
    assert file.metadata.num_row_groups == 6
    assert file.read()["text"].to_pylist() == expected


def test_what_export_refuses(store: Path, capsys: Capture) -> None:
    (store.parent / "there.jsonl").write_text("mine")
    (store.parent / "folder.jsonl").mkdir()
    for arguments, what in [
        (["--out", "there.jsonl"], "exists already; --force replaces it"),
        (["--out", "s/log/x.jsonl", "--force"], "lies within the store"),
        (["--out", "folder.jsonl", "--force"], "is no regular file"),
        (["--out", "x.csv"], "does not tell its format"),
        (["--out", "x.csv", "--format", "csv"], "--format must be jsonl or parquet, got 'csv'"),
        (["--out", "a\0b.jsonl"], "is no name of a file"),
        (["--format", "parquet"], "parquet cannot go to standard output"),
        (["--all", "--author", "it"], "--all takes no bounds and filters"),
        (["--as-of", "2024"], "as_of is no date: '2024'"),
        (["--at", "soon"], "at is no date: 'soon'"),
    ]:
        given = list(arguments)
        if arguments[0] == "--out":
            given[1] = str(store.parent / arguments[1])
        assert main(["export", str(store), *given]) == 2, arguments
        captured = capsys.readouterr()
        assert captured.out == ""
        assert what in captured.err
        assert captured.err.count("\n") == 1
    assert (store.parent / "there.jsonl").read_text() == "mine"
    assert sorted(path.name for path in store.parent.iterdir()) == ["folder.jsonl", "s", "there.jsonl"]
    assert main(["export", str(store), "--out", str(store.parent / "none" / "x.jsonl")]) == 1
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("force", [False, True])
def test_a_file_appears_whole_or_not_at_all(
    store: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    out = store.parent / "out.jsonl"
    if force:
        out.write_text("before")

    def interrupted(record: mempp.Record) -> dict[str, object]:
        if record.row_id == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return {"text": record.text}

    monkeypatch.setattr(export, "as_document", interrupted)
    assert main(["export", str(store), "--out", str(out), *(["--force"] if force else [])]) == 130
    assert sorted(path.name for path in store.parent.iterdir()) == [*(["out.jsonl"] if force else []), "s"]
    if force:
        assert out.read_text() == "before"


def test_a_file_that_appears_meanwhile_is_not_replaced(
    store: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = store.parent / "out.jsonl"
    whole = export.as_document

    def beside_another(record: mempp.Record) -> dict[str, object]:
        out.write_text("another's")
        return whole(record)

    monkeypatch.setattr(export, "as_document", beside_another)
    assert main(["export", str(store), "--out", str(out)]) == 2
    assert out.read_text() == "another's"
    assert sorted(path.name for path in store.parent.iterdir()) == ["out.jsonl", "s"]


def test_a_link_keeps_leading_to_what_is_replaced(store: Path, capsys: Capture) -> None:
    (store.parent / "real.jsonl").write_text("before")
    (store.parent / "link.jsonl").symlink_to("real.jsonl")
    run(capsys, "export", store, "--out", store.parent / "link.jsonl", "--force", "-q")
    assert (store.parent / "link.jsonl").is_symlink()
    assert len((store.parent / "real.jsonl").read_text().splitlines()) == 3


# -- proof ------------------------------------------------------------------------------------------------------------


def test_verify_a_sound_store(store: Path, capsys: Capture) -> None:
    with mempp.open(store, read_only=True, encoder="none") as memory:
        head = memory.head_digest
    report = result(capsys, "verify", store)
    assert (report["ok"], report["rows"], report["entries"], report["head_digest"]) == (True, 5, 8, head)
    out = run(capsys, "verify", store)
    assert out.splitlines()[0].split() == ["sound", "yes"]
    assert out.splitlines()[-1].split() == ["head", "digest", head]
    assert capsys.readouterr().err == ""


def test_an_expected_digest_shows_that_the_end_was_cut_off(store: Path, capsys: Capture) -> None:
    journals = {path: path.read_bytes() for path in (store / "journal").iterdir()}
    before = str(result(capsys, "verify", store)["head_digest"])
    run(capsys, "reinstate", store, 2)
    after = str(result(capsys, "verify", store)["head_digest"])
    assert result(capsys, "verify", store, "--expect", before)["expected_at"] == 8
    assert "after 8 of 9 entries" in run(capsys, "verify", store, "--expect", before.upper())
    for path, data in journals.items():
        path.write_bytes(data)
    assert run(capsys, "verify", store)  # alone, nothing is to be seen of it
    assert result(capsys, "verify", store, "--expect", after, code=1)["ok"] is False
    assert main(["verify", str(store), "--expect", after]) == 1
    captured = capsys.readouterr()
    assert f"log: the chain never had the expected digest {after}" in captured.out
    assert captured.err == f"mempp: {store} is not sound: 1 problem; restore it from a snapshot\n"
    assert main(["verify", str(store), "--expect", after[:-1]]) == 2
    assert "is no digest" in capsys.readouterr().err


def test_a_damaged_store_is_told_refused_and_read_for_rescue(tmp_path: Path) -> None:
    store = make(tmp_path / "s")
    (journal,) = (store / "journal").iterdir()
    data = bytearray(journal.read_bytes())
    place = data.index(b"Board approved")
    data[place] ^= 1
    journal.write_bytes(data)
    done = in_process_of_its_own("verify", store)
    assert done.returncode == 1
    (problem,) = [line for line in done.stdout.decode().splitlines() if line.startswith("problem")]
    assert f"journal/{journal.name}: " in problem
    assert "(sequence 1, row 1)" in problem
    assert json.loads(in_process_of_its_own("verify", store, "--json").stdout)["problems"][0]["first_row"] == 1
    for command in (["show", store, 0], ["export", store]):
        refused = in_process_of_its_own(*command)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"is damaged" in refused.stderr
    shown = in_process_of_its_own("show", store, 4, "--allow-damaged")
    assert (shown.returncode, shown.stdout.endswith(b"\n\nThe whole.\n")) == (0, True)
    assert shown.stderr.startswith(b"mempp: warning: ")
    lost = in_process_of_its_own("show", store, 1, "--allow-damaged")
    assert lost.returncode == 1
    assert b"row 1 is lost" in lost.stderr
    saved = in_process_of_its_own("export", store, "--all", "--allow-damaged", "--out", tmp_path / "saved.jsonl")
    assert saved.returncode == 0
    assert b"exported 4 documents" in saved.stderr
    assert b"1 lost with the damaged part" in saved.stderr
    lines = (tmp_path / "saved.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == [
        "We use Vendor A.", "Said in error.", "Part one.", "The whole.",
    ]  # fmt: skip


# -- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["snapshot", "snapshot.tar"])
def test_a_snapshot_is_taken_and_brought_back(store: Path, capsys: Capture, name: str) -> None:
    head = result(capsys, "verify", store)["head_digest"]
    taken = result(capsys, "snapshot", store, store.parent / name)
    assert (taken["rows"], taken["entries"], taken["head_digest"]) == (5, 8, head)
    back = result(capsys, "restore", store.parent / name, store.parent / "back")
    assert (back["rows"], back["head_digest"], back["path"]) == (5, head, str(store.parent / "back"))
    assert contents(store.parent / "back") == contents(store)
    assert result(capsys, "verify", store.parent / "back")["ok"] is True
    assert str(head) in run(capsys, "restore", store.parent / name, store.parent / "again")
    assert main(["restore", str(store.parent / name), str(store.parent / "back")]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_a_second_snapshot_copies_what_is_new(store: Path, capsys: Capture) -> None:
    run(capsys, "snapshot", store, store.parent / "copy")
    run(capsys, "reinstate", store, 2)
    assert "documents               5" in run(capsys, "snapshot", store, store.parent / "copy")
    run(capsys, "restore", store.parent / "copy", store.parent / "back")
    assert result(capsys, "verify", store.parent / "back")["entries"] == 9
    assert main(["snapshot", str(store), str(store / "inside")]) == 2
    assert "within the store" in capsys.readouterr().err


def test_a_snapshot_without_vectors(tmp_path: Path, capsys: Capture) -> None:
    with mempp.open(tmp_path / "s", encoder=WordEncoder()) as memory:
        memory.add("alpha beta")
    for arguments, count in (([], 1), (["--no-vectors"], 0)):
        name = f"copy{count}"
        run(capsys, "snapshot", tmp_path / "s", tmp_path / f"{name}.tar", *arguments)
        run(capsys, "restore", tmp_path / f"{name}.tar", tmp_path / name)
        vectors = result(capsys, "verify", tmp_path / name)["vectors"]
        assert isinstance(vectors, dict)
        assert sum(vectors.values()) == count


def test_compacting_keeps_the_chain(store: Path, capsys: Capture) -> None:
    head = result(capsys, "verify", store)["head_digest"]
    report = result(capsys, "compact", store)
    assert report["segments_before"] == report["segments_after"]
    assert "segments" in run(capsys, "compact", store)
    assert result(capsys, "verify", store)["head_digest"] == head


# -- states and the past ----------------------------------------------------------------------------------------------


def test_states_are_changed_from_the_shell(tmp_path: Path, capsys: Capture) -> None:
    with mempp.open(tmp_path / "s", encoder="none") as memory:
        memory.add_many(["old", "new", "wrong"])
    store = tmp_path / "s"
    assert result(capsys, "supersede", store, 0, 1) == {"store": str(store), "row_id": 0, "sequence": 3}
    assert main(["retract", str(store), "2", "--reason", "not ours"]) == 0
    assert capsys.readouterr().err == "mempp: row 2 is retracted (entry 4)\n"
    with mempp.open(store, read_only=True, encoder="none") as memory:
        assert memory.get(0).state.by == 1
        assert (memory.get(2).state.status, memory.get(2).state.reason) == ("retracted", "not ours")
    run(capsys, "reinstate", store, 2, "--reason", "ours after all")
    run(capsys, "reinstate", store, 0)
    with mempp.open(store, read_only=True, encoder="none") as memory:
        assert [record.state.status for record in memory.records()] == ["active"] * 3
    for arguments, code, what in (
        (["retract", store, 9], 1, "there is no row 9"),
        (["supersede", store, 1, 1], 2, ""),
        (["retract", tmp_path / "none", 0], 1, "there is no Mem++ store"),
    ):
        assert main([str(one) for one in arguments]) == code
        captured = capsys.readouterr()
        assert captured.err.startswith(f"mempp: {what}")
        assert captured.err.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_history(store: Path, capsys: Capture) -> None:
    history = result(capsys, "history", store, 1)
    assert [record["row_id"] for record in history["replaced"]] == [0]  # type: ignore[attr-defined, union-attr]
    assert (history["replaced_by"], history["changes"]) == ([], [])
    (change,) = result(capsys, "history", store, 2)["changes"]  # type: ignore[misc]
    assert {**change, "ingested_at": ""} == {
        "sequence": 6,
        "ingested_at": "",
        "kind": "retract",
        "row_id": 2,
        "related": None,
        "reason": "wrong\nperson",
    }
    first, second = run(capsys, "history", store, 2).splitlines()
    assert first == "undated  row 2  retracted: wrong person  m-1  Said in error."
    assert second.startswith("    entry 6  20")
    assert second.endswith("  retracted: wrong person")
    out = run(capsys, "history", store, 0)
    assert "\nreplaced by\n2025-03-27  row 1  board, Ada  Board approved Vendor B.\n" in out
    assert "archived into row 4" in run(capsys, "history", store, 3)


def test_changes(store: Path, capsys: Capture) -> None:
    everything = result(capsys, "changes", store)
    assert [record["row_id"] for record in everything["records"]] == [0, 1, 2, 3, 4]  # type: ignore[attr-defined, union-attr]
    assert [change["kind"] for change in everything["states"]] == [  # type: ignore[attr-defined, union-attr]
        "supersede", "retract", "archive",
    ]  # fmt: skip
    happened = result(capsys, "changes", store, "--by", "event", "--since", "2025-03-01", "--until", "2025-05-01")
    assert [record["row_id"] for record in happened["records"]] == [1, 3]  # type: ignore[attr-defined, union-attr]
    assert [change["sequence"] for change in happened["states"]] == [5]  # type: ignore[attr-defined, union-attr]
    out = run(capsys, "changes", store)
    assert out.startswith("documents\n2024-01-10  row 0  superseded by row 1  it  We use Vendor A.\n")
    assert "\n\nstates\nrow 0  entry 5  20" in out
    assert main(["changes", str(store), "--until", "2000-01-01"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "mempp: no changes\n")
    assert main(["changes", str(store), "--by", "day"]) == 2
    assert main(["changes", str(store), "--since", "2024"]) == 2


@pytest.mark.parametrize("number", range(8))
def test_the_past_is_opened_with_at(store: Path, capsys: Capture, number: int) -> None:
    with mempp.open(store, at=number, encoder="none") as memory:
        hits = memory.recall("vendor")
        evidence = str(memory.evidence("vendor"))
        statistics = memory.stats()
    at = ("--at", number)
    answer = result(capsys, "recall", store, "vendor", *at)["hits"]
    assert [(hit["row_id"], hit["state"]["status"]) for hit in answer] == [  # type: ignore[attr-defined, union-attr]
        (hit.row_id, hit.record.state.status) for hit in hits
    ]
    assert run(capsys, "evidence", store, "vendor", *at) == evidence + "\n"
    assert result(capsys, "stats", store, *at)["rows"] == statistics.rows == min(number + 1, 5)
    shown = result(capsys, "show", store, 0, *at)
    assert shown["state"]["status"] == ("active" if number < 5 else "superseded")  # type: ignore[index, call-overload]
    assert main(["show", str(store), "4", "--at", str(number)]) == (0 if number >= 4 else 1)
    stamp = shown["ingested_at"] if number == 0 else None
    if stamp is not None:
        assert result(capsys, "stats", store, "--at", stamp)["rows"] == 1
