"""The command as a process: exit codes, stdout, stderr, and what is left in the store."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import WordEncoder

import mempp
from mempp.adding import Adding
from mempp.cli import main
from mempp.cli.document import START, reference
from mempp.cli.output import visible
from mempp.cli.progress import described, duration

ROOT = Path(__file__).resolve().parent.parent
EVIL = "red \x1b[31malert\x1b[0m \x9b5n \u202etxt \x07 [bold]markup[/bold] :smile:\r\nsecond line"
DOCUMENTS = [
    {"text": "We use Vendor A for the VPN.", "occurred_at": "2024-01-10", "author": "it", "tags": ["vpn"], "prio": 3},
    {
        "text": "Board approved Vendor B for the VPN.",
        "occurred_at": "2025-03-27",
        "author": ["board", "Ada"],
        "prio": "3",
    },
    {"text": EVIL, "author": "mal\x1b]0;title\x07lory", "source": "s\x1b[2J", "thread": "t-1", "kind": "mail"},
    {"text": "日本語のテキスト" * 40, "occurred_at": "2024-05-01T09:30:00+02:00", "author": "山田"},
]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMPP_")}
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {**kept, "PYTHONPATH": path, "MEMPP_ENCODER": "none", **more}


def command(*arguments: object, cwd: Path, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "mempp", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env=environment(**more),
        timeout=60,
        check=False,
    )


def json_lines(*documents: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in documents)


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of four documents, the first superseded by the second; not to be written to."""
    folder = tmp_path_factory.mktemp("acme")
    (folder / "a.jsonl").write_bytes(json_lines(*DOCUMENTS))
    done = command("add", "store", "a.jsonl", "--json", "-q", cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    assert report == {
        "store": "store",
        "added": 4,
        "repeated": 0,
        "empty": 0,
        "bad": 0,
        "files": 1,
        "files_skipped": 0,
        "stopped_by": None,
        "row_ids": [0, 1, 2, 3],
    }
    with mempp.open(folder / "store", encoder="none") as memory:
        memory.supersede(0, by=1)
    return folder


def texts(store: Path) -> list[str]:
    with mempp.open(store, read_only=True, encoder="none") as memory:
        return [record.text for record in memory.records()]


# -- add --------------------------------------------------------------------------------------------------------------


def test_adding_again_adds_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "a"}, {"text": " \n"}, {"text": "b"}, {"text": "a"}))
    first = command("add", "s", "a.jsonl", cwd=tmp_path)
    assert first.returncode == 0
    assert first.stdout == b""
    assert re.fullmatch(rb"mempp: added 2 documents to s in [\d.]+ s \(1 were there already, 1 empty\)\n", first.stderr)
    again = command("add", "s", "a.jsonl", "--json", cwd=tmp_path)
    assert again.returncode == 0
    assert again.stderr == b"mempp: nothing new for s (3 were there already, 1 empty)\n"
    assert json.loads(again.stdout)["row_ids"] == [0, None, 1, 0]
    assert texts(tmp_path / "s") == ["a", "b"]


