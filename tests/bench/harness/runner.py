# SPDX-License-Identifier: Apache-2.0
"""Runs one measurement in a process of its own, and gives its account."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from daemon import Daemon

from . import registry, venvs

ROOT = Path(__file__).resolve().parents[3]
PEERS = ROOT / "tests" / "bench" / "peers"


class Failed(Exception):  # noqa: N818 (told in the table)
    """Why a measurement gave nothing, in one line."""


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def account_of(output: str) -> dict[str, Any]:
    """The JSON document in the last line. Failed where it is none."""
    try:
        account = json.loads((output.strip().splitlines() or [""])[-1])
    except ValueError:
        raise Failed(f"gave no account: {last_line(output) or 'no output'}") from None
    if not isinstance(account, dict):
        raise Failed("gave no account")
    return account


def run(command: Sequence[str | Path], timeout_s: float, env: dict[str, str] | None = None) -> dict[str, Any]:
    """The account of a command; whatever it leaves behind is ended."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"took longer than {timeout_s:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode != 0:
        raise Failed(f"exit code {process.returncode}: {last_line(errors) or last_line(output) or 'no output'}")
    return account_of(output)


class Settings(NamedTuple):
    build: Path
    data: Path
    work: Path
    boxes: Path
    batch: int
    threads: int
    seconds: float


class Runner:
    def __init__(self, settings: Settings, environments: venvs.Venvs) -> None:
        self.settings = settings
        self._environments = environments

    def limit(self, mode: str, threads: int, boxes: Path | None = None) -> dict[str, Any]:
        settings = self.settings
        command = [settings.build / "bin" / "limit", mode, boxes or settings.boxes, threads, settings.seconds]
        return run(command, settings.seconds + 300)

    def peer(self, peer: registry.Peer, recipe: str, **changed: Any) -> dict[str, Any]:
        """An account as trainer.py gives it. `changed`: other settings; variant; warm, an index that the daemon has already."""
        warm = changed.pop("warm", False)
        variant = changed.pop("variant", peer.variant)
        settings = self.settings._replace(**changed)
        command = self._command(peer, settings, variant) + ["--recipe", recipe]
        with self._service(peer, settings.threads) as (service, env):
            if warm:
                run([*command, *service, "--prepare"], 600, env)
            return run([*command, *service], 20 * settings.seconds + 600, env)

    def prepare(self, peer: registry.Peer) -> dict[str, Any]:
        """Installs the peer and makes its own files; its versions. NotInstalled or Failed."""
        command = self._command(peer, self.settings, peer.variant)
        with self._service(peer, self.settings.threads) as (service, env):
            return run([*command, *service, "--prepare"], 3600, env)

    def _command(self, peer: registry.Peer, settings: Settings, variant: str) -> list[str | Path]:
        return [
            self._environments.python(peer.family), PEERS / f"{peer.script}.py",
            "--data", settings.data, "--work", settings.work, "--batch", settings.batch,
            "--threads", settings.threads, "--seconds", settings.seconds, "--variant", variant,
        ]  # fmt: skip

    @contextlib.contextmanager
    def _service(self, peer: registry.Peer, threads: int) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Arguments and environment; for loaderd a daemon of its own, so that each measurement begins alike."""
        env = dict(os.environ)
        if peer.family:
            yield [], env
            return
        env["PYTHONPATH"] = str(ROOT / "client" / "python")
        env["LOADERD_LIBRARY"] = str(self.settings.build / "lib" / "libloaderd_client.so")
        with Daemon(config=f"fleet {{ threads: {threads} }}\n") as daemon:
            yield ["--service", str(daemon.pid), "--socket", daemon.socket], env
