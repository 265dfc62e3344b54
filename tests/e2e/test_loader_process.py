# SPDX-License-Identifier: Apache-2.0
"""What a loader costs its process, and what happens when that process forks, is interrupted or is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import processes
import pytest
from conftest import ROOT, python_process, run_python, wait_until

TRAINER = """
import json, os, sys, zlib
import numpy as np
import processes
before = processes.cost()
import loaderd, loaderd.transforms as T
folder, socket, hold = sys.argv[1], sys.argv[2], int(sys.argv[3])
loader = loaderd.DataLoader(loaderd.ImageFolder(folder), 2 if hold else 32, shuffle=True, seed=hold + 1,
                            transform=T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip()]), socket=socket)
held, first, last, once = [], None, None, []
for epoch in range(3):
    seen = []
    for batch in loader:
        seen += batch.index.tolist()
        if len(held) < hold:
            held.append((batch, zlib.crc32(batch.images.tobytes())))
        last = processes.cost()
        first = first or last
    once.append(sorted(seen) == list(range(400)))
intact = all(zlib.crc32(batch.images.tobytes()) == crc for batch, crc in held)
print(json.dumps({"before": before, "first": first, "last": last, "once": once, "held": len(held), "intact": intact,
                  "samples": len(seen)}))
"""


def test_four_trainers_get_each_index_once_an_epoch_at_the_price_of_one_descriptor(imagenet, daemon):
    shared_memory = set(os.listdir("/dev/shm"))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(imagenet), daemon.socket, str(200 if k == 3 else 0)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for k in range(4)
    ]
    accounts = [json.loads(trainer.communicate(timeout=300)[0]) for trainer in running]
    assert [trainer.returncode for trainer in running] == [0] * 4
    for account in accounts:
        assert account["once"] == [True] * 3 and account["samples"] == 400
        before, first, last = account["before"], account["first"], account["last"]
        assert first == last
        assert first[0] - before[0] <= 2
        assert first[1] == before[1] and first[2] == 0
    assert accounts[3]["held"] == 200 and accounts[3]["intact"]
    assert set(os.listdir("/dev/shm")) == shared_memory


def test_a_trainer_may_have_few_descriptors(photos, daemon):
    code = (
        "import sys, json, loaderd, loaderd.transforms as T\n"
        "loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, transform=T.CenterCrop(8), socket=sys.argv[2])\n"
        "held = [batch for _ in range(3) for batch in loader]\n"
        "print(json.dumps(len(held)))\n"
    )
    assert run_python(code, photos, daemon.socket, prefix=("prlimit", "--nofile=32")) == 45


LOOP = """
import os, sys, time
import loaderd, loaderd.transforms as T
loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, transform=T.CenterCrop(8), socket=sys.argv[2])
"""


def test_ctrl_c_ends_a_wait_for_a_batch_at_once(photos, daemon, control):
    code = (
        LOOP
        + "try:\n"
        + "    batches = iter(loader)\n"
        + "    next(batches)\n"
        + "    print('ready')\n"
        + "    sys.stdin.readline()\n"
        + "    for epoch in range(10000):\n"
        + "        for batch in batches: pass\n"
        + "        batches = iter(loader)\n"
        + "        if epoch == 3: print('waiting')\n"
        + "except KeyboardInterrupt:\n"
        + "    print('interrupted', time.monotonic())\n"
    )
    with python_process(code, photos, daemon.socket) as trainer:
        assert trainer.stdout.readline() == "ready\n"
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            trainer.stdin.write("\n")
            trainer.stdin.flush()
            time.sleep(0.5)
            sent = time.monotonic()
            trainer.send_signal(signal.SIGINT)
            word, at = trainer.stdout.readline().split()
            assert word == "interrupted" and float(at) - sent < 3
            trainer.wait(5)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
    wait_until(lambda: not control.sessions())


def test_ctrl_c_ends_an_open_that_waits(photos, daemon):
    code = (
        "import os, sys, time\nimport loaderd\n"
        "print('opening')\n"
        "try:\n    len(loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, socket=sys.argv[2]))\n"
        "except KeyboardInterrupt:\n    print('interrupted', time.monotonic())\n"
    )
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        with python_process(code, photos, daemon.socket) as trainer:
            assert trainer.stdout.readline() == "opening\n"
            time.sleep(0.5)
            sent = time.monotonic()
            trainer.send_signal(signal.SIGINT)
            word, at = trainer.stdout.readline().split()
            assert word == "interrupted" and float(at) - sent < 3
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_a_forked_child_gets_a_clear_error_and_may_open_its_own(photos, daemon):
    code = LOOP + (
        "import json\n"
        "iterator = iter(loader)\n"
        "held = next(iterator)\n"
        "total = int(held.images.sum())\n"
        "read, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    answer = {'held': int(held.images.sum()) == total}\n"
        "    try:\n"
        "        next(iterator)\n"
        "    except loaderd.ForkedError as error:\n"
        "        answer['error'] = str(error)\n"
        "    own = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, transform=T.CenterCrop(8), socket=sys.argv[2])\n"
        "    answer['own'] = sum(len(batch.index) for batch in own)\n"
        "    del held, iterator, own\n"
        "    os.write(write, json.dumps(answer).encode())\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "answer = json.loads(os.read(read, 65536))\n"
        "answer['parent'] = 4 + sum(len(batch.index) for batch in iterator)\n"
        "print(json.dumps(answer))\n"
    )
    answer = run_python(code, photos, daemon.socket)
    assert answer["held"] and answer["own"] == 60 and answer["parent"] == 60
    assert "fork" in answer["error"]


def test_a_killed_trainer_with_a_forked_child_frees_its_slots_within_a_second(photos, daemon, control):
    code = LOOP + (
        "held = []\n"
        "for batch in loader:\n"
        "    held.append(batch)\n"
        "    if len(held) == 3:\n"
        "        break\n"
        "iterator = iter(loader)\n"
        "held.append(next(iterator))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(60)\n"
        "    os._exit(0)\n"
        "print(child)\n"
        "time.sleep(60)\n"
    )
    free = {row["name"]: int(row.get("used", 0)) for row in control("status")["budget"]}
    with python_process(code, photos, daemon.socket) as trainer:
        child = int(trainer.stdout.readline())
        try:
            assert len(control.sessions()) == 1
            trainer.kill()
            wait_until(lambda: control("sessions")["sessions"] == [])
            wait_until(lambda: {row["name"]: int(row.get("used", 0)) for row in control("status")["budget"]} == free)
        finally:
            os.kill(child, signal.SIGKILL)


def test_one_trainer_killed_in_mid_batch_does_not_disturb_another(photos, daemon, control):
    import loaderd
    import loaderd.transforms as T

    code = LOOP + "print('ready')\nfor epoch in range(10000):\n    for batch in loader: pass\n"
    mine = loaderd.DataLoader(loaderd.ImageFolder(photos), 4, transform=T.CenterCrop(8), socket=daemon.socket)
    expected = [batch.images.sum() for batch in mine]
    with python_process(code, photos, daemon.socket) as trainer:
        assert trainer.stdout.readline() == "ready\n"
        wait_until(lambda: len(control.sessions()) == 2)
        iterator = iter(mine)
        got = [next(iterator).images.sum()]
        trainer.kill()
        got += [batch.images.sum() for batch in iterator]
    assert got == expected
    wait_until(lambda: len(control.sessions()) == 1)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_batches_that_a_trainer_holds_outlive_the_daemon(photos, daemon, end):
    import loaderd
    import loaderd.transforms as T

    loader = loaderd.DataLoader(loaderd.ImageFolder(photos), 4, transform=T.CenterCrop(32), socket=daemon.socket)
    batches = iter(loader)
    held = [next(batches) for _ in range(3)]
    copies = [batch.images.copy() for batch in held]
    assert all(copy.any() for copy in copies)
    getattr(daemon, end)()
    for batch, copy in zip(held, copies, strict=True):
        assert (batch.images == copy).all()
        batch.images[:] = 7  # still writable


def test_an_interpreter_may_exit_in_any_state(photos, daemon, control):
    """A live iterator, held batches, a daemon thread in next(): exit code 0, nothing on standard error."""
    code = LOOP + (
        "import threading\n"
        "iterator, held = iter(loader), []\n"
        "held.append(next(iterator))\n"
        "def forever():\n"
        "    while True:\n"
        "        for batch in loader: pass\n"
        "threading.Thread(target=forever, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, photos, daemon.socket], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    wait_until(lambda: not control.sessions())


def test_the_client_shares_a_process_with_grpc_protobuf_and_torch(photos, daemon):
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    code = LOOP + (
        "import json, grpc, torch\n"
        "from google.protobuf import descriptor_pb2\n"
        "channel = grpc.insecure_channel('unix:' + sys.argv[2])\n"
        "grpc.channel_ready_future(channel).result(10)\n"
        "first = sum(len(batch.index) for batch in loader)\n"
        "message = descriptor_pb2.FileDescriptorProto(name='x')\n"
        "assert descriptor_pb2.FileDescriptorProto.FromString(message.SerializeToString()).name == 'x'\n"
        "second = sum(float(torch.from_numpy(batch.images).double().sum()) > 0 for batch in loader)\n"
        "channel.close()\n"
        "print(json.dumps([first, second]))\n"
    )
    assert grpc
    assert run_python(code, photos, daemon.socket) == [60, 15]


def test_a_client_starts_the_users_daemon_where_there_is_none(photos, runtime_dir):
    code = (
        "import sys, json, loaderd, loaderd.transforms as T, processes\n"
        "before = processes.cost()\n"
        "loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, transform=T.CenterCrop(8))\n"
        "seen = sorted(int(i) for batch in loader for i in batch.index)\n"
        "after = processes.cost()\n"
        "print(json.dumps([seen == list(range(60)), [b - a for a, b in zip(before, after)]]))\n"
    )
    assert run_python(code, photos) == [True, [1, 0, 0]]
    pid = processes.user_daemon(runtime_dir)
    assert pid is not None
    assert run_python(code, photos) == [True, [1, 0, 0]]
    assert processes.user_daemon(runtime_dir) == pid  # shared by the next trainer


def test_the_readmes_trainer_runs_as_it_stands(photos, tmp_path):
    """Its Python block, with another folder's name."""
    blocks = (ROOT / "README.md").read_text().split("```python\n")[1:]
    code = blocks[0].split("```")[0]
    assert len(code.strip().splitlines()) <= 10 and '"/data/train"' in code
    code = code.replace('"/data/train"', repr(str(photos)))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 3