def test_add_a_folder_of_every_format(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(json_lines({"text": "from jsonl"}))
    (folder / "b.csv").write_text("text,author,tags\nfrom csv,A; B,x;y\n")
    (folder / "c.tsv").write_text("text\tdate\nfrom tsv\t2024-01-01\n")
    pq.write_table(pa.table({"text": ["from parquet"], "n": [1]}), folder / "d.parquet")
    (folder / "e.md").write_bytes(b"# from\r\nmarkdown\n")
    (folder / "f.txt").write_bytes(b"from text")
    (folder / "g.pdf").write_bytes(b"%PDF")
    done = command("add", "in/store", "in", "--tag", "default", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"1 file of unknown format not read: in/g.pdf" in done.stderr
    assert b"in/c.tsv:2: 'date' is no field of a document; kept in metadata; if it is the occurred_at" in done.stderr
    with mempp.open(folder / "store", read_only=True, encoder="none") as memory:
        records = memory.records()
    assert [record.text for record in records] == [
        "from jsonl", "from csv", "from tsv", "from parquet", "# from\r\nmarkdown\n", "from text",
    ]  # fmt: skip
    assert records[1].authors == ("A", "B")
    assert [record.tags for record in records[:3]] == [("default",), ("x", "y"), ("default",)]
    assert records[2].metadata == {"date": "2024-01-01"}
    assert records[3].metadata == {"n": 1}
    assert [record.source for record in records] == [None, None, None, None, "in/e.md", "in/f.txt"]
    again = command("add", "in/store", "in", "--tag", "default", cwd=tmp_path)
    assert again.stderr.endswith(b"mempp: nothing new for in/store (6 were there already)\n")
    assert b"note: in/store is a Mem++ store; not read" in again.stderr


def test_add_from_standard_input(tmp_path: Path) -> None:
    done = command("add", "s", "-", "--map", "text=body", cwd=tmp_path, stdin=json_lines({"body": "x"}))
    assert (done.returncode, texts(tmp_path / "s")) == (0, ["x"])
    done = command("add", "s", "-", "--format", "csv", "--delimiter", ";", cwd=tmp_path, stdin=b'text;n\n"a\nb";1\n')
    assert (done.returncode, texts(tmp_path / "s")) == (0, ["x", "a\nb"])
    done = command("add", "s", "-", "--format", "text", cwd=tmp_path, stdin="ü\r\n".encode())
    assert (done.returncode, texts(tmp_path / "s")) == (0, ["x", "a\nb", "ü\r\n"])
    done = command("add", "s", "-", cwd=tmp_path, stdin=b'{"text": "y"}\n{"text"}\n')
    assert done.returncode == 1
    assert done.stderr.startswith(b"mempp: <stdin>:2: not JSON: ")
    assert done.stderr.endswith(b"; 1 document added before stays\n")


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (b"{", b"not JSON: Expecting property name"),
        (b"[]", b"not a JSON object but a list"),
        (b'{"body": "x"}', b"no text: there is no key 'text', only 'body'"),
        (b'{"text": "x", "occurred_at": "2024-13-01"}', b"occurred_at is no date: '2024-13-01'"),
        (b'{"text": "\xff"}', b"not UTF-8 at byte 11 of the line (0xff)"),
    ],
)
def test_a_bad_line_stops_and_what_stands_before_it_stays(tmp_path: Path, bad: bytes, what: bytes) -> None:
    good = [json_lines({"text": f"document {number}"}) for number in range(5)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(good[:3]) + bad + b"\n" + b"".join(good[3:]))
    (tmp_path / "b.jsonl").write_bytes(json_lines({"text": "of another file"}))
    done = command("add", "s", "a.jsonl", "b.jsonl", "--batch-size", 2, "--json", cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(b"mempp: a.jsonl:4: " + what)
    assert line.endswith(b"; 3 documents added before stay")
    report = json.loads(done.stdout)
    assert report["added"] == 3
    assert report["stopped_by"].startswith("a.jsonl:4: ")
    assert texts(tmp_path / "s") == ["document 0", "document 1", "document 2"]
    done = command("add", "s", "a.jsonl", "b.jsonl", "--skip-bad", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith(b"mempp: skipped: a.jsonl:4: " + what)
    assert re.search(rb"added 3 documents to s in .* \(3 were there already, 1 bad, skipped\)\n$", done.stderr)
    assert len(texts(tmp_path / "s")) == 6


def test_many_bad_lines_are_counted_and_not_all_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x\n" * 50 + json_lines({"text": "a"}))
    done = command("add", "s", "a.jsonl", "--skip-bad", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count(b"skipped: a.jsonl:") == 10
    assert b"50 bad, skipped" in done.stderr


def test_nothing_is_created_where_the_files_or_the_usage_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("x")
    (tmp_path / "a.jsonl").write_text("")
    for arguments, code in [
        (["add", "s", "missing.jsonl"], 1),
        (["add", "s", "a.xyz"], 2),
        (["add", "s", "a.jsonl", "--date", "2024"], 2),
        (["add", "s", "a.jsonl", "--map", "txt=body"], 2),
        (["add", "s", "a.jsonl", "--format", "xml"], 2),
        (["add", "s", "a.jsonl", "--batch-size", "0"], 2),
        (["add", "s", "a.jsonl", "--delimiter", "ab"], 2),
        (["add", "s"], 2),
        (["recall", "s", "x"], 1),
        (["evidence", "s", "x"], 1),
        (["show", "s", "0"], 1),
        (["stats", "s"], 1),
        (["embed", "s"], 1),
        (["export", "s", "--out", "x.jsonl"], 1),
        (["history", "s", "0"], 1),
        (["changes", "s"], 1),
        (["retract", "s", "0"], 1),
        (["verify", "s"], 1),
        (["snapshot", "s", "t"], 1),
        (["restore", "s", "t"], 1),
        (["compact", "s"], 1),
    ]:
        assert in_process(arguments, tmp_path) == code, arguments
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.xyz"]


def test_a_store_is_created_with_the_first_document_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{\n")
    (tmp_path / "none.jsonl").write_text("\n")
    done = command("add", "s", "bad.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr.endswith(b"; nothing was added\n")) == (1, True)
    done = command("add", "s", "bad.jsonl", "--skip-bad", "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["bad"]) == (0, 1)
    assert command("add", "s", "none.jsonl", cwd=tmp_path).stderr == b"mempp: nothing new for s: no documents found\n"
    assert not (tmp_path / "s").exists()
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "a"}))
    done = command("add", "bad.jsonl/s", "a.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"mempp: ")
    assert b"unexpected" not in done.stderr
    (tmp_path / "s").mkdir()
    assert command("add", "s", "a.jsonl", cwd=tmp_path).returncode == 0
    assert texts(tmp_path / "s") == ["a"]


@pytest.mark.parametrize("name", ["other", "other/file"])
def test_what_is_wrong_with_a_store_is_told_before_anything_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    process = subprocess.Popen(
        [sys.executable, "-m", "mempp", "add", name, "-"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stderr is not None
    with process.stdin, process.stderr:  # stdin stays open: nothing must wait for it
        assert process.wait(timeout=60) == 1
        assert f"{name} is no Mem++ store".encode() in process.stderr.read()


def test_standard_input_that_is_closed_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m mempp add s - <&-', sys.executable],
        cwd=tmp_path,
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.startswith(b"mempp: standard input (-) is closed")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["add", "s", "a.jsonl"], 0), (["recall", "nope", "a"], 1), (["recall", "s", "--k", "0"], 2)],
)
def test_exit_codes_stay_where_nobody_reads_the_messages(tmp_path: Path, arguments: list[str], code: int) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "a"}))
    gone, ours = os.pipe()
    os.close(gone)
    try:
        # Python's own buffer of stderr, which an environment may have switched off, is what is tried.
        done = subprocess.run(
            [sys.executable, "-m", "mempp", *arguments],
            cwd=tmp_path,
            stderr=ours,
            env={name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"},
            check=False,
        )
    finally:
        os.close(ours)
    assert done.returncode == code


def test_a_command_that_only_reads_does_not_speak_of_creating(tmp_path: Path) -> None:
    for arguments in (["show", "nope", "0"], ["stats", "nope"], ["export", "nope"]):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.endswith(b"nope: the path does not exist. Check the path.\n")


def in_process(arguments: list[str], folder: Path) -> int:
    before = Path.cwd()
    os.chdir(folder)
    try:
        return main(arguments)
    finally:
        os.chdir(before)


def test_a_path_that_is_no_store_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "a"}))
    done = command("add", "other", "a.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"mempp: ")
    assert done.stderr.count(b"\n") == 1


def test_an_interrupted_add_keeps_and_counts_what_was_acknowledged(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mempp", "add", "s", "-", "--batch-size", "2"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    process.stdin.write(json_lines({"text": "a"}, {"text": "b"}, {"text": "c"}))
    process.stdin.flush()
    wait_until(lambda: (tmp_path / "s" / "store.json").exists() and len(texts(tmp_path / "s")) == 2)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == b""
    assert error == (
        b"mempp: ending with the batch at hand; Ctrl-C again does not wait\n"
        b"mempp: interrupted; 2 documents added before stay\n"
    )
    assert texts(tmp_path / "s") == ["a", "b"]


def test_a_batch_is_finished_before_an_interruption_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add = Adding.add

    def interrupted(self: Adding, documents: list[object]) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return add(self, documents)  # type: ignore[arg-type]

    monkeypatch.setattr(Adding, "add", interrupted)
    (tmp_path / "a.jsonl").write_bytes(json_lines(*({"text": f"d {n}"} for n in range(9))))
    arguments = ["add", str(tmp_path / "s"), str(tmp_path / "a.jsonl"), "--encoder", "none", "--batch-size", "4"]
    handler = signal.getsignal(signal.SIGINT)
    assert main([*arguments, "--json"]) == 130
    captured = capsys.readouterr()
    assert captured.err.splitlines()[1:] == ["mempp: interrupted; 4 documents added before stay"]
    assert json.loads(captured.out)["row_ids"] == [0, 1, 2, 3]
    assert len(texts(tmp_path / "s")) == 4
    assert signal.getsignal(signal.SIGINT) is handler


HANGS = """
import sys
import mempp
from mempp import encoding
from mempp.cli import main
from support import HangingEncoder

encoding.ROUND_TEXTS = 1
open_really = mempp.open
mempp.open = lambda path, **options: open_really(path, **{**options, "encoder": HangingEncoder()})
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("signals", [1, 2, 4])
def test_ctrl_c_during_add_is_answered_while_the_encoder_is_busy_and_a_second_does_not_wait(
    tmp_path: Path, signals: int
) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(*({"text": f"note {number}"} for number in range(60))))
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS, "add", "s", "a.jsonl", "--batch-size", "10"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment() | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.daemon = True
    watchdog.start()
    assert process.stderr is not None
    wait_until(lambda: (tmp_path / "hangs").exists() and len(texts(tmp_path / "s")) >= 20)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == b"mempp: ending with the batch at hand; Ctrl-C again does not wait\n"
    assert process.poll() is None
    for _ in range(signals - 1):
        process.send_signal(signal.SIGINT)
    if signals == 1:
        (tmp_path / "go").touch()
    out, error = process.communicate(timeout=60)
    assert out == b""
    with mempp.open(tmp_path / "s", encoder=WordEncoder()) as memory:
        without, stored = memory.stats().without_vector, len(memory)
    if signals > 1:
        assert (process.returncode, error) == (-signal.SIGINT, b"")
    else:
        assert process.returncode == 130
        assert (
            error
            == (
                f"mempp: interrupted; {stored} documents added before stay; {without} documents without vectors, which "
                "`mempp embed s` makes\n"
            ).encode()
        )
    assert without >= 10
    assert mempp.verify(tmp_path / "s").ok


def wait_until(condition: object, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():  # type: ignore[operator]
                return
        except mempp.StoreError:
            pass  # the store is being created
        time.sleep(0.02)
    pytest.fail("it did not happen in time")


def test_a_batch_that_was_stored_but_not_embedded_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "a"}, {"text": "b"}, {"text": "c"}))
    add = Adding.add
    batches: list[int] = []

    def failing(self: Adding, documents: list[object]) -> object:
        batches.append(len(documents))
        report = add(self, documents)  # type: ignore[arg-type]
        if len(batches) == 2:
            raise mempp.EncoderError("out of order")
        return report

    monkeypatch.setattr(Adding, "add", failing)
    code = main(["add", str(tmp_path / "s"), str(tmp_path / "a.jsonl"), "--encoder", "none", "--batch-size", "2"])
    assert code == 1
    message = capsys.readouterr().err
    assert message == ("mempp: out of order; --no-embed adds without vectors for now; 3 documents added before stay\n")
    assert batches == [2, 1]


def test_batches_end_early_when_texts_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    add = Adding.add

    def counting(self: Adding, documents: list[object]) -> object:
        sizes.append(len(documents))
        return add(self, documents)  # type: ignore[arg-type]

    monkeypatch.setattr(Adding, "add", counting)
    (tmp_path / "a.jsonl").write_bytes(json_lines(*({"text": str(n) * 3_000_000} for n in range(7))))
    assert main(["add", str(tmp_path / "s"), str(tmp_path / "a.jsonl"), "--encoder", "none", "-q"]) == 0
    assert sizes == [3, 3, 1]


# -- recall, evidence, show, stats ------------------------------------------------------------------------------------


def test_recall_for_people(acme: Path) -> None:
    done = command("recall", "store", "vpn vendor", "--k", 5, cwd=acme, COLUMNS="60")
    assert (done.returncode, done.stderr) == (0, b"")
    out = done.stdout.decode()
    assert re.search(r"^ \d\. 2024-01-10  row 0  score [12]\.\d+  superseded by row 1", out, re.MULTILINE)
    assert re.search(r"^ \d\. 2024-05-01T07:30:00Z  row 3  \(not matched; fills a slot", out, re.MULTILINE)
    assert "score 0.0000" not in out
    assert "    Board approved Vendor B for the VPN.\n" in out
    assert "    日本語" in out
    assert all(columns_of(line) <= 60 for line in out.splitlines())
    explained = command("recall", "store", "vpn vendor", "--explain", cwd=acme).stdout
    assert len(re.findall(rb"^    score [01]\.\d+, ", explained, re.MULTILINE)) == 4
    assert len(re.findall(rb"^      lexical, with its neighbours: 0\.\d+ \S+ 1\.5 adds ", explained, re.MULTILINE)) == 2


def columns_of(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def test_stored_text_never_drives_the_terminal(acme: Path) -> None:
    for arguments in (
        ["recall", "store", "alert markup", "--explain"],
        ["show", "store", "2"],
        ["evidence", "store", "alert markup"],
        ["recall", "store", "alert", "--json"],
    ):
        shown = on_a_terminal(arguments, acme, NO_COLOR="1", TERM="dumb")
        assert "\\x1b[31malert" in shown or "\\u001b[31malert" in shown
        assert "[bold]markup[/bold] :smile:" in shown
        assert CONTROL.search(shown.replace("\r\n", "\n")) is None, arguments
    piped = command("recall", "store", "alert markup", cwd=acme).stdout.decode()
    assert "\\x1b[31malert\\x1b[0m \\x9b5n \\u202etxt \\x07 [bold]markup[/bold]" in piped
    assert CONTROL.search(piped) is None


def on_a_terminal(arguments: list[str], folder: Path, **more: str) -> str:
    """What the command shows on a terminal of its own, stdout and stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mempp", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(**more),
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # Linux reports the end of the other side so
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=30) == 0, shown
    return shown.decode()


def test_progress_on_a_terminal_is_a_bar_with_rate_and_messages_above_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(*({"text": f"document {n}", "odd": 1} for n in range(300))))
    shown = on_a_terminal(["add", "s", "a.jsonl", "--batch-size", "20"], tmp_path, TERM="xterm-256color")
    assert "adding" in shown
    assert re.search(r"300 documents, 100%, [\d,.]+/s", shown)
    assert "mempp: note: a.jsonl:1: 'odd' is no field of a document" in shown
    assert "added 300 documents to s" in shown


