# SPDX-License-Identifier: Apache-2.0
"""A real systemd in a container over a throw-away copy of this machine's file system.

    with SystemdMachine() as machine:
        machine.write("/etc/systemd/system/x.service", "...")
        machine.boot()
        machine.run("systemctl", "start", "x")

Needs root and systemd-nspawn; `why_not()` says what is missing. The root file system is the lower layer of an overlay whose
upper one is a tmpfs: nothing that happens inside stays. What stands on other mounts of this machine is not seen inside;
install() it, or boot() with binds.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

TOOLS = ("systemd-nspawn", "nsenter", "mount", "umount", "runuser", "systemd-sysusers")


def why_not() -> str | None:
    """The reason why no machine can be had here, or None."""
    if os.geteuid() != 0:
        return "booting a systemd needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or not os.path.exists("/lib/systemd/systemd"):
        return f"not installed: {', '.join(missing) or 'systemd'} (packages systemd, systemd-container)"
    return None


class SystemdMachine:
    def __init__(self, tmpfs: str = "1G") -> None:
        self._base = pathlib.Path(tempfile.mkdtemp(prefix="loaderd-machine-"))
        self.root = self._base / "root"
        self._process: subprocess.Popen[bytes] | None = None
        self._leader: int | None = None
        self._mounts: list[pathlib.Path] = []
        try:
            self._mount("-t", "tmpfs", "-o", f"size={tmpfs},mode=0755", "tmpfs", target=self._base)
            for name in ("root", "upper", "work"):
                (self._base / name).mkdir()
            layers = f"lowerdir=/,upperdir={self._base}/upper,workdir={self._base}/work"
            self._mount("-t", "overlay", "-o", layers, "overlay", target=self.root)
            # Of the machine beneath, only its programs are wanted: no services, no host name, no mounts.
            self.write("/etc/fstab", "")
            self.write("/etc/machine-id", "")
            wants = self.root / "etc/systemd/system"
            for folder in wants.glob("*.wants"):
                shutil.rmtree(folder)
        except BaseException:
            self.close()
            raise

    def _mount(self, *args: str, target: pathlib.Path) -> None:
        subprocess.run(["mount", *args, str(target)], check=True)
        self._mounts.append(target)

    # Before boot (or after): files.

    def inside(self, path: str) -> pathlib.Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def install(self, source: str | os.PathLike[str], path: str, mode: int = 0o644) -> None:
        """Copies a file in, or a folder, readable by all."""
        target = self.inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if pathlib.Path(source).is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
            subprocess.run(["chmod", "-R", "a+rX", str(target)], check=True)
        else:
            shutil.copyfile(source, target)
            target.chmod(mode)

    def tool(self, *command: str) -> None:
        """A tool of this machine that takes --root=, for example systemd-sysusers."""
        subprocess.run([command[0], f"--root={self.root}", *command[1:]], check=True)

    def add_user(self, name: str, *groups: str) -> None:
        more = ["--groups", ",".join(groups)] if groups else []
        subprocess.run(["useradd", "--root", str(self.root), "--create-home", *more, name], check=True)

    def boot(self, binds: Mapping[str, str] | None = None, timeout: float = 60.0) -> None:
        """Starts systemd and waits until it is up. binds: a folder here -> where it is seen inside, read-only."""
        command = ["systemd-nspawn", "-D", str(self.root), "--boot", "--quiet", "--register=no", "--keep-unit"]
        command += ["--private-network", f"--machine=loaderd-{os.getpid()}", "--console=pipe"]
        command += [f"--bind-ro={source}:{target}" for source, target in (binds or {}).items()]
        with open(self._base / "console", "wb") as console:
            self._process = subprocess.Popen(
                [*command, "systemd.unit=multi-user.target"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                # Without the variables by which it would believe that it has been started as a unit.
                env={"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_LOCK": "0"},
            )
        deadline = time.monotonic() + timeout
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"systemd-nspawn left with {self._process.returncode}:\n{self.console()}")
            if self._leader is None:
                self._leader = self._find_leader()
            else:
                state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
                if state in ("running", "degraded"):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"systemd did not come up within {timeout} s:\n{self.console()}")
            time.sleep(0.1)

    def _find_leader(self) -> int | None:
        assert self._process is not None
        children = subprocess.run(
            ["pgrep", "-P", str(self._process.pid)], capture_output=True, text=True
        ).stdout.split()
        for child in children:
            try:
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return int(child)
            except OSError:
                continue
        return None

    def console(self) -> str:
        path = self._base / "console"
        return path.read_text(errors="replace") if path.exists() else ""

    # After boot: commands.

    def run(
        self,
        *command: str,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command inside, as root or as `user` with that user's groups. With check, a failure raises its output."""
        assert self._leader is not None, "boot first"
        prefix: Sequence[str] = ("runuser", "-u", user, "--") if user else ()
        enter = [
            "nsenter",
            f"--target={self._leader}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--root",
            "--wd=/",
        ]
        answer = subprocess.run(
            [*enter, *prefix, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **(env or {})},
        )
        if check and answer.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command)} exited {answer.returncode}\nstdout: {answer.stdout}\nstderr: {answer.stderr}\n"
            )
        return answer

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit, check=False).stdout

    def close(self) -> None:
        """Ends the machine and takes every mount away, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            if self._leader is not None:
                with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
                    os.kill(self._leader, signal.SIGRTMIN + 4)  # starts poweroff.target
                    self._process.wait(20)
            if self._process.poll() is None:
                if self._leader is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._leader, signal.SIGKILL)
                self._process.kill()
                self._process.wait()
        for mount in reversed(self._mounts):
            subprocess.run(["umount", "--lazy", str(mount)], check=False)
        self._mounts.clear()
        self._base.rmdir()

    def __enter__(self) -> SystemdMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
