# SPDX-License-Identifier: Apache-2.0
"""The real binaries: each test has a runtime folder of its own, and its daemons end with it.

LOADERD_BUILD_DIR names the build folder (default: build/ in the source root), LOADERD_SHARED the folder with golden/ and
data/imagenet-sample-400 (default: shared/ beside the source root); tests that need the latter are skipped without it.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client" / "python"
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(CLIENT), str(SUPPORT)]

import processes  # noqa: E402

import daemon as daemon_support  # noqa: E402 (found by the line above)

LIBRARY = daemon_support.build_dir() / "lib" / "libloaderd_client.so"
os.environ["LOADERD_LIBRARY"] = str(LIBRARY)
os.environ["LOADERD_DAEMON"] = daemon_support.loaderd()
SHARED = pathlib.Path(os.environ.get("LOADERD_SHARED", ROOT.parent / "shared"))


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path, monkeypatch):
    """XDG_RUNTIME_DIR and XDG_STATE_HOME of this test alone; a user daemon that a client started in it is ended."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("LOADERD_SYSTEM_SOCKET", str(folder / "none.sock"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", f"{CLIENT}:{SUPPORT}")
    monkeypatch.delenv("LOADERD_SOCKET", raising=False)
    yield folder
    end_user_daemon(folder)


def end_user_daemon(folder):
    """Ends the daemon that a client started with this XDG_RUNTIME_DIR, if one did."""
    pid = processes.user_daemon(folder)
    if pid is not None:
        end_process(pid)


def end_process(pid, timeout=20.0):
    """SIGTERM to a process that is nobody's child, and the wait for its end."""
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_alive(pid), timeout)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds, timeout=5.0):
    """Waits until holds() is true; its last value."""
    deadline = time.monotonic() + timeout
    while not (value := holds()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert value, f"not so within {timeout} s"
    return value


@pytest.fixture
def open_folder():
    """A folder that other users may enter; pytest's own is closed to them."""
    with tempfile.TemporaryDirectory(prefix="loaderd-test-") as folder:
        os.chmod(folder, 0o755)
        yield folder


@pytest.fixture
def daemon():
    """A user daemon for this test, on a socket of its own."""
    with daemon_support.Daemon() as running:
        yield running


@pytest.fixture
def user_daemon(runtime_dir):
    """A user daemon where clients of this test look for one."""
    folder = runtime_dir / "loaderd"
    folder.mkdir(mode=0o700)
    with daemon_support.Daemon(folder=folder) as running:
        yield running


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The service's generated modules by name, for stock grpcio."""
    pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    import stock_client

    with stock_client.generated(tmp_path_factory.mktemp("stubs")) as modules:
        yield modules


class Control:
    """loaderctl on one daemon."""

    def __init__(self, socket):
        self.socket = socket

    def __call__(self, *arguments):
        command = [daemon_support.loaderctl(), *arguments, "--json", "--socket", self.socket]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout)

    def sessions(self):
        """Those that are open."""
        return [session for session in self("sessions")["sessions"] if session.get("state", "open") == "open"]

    def session(self):
        (only,) = self.sessions()
        return {key: int(value) if str(value).isdigit() else value for key, value in only.items()}


@pytest.fixture
def control(daemon):
    return Control(daemon.socket)


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """60 photo-like JPEGs of 3 classes, one of them grey at least by chance; not to be changed."""
    import photos as generator

    return generator.generate(tmp_path_factory.mktemp("photos"), 60, seed=3, classes=3)


def files_of(folder):
    """Paths of an image folder's samples, in the order of their indices."""
    folder = pathlib.Path(folder)
    return [path for kind in sorted(folder.iterdir()) for path in sorted(kind.iterdir())]


@pytest.fixture(scope="session")
def imagenet():
    """400 real images."""
    folder = SHARED / "data" / "imagenet-sample-400"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent (LOADERD_SHARED names another place)")
    return folder


@pytest.fixture(scope="session")
def golden():
    """The folder of right answers."""
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent (LOADERD_SHARED names another place)")
    return folder


@pytest.fixture(scope="session")
def pillow12(tmp_path_factory):
    """A folder with Pillow 12, to be put first on a child's PYTHONPATH."""
    folder = pathlib.Path(os.environ.get("LOADERD_PILLOW12") or tmp_path_factory.mktemp("pillow12"))
    if not (folder / "PIL").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "pillow>=12,<13"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            pytest.skip(f"Pillow 12 cannot be installed: {result.stderr.strip().splitlines()[-1]}")
    return folder


def run_python(code, *arguments, timeout=120, **options):
    """A Python process of its own that runs `code`; its last line of output, as JSON."""
    result = subprocess.run(
        [*options.pop("prefix", ()), sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def python_process(code, *arguments, **options):
    """A Python process of its own that is killed at the end, with pipes for input and output."""
    command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