def test_evidence_is_exact_in_a_pipe_and_alone_on_stdout(acme: Path) -> None:
    done = command("evidence", "store", "alert markup", "--author", "mal\x1b]0;title\x07lory", cwd=acme)
    assert (done.returncode, done.stderr) == (0, b"")
    with mempp.open(acme / "store", read_only=True, encoder="none") as memory:
        expected = str(memory.evidence("alert markup", author="mal\x1b]0;title\x07lory"))
    assert EVIL in expected
    assert done.stdout.decode() == expected + "\n"


def test_evidence_in_a_budget(acme: Path) -> None:
    done = command("evidence", "store", "vpn vendor", "--max-chars", 80, "--json", "--style", "tagged", cwd=acme)
    answer = json.loads(done.stdout)
    assert len(answer["evidence"]) <= 80
    assert answer["left_out"]
    assert command("evidence", "store", "vpn", "--max-chars", 70, cwd=acme).stderr.endswith(b"see --max-chars\n")
    assert command("evidence", "store", "vpn", "--style", "fancy", cwd=acme).returncode == 2
    assert command("evidence", "store", "vpn", "--max-chars", 0, cwd=acme).returncode == 2


def test_recall_as_json_is_the_whole_record(acme: Path) -> None:
    done = command("recall", "store", "second line", "--thread", "T-1", "--explain", "--json", cwd=acme)
    assert done.stderr == b""
    answer = json.loads(done.stdout)
    assert {name: answer[name] for name in ("question", "as_of", "known_at", "since")} == {
        "question": "second line",
        "as_of": None,
        "known_at": None,
        "since": None,
    }
    (hit,) = answer["hits"]
    assert hit.pop("explanation")["legs"][0]["leg"] == "lexical"
    assert hit.pop("score") > 0
    assert hit.pop("ingested_at").startswith("20")
    assert hit == {
        "row_id": 2,
        "text": EVIL,
        "occurred_at": None,
        "author": DOCUMENTS[2]["author"],
        "authors": [DOCUMENTS[2]["author"]],
        "tags": [],
        "source": "s\x1b[2J",
        "thread": "t-1",
        "kind": "mail",
        "metadata": {},
        "state": {"status": "active", "by": None, "since": None, "into": None, "reason": None},
        "matched": True,
        "via": "score",
    }


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["--as-of", "2024-06-01"], {0, 3}),
        (["--as-of", "2024-01-10"], {0}),
        (["--since", "2024-02-01"], {1, 3}),
        (["--since", "2024-02-01", "--as-of", "2024-12-31"], {3}),
        (["--author", "ada"], {1}),
        (["--author", "ada", "--author", "IT"], {0, 1}),
        (["--tag", "vpn"], {0}),
        (["--thread", "t-1"], {2}),
        (["--source", "s\x1b[2J"], {2}),
        (["--where", "prio=3"], {0, 1}),
        (["--where", "prio=4"], set()),
        (["--known-at", "2"], {0, 1, 2}),
        (["--known-at", "2000-01-01"], set()),
        (["--k", "1"], {1}),
        (["--preset", "orgmembench"], {0, 1, 2, 3}),
    ],
)
def test_bounds_and_filters(
    acme: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], rows: set[int]
) -> None:
    code = main(["recall", str(acme / "store"), "which vendor was approved", "--json", "--encoder", "none", *arguments])
    assert code == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    with mempp.open(acme / "store", read_only=True, encoder="none") as memory:
        assert memory.head_sequence == 4
    assert {hit["row_id"] for hit in hits} == rows


