"""A server that has imported everything and opened nothing, and forks a child for every program it is asked to run.

Starting Python and importing mempp takes most of a second; a fork takes milliseconds. A child is a process of its own
that SIGKILL ends like any other. `Nursery` is the client; the server is this file, run as a program.
"""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
LARGEST = 1 << 16


@dataclass
class Child:
    """A running program. `output` is what it prints, line by line, until it ends."""

    pid: int
    output: IO[bytes]
    nursery: "Nursery"
    status: int | None = None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def lines(self) -> Iterator[Any]:
        """The JSON lines that it prints; a last one cut short by its death is left out."""
        for line in self.output:
            if line.endswith(b"\n"):
                yield json.loads(line)

    def wait(self) -> int:
        """Its exit code; minus the number of the signal that ended it."""
        self.output.close()
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(self.nursery.ask({"wait": self.pid}))
        return self.status


class Nursery:
    """Starts children. Every program is a module with `main(arguments, output)`."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(TESTS), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.socket = ours
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "harness.nursery", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()

    def ask(self, request: dict[str, Any], *descriptors: int) -> int:
        socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)
        answer = self.socket.recv(LARGEST)
        assert answer, "the nursery has died; its stderr says why"
        return int(answer)

    def start(self, program: str, **arguments: Any) -> Child:
        reading, writing = os.pipe()
        try:
            pid = self.ask({"program": program, "arguments": arguments}, writing)
        finally:
            os.close(writing)
        return Child(pid, os.fdopen(reading, "rb"), self)

    def close(self) -> None:
        self.socket.close()
        self.process.wait()


@contextmanager
def nursery() -> Iterator[Nursery]:
    server = Nursery()
    try:
        yield server
    finally:
        server.close()


def serve(connection: socket.socket) -> None:
    for module in ("mempp.memory", "mempp.indexes.hnsw", "harness.writer", "harness.company", "harness.damaging"):
        importlib.import_module(module)
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 1)
        if not data:
            return
        request = json.loads(data)
        if "wait" in request:
            answer = os.waitpid(request["wait"], 0)[1]
        elif (answer := os.fork()) == 0:
            connection.close()
            run(request["program"], request["arguments"], descriptors[0])
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(answer).encode())


def run(program: str, arguments: dict[str, Any], descriptor: int) -> None:
    """Run a program in this child, and end it without the exit handlers of the server."""
    code = 1
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as output:
            importlib.import_module(f"harness.{program}").main(arguments, output)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        serve(parent)
