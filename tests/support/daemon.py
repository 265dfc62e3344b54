# SPDX-License-Identifier: Apache-2.0
"""The real `loaderd` in a temporary folder, for end-to-end tests.

    with Daemon() as daemon:
        connect(daemon.socket)

LOADERD_BUILD_DIR names the build folder (default: build/ in the source root).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_dir() -> pathlib.Path:
    return pathlib.Path(os.environ.get("LOADERD_BUILD_DIR", ROOT / "build"))


def loaderd() -> str:
    return str(build_dir() / "bin" / "loaderd")


def loaderctl() -> str:
    return str(build_dir() / "bin" / "loaderctl")


def segment_path(path: str) -> str:
    """The rule that daemon and client share: X.sock -> X-segment.sock, else "-segment" is appended."""
    return path[:-5] + "-segment.sock" if path.endswith(".sock") else path + "-segment"


def connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


class Daemon:
    """One daemon process. By default a user daemon (`--user --idle-exit 0`) with both sockets in a folder of its own.

    config: text of a configuration file, passed by --config. system: run in system mode (needs a config; its
    listen.socket is added where the text names none). args: further arguments. prefix: a command put before loaderd,
    for example ("prlimit", "--nofile=64").
    """

    def __init__(
        self,
        *,
        config: str | None = None,
        system: bool = False,
        args: Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
        prefix: Sequence[str] = (),
        folder: str | os.PathLike[str] | None = None,
        user: str | int | None = None,
        pass_fds: Sequence[int] = (),
        start: bool = True,
    ) -> None:
        self._own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="loaderd-test-"))
        if user is not None:
            shutil.chown(self.folder, user)
        self.socket = str(self.folder / "loaderd.sock")
        self.segment_socket = segment_path(self.socket)
        self.log_path = self.folder / "loaderd.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.returncode: int | None = None
        self._user = user
        self._pass_fds = tuple(pass_fds)
        self._env = {
            key: value for key, value in os.environ.items() if not key.startswith(("LOADERD_SOCKET", "NOTIFY"))
        }
        for key, value in (env or {}).items():
            if value is None:
                self._env.pop(key, None)
            else:
                self._env[key] = value
        command = [*prefix, loaderd()]
        if system:
            text = config or ""
            if "socket:" not in text:
                text = f'listen {{ socket: "{self.socket}" }}\n' + text
            command += ["--config", self._write_config(text)]
        else:
            command += ["--user", "--socket", self.socket]
            if "--idle-exit" not in args:
                command += ["--idle-exit", "0"]
            if config is not None:
                command += ["--config", self._write_config(config)]
        self.command = [*command, *args]
        if start:
            self.start()

    def _write_config(self, text: str) -> str:
        path = self.folder / "loaderd.txtpb"
        path.write_text(text)
        return str(path)

    def spawn(self) -> None:
        """Starts the process without waiting for its sockets."""
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                user=self._user,
                pass_fds=self._pass_fds,
            )

    def start(self, timeout: float = 20.0) -> None:
        self.spawn()
        self.wait_ready(timeout)

    def wait_ready(self, timeout: float = 20.0) -> None:
        assert self.process is not None
        deadline = time.monotonic() + timeout
        while not (connects(self.socket) and connects(self.segment_socket)):
            if self.process.poll() is not None:
                raise RuntimeError(f"loaderd left with {self.process.returncode}:\n{self.log()}")
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"loaderd did not listen within {timeout} s:\n{self.log()}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait_log(self, text: str, timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        while text not in self.log():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not logged within {timeout} s: {text!r}\n{self.log()}")
            time.sleep(0.02)

    def stop(self, timeout: float = 20.0) -> int:
        """SIGTERM; returns the exit code, and kills what does not leave in time (which raises)."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = 20.0) -> int:
        assert self.process is not None
        try:
            self.returncode = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"loaderd did not leave within {timeout} s:\n{self.log()}") from None
        return self.returncode

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            finally:
                if self.process.poll() is None:
                    self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