def test_nothing_found_is_no_error(acme: Path) -> None:
    done = command("recall", "store", "vpn", "--author", "nobody", cwd=acme)
    said = b"mempp: no document has the author 'nobody'\nmempp: nothing found\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", said)
    done = command("recall", "store", "vpn", "--author", "boar", cwd=acme)
    assert done.stderr.startswith(b"mempp: no document has the author 'boar'; did you mean 'board'?\n")
    done = command("evidence", "store", "vpn", "--as-of", "1999-01-01", cwd=acme)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"mempp: nothing found\n")


def test_the_as_of_date_that_was_read_is_told(acme: Path) -> None:
    for name in ("recall", "evidence"):
        done = command(name, "store", "VPN vendor as of 2024-02-01?", "--as-of", "Auto", cwd=acme)
        assert b"mempp: as of 2024-02-01T23:59:59.999999Z, read from the question\n" in done.stderr
        done = command(name, "store", "VPN vendor?", "--as-of", "auto", cwd=acme)
        assert b"mempp: the question names no as-of date\n" in done.stderr
        done = command(name, "store", "VPN vendor as of last February?", "--as-of", "auto", cwd=acme)
        assert done.returncode != 0
        assert b"asked_at=" in done.stderr
        asked = ("VPN vendor as of last February?", "--as-of", "auto", "--asked-at", "2024-06-01", "--json")
        told = json.loads(command(name, "store", *asked, cwd=acme).stdout)
        assert told["as_of_read"] == "2024-02-29T23:59:59.999999+00:00"
        assert told["asked_at"] == "2024-06-01"
        assert json.loads(command(name, "store", "VPN vendor?", "--json", cwd=acme).stdout)["as_of_read"] is None


