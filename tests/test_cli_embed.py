"""`mempp embed` and `reembed` from the outside: what Ctrl-C leaves and says, and errors in the words of options."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer
from conftest import ROOT
from rich.progress import Progress
from support import WordEncoder

import mempp
from mempp.cli import main, progress
from mempp.cli.interrupts import answered
from mempp.cli.output import say

Capture = pytest.CaptureFixture[str]

# An encoder that hangs in its second call until the file `go` is there, and rounds of one batch of 64 documents.
DRIVER = """
import sys
from pathlib import Path
import mempp
import mempp.cli.embed
from mempp import encoding, reembedding
from mempp.cli import main, progress
from support import HangingEncoder, WordEncoder

class Meter(progress._Silence):
    def show(self, count, fraction):
        Path("shown").touch()

encoding.ROUND_TEXTS = 1
mempp.cli.embed.meter = lambda verb, *, quiet: Meter()
open_really = mempp.open
encoder = WordEncoder() if sys.argv[1] == "reembed" else HangingEncoder()
mempp.open = lambda path, **options: open_really(path, **{**options, "encoder": encoder})
reembedding.resolve_encoder = lambda choice: HangingEncoder(name="other")
sys.exit(main(sys.argv[1:]))
"""
COMMANDS = {
    "embed": (["embed", "s"], "64 documents embedded before stay"),
    "shard": (
        ["embed", "s", "--shard", "1/1", "--out", "out.vectors"],
        "64 documents embedded before stay (they are in out.vectors.part)",
    ),
    "reembed": (
        ["reembed", "s", "--encoder", "other"],
        "64 documents embedded before stay (the encoder is still test-words-16)",
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with mempp.open(tmp_path / "s", encoder=WordEncoder()) as memory:
        memory.add_many([f"note {number}" for number in range(150)], embed=False)
    return tmp_path / "s"


def start(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """The command in a process of its own, as far as the call of the encoder that hangs."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "HOME": str(folder), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # So that a command which says nothing fails a test, and does not hang it.
    watchdog = threading.Timer(40, process.kill)
    watchdog.daemon = True
    watchdog.start()
    deadline = time.monotonic() + 30
    while not ((folder / "hangs").exists() and (folder / "shown").exists()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def lacking(store: Path) -> int:
    with mempp.open(store, encoder=WordEncoder()) as memory:
        return memory.stats().without_vector


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_is_answered_while_the_encoder_is_busy(store: Path, name: str) -> None:
    arguments, stays = COMMANDS[name]
    process = start(store.parent, arguments)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    # Read while the encoder still hangs: the answer does not wait for it.
    assert process.stderr.readline() == (
        f"mempp: interrupted; {stays}; the same command goes on. Ending; Ctrl-C again does not wait\n"
    )
    assert process.poll() is None
    (store.parent / "go").touch()
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_ctrl_c_does_not_wait_and_what_was_kept_stays(store: Path, name: str) -> None:
    arguments, _ = COMMANDS[name]
    process = start(store.parent, arguments)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (-signal.SIGINT, "", "")  # 130 in a shell
    assert mempp.verify(store).ok
    encoder = WordEncoder()
    other = WordEncoder(name="other")
    with mempp.open(store, encoder=encoder) as memory:
        match name:
            case "embed":
                memory.embed()
            case "shard":
                memory.embed(shard=(1, 1), out=store.parent / "out.vectors")
            case "reembed":
                memory.reembed(other)
    made = other if name == "reembed" else encoder
    assert made.encoded == [f"note {number}" for number in range(64, 150)]


def test_a_second_ctrl_c_ends_it_though_the_main_thread_does_not_hear_of_it(tmp_path: Path) -> None:
    """As when a signal comes between the main thread's last look and its wait: no handler in Python runs then."""
    script = """
import os, signal, threading
from mempp.cli.interrupts import answered

threading.Thread(target=threading.Event().wait, daemon=True).start()  # the signal goes to this thread
def tell():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.write(1, b"told\\n")
with answered(tell):
    try:
        os.write(1, b"waits\\n")
        threading.Event().wait()
    finally:
        threading.Event().wait()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(30, process.kill)
    watchdog.daemon = True
    watchdog.start()
    assert process.stdout is not None
    for said in ("waits", "told"):
        assert process.stdout.readline() == f"{said}\n"
        process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    process.stdout.close()


def test_ctrl_c_in_the_midst_of_a_line_is_answered_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "stderr", "wb", buffering=0) as raw:

        class Terminal(io.RawIOBase):
            interrupts = True

            def writable(self) -> bool:
                return True

            def fileno(self) -> int:
                return raw.fileno()

            def write(self, line: object) -> int | None:
                if self.interrupts:
                    self.interrupts = False
                    os.kill(os.getpid(), signal.SIGINT)
                return raw.write(line)  # type: ignore[arg-type]

        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Terminal()), line_buffering=True))
        with pytest.raises(typer.Exit), answered(lambda: say("what stays \ud800")):
            say("some progress")
    assert (tmp_path / "stderr").read_text() == "mempp: what stays \\ud800\n"


def test_ctrl_c_while_the_bar_begins_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    stop = Progress.stop
    monkeypatch.setattr(Progress, "add_task", interrupted)
    monkeypatch.setattr(Progress, "stop", lambda self: stopped.append(stop(self)))
    with pytest.raises(KeyboardInterrupt), progress._Bar("adding"):
        pass
    assert stopped == [None]


def test_any_command_says_that_it_was_interrupted(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mempp, "open", interrupted)
    for arguments in (["stats"], ["embed"], ["compact"]):
        assert main([*arguments, str(store)]) == 130
        assert capsys.readouterr().err == "mempp: interrupted\n"


def test_where_another_handles_the_signal_it_is_left_alone(store: Path, capsys: Capture) -> None:
    def mine(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGINT, mine)
    try:
        assert main(["embed", str(store), "--encoder", "none"]) == 2
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store `s` whose vectors MiniLM made, as the log has it; no model is loaded for that."""
    monkeypatch.chdir(tmp_path)
    identity = mempp.MiniLM().identity
    words = WordEncoder(identity.dimensions)
    words.identity = identity
    with mempp.open("s", encoder=words) as memory:
        memory.add_many(["one", "two"])
    with mempp.open("foreign", encoder=WordEncoder()) as memory:
        memory.add("one", embed=False)
    with mempp.open("bare", encoder="none") as memory:
        memory.add("one")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.jsonl").write_text('{"text": "three"}\n')
    return tmp_path


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("embed s --encoder none", 2, "--encoder none makes no vectors; leave it out for the store's own encoder"),
        ("embed s --merge x --encoder none", 2, "--encoder none makes no vectors"),
        ("reembed s --encoder none", 2, "--encoder none makes no vectors; name the new encoder"),
        ("embed s --encoder minilm-int8", 1, "leave out --encoder to use its own, or change it with `mempp reembed`"),
        ("add s a.jsonl --encoder minilm-int8", 1, "leave out --encoder to use its own, or change it"),
        ("recall s one --encoder minilm-int8", 1, "leave out --encoder to use its own"),
        ("embed s --encoder minilm-int8 --shard 1/2 --out x", 1, "leave out --encoder to use its own"),
        ("embed bare", 2, "the store has no encoder; name one with --encoder"),
        ("embed foreign", 1, "open the store in Python with that encoder"),
        ("reembed s --encoder minilm-int4", 2, "or the path of a directory with model.onnx and tokenizer.json\n"),
        ("embed s --merge nothere.vectors", 1, "there is no file 'nothere.vectors'; --merge takes vector files"),
        ("embed s --merge folder", 1, "'folder' is a folder; --merge takes vector files"),
        ("embed s --shard 1/2 --out dir/x.vectors", 1, "dir' for the file of --out; make it first"),
        ("embed s --shard 1/2 --out folder", 1, "--out 'folder' is a folder; name a file"),
        ("embed s --shard 1/2 --out s/x.vectors", 2, "--out 's/x.vectors' lies within the store"),
    ],
)
def test_errors_name_options_and_what_is_missing(
    arguments: str, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    if " bare" in arguments:
        monkeypatch.setenv("MEMPP_ENCODER", "none")
    assert main(arguments.split()) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    for python in ("encoder='none'", "reembed()", "identity, encode_documents", "as encoder=", "this memory", '"none"'):
        assert python not in error


def test_a_shard_that_lacks_nothing_and_a_file_that_has_all_read_differently(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    encoder = WordEncoder()
    opened = mempp.open
    monkeypatch.setattr(mempp, "open", lambda path, **given: opened(path, **{**given, "encoder": encoder}))

    def said(out: str) -> str:
        assert main(["embed", str(store), "--shard", "1/2", "--out", str(store.parent / out)]) == 0
        return capsys.readouterr().err.partition(f"{out}; ")[2]

    said("one")
    assert said("one") == "the file had all of them\n"
    assert main(["embed", str(store)]) == 0
    capsys.readouterr()
    assert said("two") == "no document of this shard lacks a vector\n"