def test_a_document_that_is_cut_is_told(acme: Path) -> None:
    done = command("evidence", "store", "vpn vendor", "--max-chars", 30, cwd=acme)
    assert done.returncode == 0
    assert b"larger than 30 characters; a passage of it is shown" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["recall", "S", "x", "--as-of", "2024"], 2, "as_of is no date: '2024'"),
        (["recall", "S", "x", "--known-at", "soon"], 2, "known_at is no date: 'soon'"),
        (["recall", "S", "x", "--since", "2024-02-30"], 2, "since is no date: '2024-02-30'"),
        (["recall", "S", "x", "--k", "0"], 2, "k must be at least 1"),
        (["recall", "S", "x", "--k", "many"], 2, "Invalid value for '--k'"),
        (["recall", "S", " "], 2, "the question is empty"),
        (["recall", "S", "x", "--preset", "best"], 2, "there is no preset 'best'"),
        (["recall", "S", "x", "--where", "prio"], 2, "--where takes KEY=VALUE"),
        (["recall", "S", "x", "--encoder", "no-such"], 2, ""),
        (["recall", "S"], 2, "Missing argument 'QUESTION'"),
        (["recall", "S", "x", "--asof", "2024-01-01"], 2, "No such option: --asof"),
        (["forget", "S"], 2, "No such command 'forget'"),
        (["show", "S", "99"], 1, "there is no row 99"),
        (["show", "S", "x"], 2, "Invalid value for 'ROW'"),
        (["recall", "S/log", "x"], 1, ""),
        (["recall", "missing", "x"], 1, ""),
    ],
)
def test_one_line_says_what_is_wrong(
    acme: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, what: str
) -> None:
    assert main([one.replace("S", str(acme / "store"), 1) if one[0] == "S" else one for one in arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"mempp: {what}")
    assert captured.err.count("\n") == 1


def test_show_is_the_whole_record(acme: Path) -> None:
    done = command("show", "store", 3, cwd=acme)
    assert (done.returncode, done.stderr) == (0, b"")
    head, text = done.stdout.decode().split("\n\n", 1)
    assert text == str(DOCUMENTS[3]["text"]) + "\n"
    assert re.search(r"^author +山田$", head, re.MULTILINE)
    assert re.search(
        r"^state +superseded by row 1$", command("show", "store", 0, cwd=acme).stdout.decode(), re.MULTILINE
    )
    record = json.loads(command("show", "store", 0, "--json", cwd=acme).stdout)
    assert record["state"]["by"] == 1
    assert record["metadata"] == {"prio": 3}


def test_stats(acme: Path) -> None:
    values = json.loads(command("stats", "store", "--json", cwd=acme).stdout)
    assert values["rows"] == 4
    assert (values["active"], values["superseded"], values["undated"], values["threads"]) == (3, 1, 1, 1)
    assert values["first_date"] == "2024-01-10T00:00:00+00:00"
    out = command("stats", "store", cwd=acme).stdout.decode()
    assert re.search(r"^documents +4$", out, re.MULTILINE)
    assert re.search(r"^dated +2024-01-10 to 2025-03-27$", out, re.MULTILINE)
    assert re.search(r"^encoder +none$", out, re.MULTILINE)


def test_reading_changes_nothing(acme: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in (acme / "store").rglob("*"))

    before = state()
    reading = ["recall x", "evidence x", "show 0", "stats", "history 0", "changes", "verify"]
    for arguments in map(str.split, reading):
        assert main([arguments[0], str(acme / "store"), *arguments[1:], "--json"]) == 0
    assert main(["export", str(acme / "store"), "--all"]) == 0
    assert state() == before


# -- streams and surroundings -----------------------------------------------------------------------------------------


def test_an_encoding_without_the_characters(acme: Path) -> None:
    for arguments in (["recall", "store", "日本語"], ["show", "store", "3"], ["evidence", "store", "日本語"]):
        for surroundings in (
            {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        ):
            done = command(*arguments, cwd=acme, **surroundings)
            assert done.returncode == 0, done.stderr
            assert done.stdout.isascii()
            assert b"\\u65e5\\u672c" in done.stdout
    answer = command("show", "store", "3", "--json", cwd=acme, PYTHONIOENCODING="ascii").stdout
    assert answer.isascii()
    assert json.loads(answer)["text"] == DOCUMENTS[3]["text"]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("big")
    with mempp.open(folder / "store", encoder="none") as memory:
        memory.add_many({"text": f"vendor {n} " + "x" * 50_000} for n in range(20))
    return folder


@pytest.mark.parametrize("arguments", [["evidence", "--max-chars", "900000"], ["recall", "--json"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_stops_early_is_no_error(big: Path, arguments: list[str], unbuffered: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mempp", arguments[0], "store", "vendor", *arguments[1:]],
        cwd=big,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=30), error) == (0, b"")


def test_a_full_disk_is_one_line(acme: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mempp", "show", "store", "0"],
            cwd=acme,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"mempp: cannot write the output: No space left on device\n"


def test_messages_that_nobody_reads_do_not_end_the_work(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(*({"text": f"d {n}", f"k{n}": 1} for n in range(10))))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "mempp", "add", "s", "a.jsonl"],
        cwd=tmp_path,
        stderr=writing,
        env=environment(),
        check=False,
    )
    os.close(writing)
    assert done.returncode == 0
    assert len(texts(tmp_path / "s")) == 10


def test_an_unforeseen_exception_is_one_line(
    acme: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(mempp.Memory, "recall", broken)
    monkeypatch.delenv("MEMPP_DEBUG", raising=False)
    arguments = ["recall", str(acme / "store"), "x", "--encoder", "none"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "mempp: unexpected RuntimeError: two lines; set MEMPP_DEBUG=1 to see where\n"
    monkeypatch.setenv("MEMPP_DEBUG", "1")
    assert main(arguments) == 1
    message = capsys.readouterr().err
    assert "Traceback" in message
    assert message.endswith("mempp: unexpected RuntimeError: two lines\n")


def test_help_and_version(tmp_path: Path) -> None:
    helped = command("--help", cwd=tmp_path)
    assert helped.returncode == 0
    assert all(name in helped.stdout for name in (b"add", b"recall", b"evidence", b"show", b"stats", b"embed"))
    for name in (b"export", b"verify", b"snapshot", b"restore", b"compact", b"history", b"changes", b"retract"):
        assert name in helped.stdout
    alone = command(cwd=tmp_path)
    assert (alone.returncode, alone.stdout) == (2, b"")
    assert alone.stderr.startswith(b"Usage: mempp")
    assert command("--version", cwd=tmp_path).stdout.startswith(b"mempp ")


def test_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, mempp.cli.app, mempp.cli.add, mempp.cli.people, mempp.cli.embed, mempp.cli.sources.files\n"
        "heavy = {'tantivy', 'onnxruntime', 'onnx', 'pyarrow', 'hnswlib', 'openai', 'numpy', 'tokenizers'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True)
    assert done.stdout == b"[]\n"


# -- vectors ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ready_encoder() -> None:
    try:
        mempp.MiniLM().encode_question("ready?")
    except mempp.EncoderUnavailableError as error:
        pytest.skip(f"the weights are not installed: {error}")


@pytest.mark.usefixtures("ready_encoder")
def test_embedding_later(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "The cat sat."}, {"text": "Prices rise."}))
    assert command("add", "s", "a.jsonl", "--no-embed", cwd=tmp_path, MEMPP_ENCODER="minilm").returncode == 0
    before = json.loads(command("stats", "s", "--json", cwd=tmp_path, MEMPP_ENCODER="minilm").stdout)
    assert before["without_vector"] == 2
    done = command("embed", "s", "--json", cwd=tmp_path, MEMPP_ENCODER="minilm")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"store": "s", "embedded": 2})
    assert re.fullmatch(rb"mempp: embedded 2 documents in [\d.]+ s\n", done.stderr)
    again = command("embed", "s", cwd=tmp_path)
    assert again.stderr == b"mempp: embedded 0 documents; every document has its vector\n"
    found = json.loads(command("recall", "s", "feline", "--k", "1", "--explain", "--json", cwd=tmp_path).stdout)
    assert found["hits"][0]["row_id"] == 0
    assert found["hits"][0]["explanation"]["legs"][0]["leg"] == "vector"
    off = command("recall", "s", "feline", "--encoder", "none", "--explain", "--json", cwd=tmp_path).stdout
    assert all(hit["explanation"]["legs"] == [] for hit in json.loads(off)["hits"])


# -- small parts ------------------------------------------------------------------------------------------------------


def test_the_documentation_has_every_command_and_option() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    head, _, written = page.partition(START)
    assert written.strip() == reference().strip(), "run: python -m mempp.cli.document docs/cli.md"
    assert "--skip-bad" in head


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("\x1b[0m\x00\x7f\x9b", "\\x1b[0m\\x00\\x7f\\x9b"),
        ("\u202e\u2066\u2028\udcff", "\\u202e\\u2066\\u2028\\udcff"),
        ("é 日本 👩‍🚀 می‌خواهم", "é 日本 👩‍🚀 می‌خواهم"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("count", "fraction", "seconds", "words"),
    [
        (1200, 0.25, 60.0, "1,200 documents, 25%, 20/s, 3 min 0 s left"),
        (3, None, 2.0, "3 documents, 1.5/s"),
        (0, 0.0, 0.0, "0 documents, 0%"),
        (10, 1.0, 1.0, "10 documents, 100%, 10/s"),
    ],
)
def test_progress_in_words(count: int, fraction: float | None, seconds: float, words: str) -> None:
    assert described(count, fraction, seconds) == words


def test_plain_progress_is_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    from mempp.cli.progress import _Lines

    now = [0.0]
    lines = _Lines("adding", clock=lambda: now[0])
    for second in range(12):
        now[0] = float(second)
        lines.show(second * 10, second / 20)
    assert capsys.readouterr().err.splitlines() == [
        "mempp: adding: 50 documents, 25%, 10/s, 15 s left",
        "mempp: adding: 100 documents, 50%, 10/s, 10 s left",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (9.96, "10.0 s"), (59.4, "59 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_warning_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines({"text": "a"}))
    assert command("add", "s", "a.jsonl", cwd=tmp_path).returncode == 0
    done = command("recall", "s", "a", cwd=tmp_path, MEMPP_WIGHT_FACTS="1")
    assert done.stderr.count(b"MEMPP_WIGHT_FACTS") == 1
