# SPDX-License-Identifier: Apache-2.0
"""A state saved in mid-epoch and loaded in another process: nothing repeated, nothing skipped, nothing read for nothing."""

import json
import os
import shutil
import signal

import pytest
from conftest import python_process, run_python, wait_until

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

import daemon as daemon_support  # noqa: E402
import strace  # noqa: E402

NUMBER = 1000
EPOCHS = 3

# One line of JSON a batch: epoch, step, indices, checksum of the images. `at` stops it there, with its state; `more` further
# batches are taken without saving, and it waits to be killed.
TRAINER = """
import json, os, sys, time, zlib
import loaderd, loaderd.transforms as T
spec = json.loads(sys.argv[1])
module = loaderd
if spec.get("torch"):
    import torch, loaderd.torch
    module = loaderd.torch
    torch.manual_seed(spec["torch"])
steps = [T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4)]
arguments = dict(spec["arguments"])
folder = loaderd.ImageFolder(spec["folder"])
if "sampler" in arguments:
    arguments["sampler"] = eval(arguments["sampler"])
loader = module.DataLoader(folder, transform=T.Compose(steps), socket=spec["socket"], **arguments)
if spec.get("state") is not None:
    loader.load_state_dict(spec["state"])
    if spec.get("torch"):
        torch.set_rng_state(torch.tensor(spec["random"], dtype=torch.uint8))
first = spec["state"]["epoch"] if spec.get("state") else 0
left = None
for epoch in range(first, spec["epochs"]):
    loader.set_epoch(epoch)
    for batch in loader:
        facts = loader.last if spec.get("torch") else batch
        images = batch[0].numpy() if spec.get("torch") else batch.images
        print(json.dumps([facts.epoch, facts.step, facts.index.tolist(), zlib.crc32(images.tobytes())]))
        if left is not None:
            left -= 1
            if left == 0:
                print(json.dumps("taken"))
                sys.stdout.flush()
                time.sleep(600)
        elif [facts.epoch, facts.step] == spec.get("at"):
            time.sleep(spec.get("pause", 0))  # what is made ahead is made
            saved = {"state": loader.state_dict()}
            if spec.get("torch"):
                saved["random"] = torch.get_rng_state().tolist()
            print(json.dumps(saved))
            left = spec["more"]
print(json.dumps("end"))
"""

DEFAULT = dict(batch_size=16, shuffle=True, seed=7, rank=1, world_size=2, prefetch_factor=8)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """1000 images of 4 classes, each of its own colours; not to be changed."""
    folder = tmp_path_factory.mktemp("tree")
    for number in range(NUMBER):
        kind = folder / f"class_{number * 4 // NUMBER}"
        kind.mkdir(exist_ok=True)
        image = Image.new("RGB", (40, 30), (number % 256, number // 256 * 60, 200 - number % 100))
        image.paste((255 - number % 256, number % 7 * 30, 90), (number % 30, 5, 40, 25))
        image.save(kind / f"{number:04}.jpg", quality=90)
    return folder


@pytest.fixture
def daemon(tmp_path):
    """A daemon whose folder, and so whose log, stays when it is started anew."""
    place = tmp_path / "daemon"
    place.mkdir()
    with daemon_support.Daemon(folder=place) as running:
        yield running


def spec_of(folder, daemon, arguments, **more):
    return {"folder": str(folder), "socket": daemon.socket, "arguments": arguments, "epochs": EPOCHS, **more}


def read_lines(process, last):
    """What a trainer prints until it says `last`."""
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1] == last:
            return lines[:-1]
    raise AssertionError(f"the trainer left after {lines[-1:]}")


def run_all(spec):
    """The batches of a trainer that runs to the end."""
    with python_process(TRAINER, json.dumps(spec)) as trainer:
        return read_lines(trainer, "end")


def run_and_kill(spec):
    """(Batches that the state counts, what was saved) of a trainer that saves, takes some more and is killed."""
    with python_process(TRAINER, json.dumps(spec)) as trainer:
        lines = read_lines(trainer, "taken")
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
    (at,) = [number for number, line in enumerate(lines) if isinstance(line, dict)]
    assert len(lines) - at - 1 == spec["more"]
    return lines[:at], lines[at]


def joined(spec, changed=None, between=lambda: None):
    """All batches of a run that was killed behind its state, and went on in another process; the state."""
    begun, saved = run_and_kill({**spec, "at": [1, 22], "more": 2, "pause": 0.3})
    generator = "Generator" in str(spec["arguments"])  # torch's have a state of 2.5 kB
    assert len(json.dumps(saved["state"])) < (5000 if generator else 500)
    between()
    went_on = {**spec, **saved}
    if changed is not None:
        went_on["arguments"] = {**spec["arguments"], **changed}
    return begun + run_all(went_on), saved["state"]


def samples(batches):
    return [(epoch, indices) for epoch, _, indices, _ in batches]


def test_a_killed_run_that_goes_on_equals_one_without_a_stop(tree, daemon):
    spec = spec_of(tree, daemon, DEFAULT)
    expected = run_all(spec)
    assert len(expected) == EPOCHS * 32 and len({tuple(indices) for _, indices in samples(expected)}) == len(expected)
    got, state = joined(spec)
    assert (state["epoch"], state["step"]) == (1, 23)
    assert got == expected

    # Another prefetch, and the daemon killed and started anew in between.
    def restart():
        daemon.kill()
        daemon.start()

    assert joined(spec, {"prefetch_factor": 1}, restart)[0] == expected


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle": True},
        {"shuffle": False},
        {"sampler": "torch.utils.data.RandomSampler(range(1000), generator=torch.Generator().manual_seed(3))"},
    ],
    ids=["shuffle", "sequential", "sampler"],
)
def test_torchs_loader_goes_on_too(tree, daemon, arguments, workers):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    spec = spec_of(tree, daemon, {"batch_size": 16, "num_workers": 2, **arguments}, torch=5)
    expected = run_all(spec)
    assert len(expected) == EPOCHS * 63
    got, _ = joined(spec, {"num_workers": workers})
    assert got == expected


def test_a_sampler_goes_on_by_replay(tree, daemon):
    order = "[(7 * k + 3) % 1000 for k in range(700)]"
    spec = spec_of(tree, daemon, {"batch_size": 16, "sampler": order, "seed": 2})
    assert joined(spec)[0] == run_all(spec)


def test_states_saved_by_a_thread_while_steps_are_under_way_count_what_was_taken(tree, daemon):
    """A thread that saves all the time: each state lies between what had been taken before and after it."""
    code = (
        "import json, sys, threading, time\n"
        "import loaderd, loaderd.transforms as T\n"
        "loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, shuffle=True, transform=T.CenterCrop(8), socket=sys.argv[2])\n"
        "taken, wrong, done, saves = 0, [], threading.Event(), 0\n"
        "def save():\n"
        "    global saves\n"
        "    while not done.is_set():\n"
        "        before = taken\n"
        "        state = json.loads(json.dumps(loader.state_dict()))\n"
        "        # One more than is counted here may be on its way out of next().\n"
        "        at = 250 * state['epoch'] + state['step']\n"
        "        if not before <= at <= taken + 1:\n"
        "            wrong.append([before, at, taken])\n"
        "        saves += 1\n"
        "        time.sleep(0.001)\n"
        "thread = threading.Thread(target=save)\n"
        "thread.start()\n"
        "for epoch in range(3):\n"
        "    for batch in loader:\n"
        "        taken += 1\n"
        "done.set()\n"
        "thread.join()\n"
        "print(json.dumps([taken, wrong[:3], saves]))\n"
    )
    taken, wrong, saves = run_python(code, tree, daemon.socket)
    assert (taken, wrong) == (750, []) and saves > 10


def resume_error(spec, **changes):
    """The error's class and text of a trainer that cannot go on from the state."""
    code = TRAINER.replace("first = spec", "batches = iter(loader)\nfirst = spec")
    code = "import traceback\ntry:\n" + "".join(f"    {line}\n" for line in code.splitlines())
    code += "except ValueError as error:\n    print(json.dumps([type(error).__name__, str(error)]))\n"
    return run_python(code, json.dumps({**spec, **changes}))


@pytest.fixture
def saved(tree, daemon):
    """A state of DEFAULT on the tree."""
    return run_and_kill({**spec_of(tree, daemon, DEFAULT), "at": [0, 3], "more": 1})[1]["state"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"batch_size": 32}, "batch_size was 16 and is 32"),
        ({"seed": 8}, "seed was 7 and is 8"),
        ({"shuffle": False}, "order was 'torch_shuffle' and is 'sequential'"),
        ({"world_size": 4}, "world_size was 2 and is 4 (the rest of an epoch cannot be dealt out anew"),
        ({"world_size": 1, "rank": 0}, "world_size was 2 and is 1"),
        ({"rank": 0}, "rank was 1 and is 0"),
    ],
)
def test_another_job_is_refused_with_the_difference(tree, daemon, saved, change, text):
    kind, message = resume_error(spec_of(tree, daemon, {**DEFAULT, **change}), state=saved)
    assert kind == "StateError" and text in message


def test_another_dataset_is_refused_with_the_difference(photos, daemon, saved):
    kind, message = resume_error(spec_of(photos, daemon, DEFAULT), state=saved)
    assert kind == "StateError" and "it had 1000 samples, and now it has 60" in message


def test_one_file_more_is_refused_unless_the_daemon_has_the_index_of_before(tree, daemon, tmp_path):
    folder = tmp_path / "train"
    shutil.copytree(tree, folder)
    snapshots = tmp_path / "state" / "loaderd" / "snapshots"
    spec = spec_of(folder, daemon, DEFAULT)
    expected = run_all(spec)

    def one_more():
        wait_until(lambda: list(snapshots.glob("*.index")))
        daemon.kill()
        shutil.copy(folder / "class_0" / "0000.jpg", folder / "class_0" / "0000_new.jpg")
        daemon.start()

    got, state = joined(spec, between=one_more)
    assert got == expected

    daemon.kill()
    shutil.rmtree(snapshots)
    daemon.start()
    kind, message = resume_error(spec, state=state)
    assert kind == "StateError" and "it had 1000 samples, and now it has 1001" in message
    (folder / "class_0" / "0000_new.jpg").rename(folder / "class_0" / "zzzz.jpg")
    (folder / "class_0" / "0001.jpg").unlink()
    kind, message = resume_error(spec, state=state)
    assert kind == "StateError" and "it had 1000 samples, and now with other names" in message


MANY = 100_000
BATCH = 50
PREFETCH = 2


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """100,000 names of 4 files."""
    folder = tmp_path_factory.mktemp("many")
    for kind in range(4):
        (folder / str(kind)).mkdir()
        file = folder / str(kind) / "00000.jpg"
        Image.new("RGB", (16, 16), (kind * 60, 0, 0)).save(file)
        for number in range(1, MANY // 4):
            os.link(file, file.with_name(f"{number:05}.jpg"))
    yield folder
    shutil.rmtree(folder)


def opened(calls):
    return calls["open"] + calls["openat"] + calls["openat2"]


FIRST = """
import json, sys, time
import loaderd, loaderd.transforms as T
folder, socket, batch, prefetch, state, whole = sys.argv[1:]
arguments = dict(batch_size=int(batch), shuffle=True, seed=3, prefetch_factor=int(prefetch))
loader = loaderd.DataLoader(loaderd.ImageFolder(folder), transform=T.CenterCrop(8), socket=socket, **arguments)
state = json.loads(state)
if state:
    loader.load_state_dict(state)
begin = time.monotonic()
batches = iter(loader)
first = next(batches)
took = time.monotonic() - begin
count = len(first.index) + (sum(len(batch.index) for batch in batches) if whole == "1" else 0)
print(json.dumps([first.step, count, took, loader.state_dict()]))
"""


def test_going_on_at_95_percent_opens_no_file_that_lies_before(many, daemon, tmp_path):
    def run(state, whole):
        return run_python(FIRST, many, daemon.socket, BATCH, PREFETCH, json.dumps(state), whole)

    _, _, at_0, state = run(None, 0)
    state["step"] = MANY // BATCH * 95 // 100
    ahead = (PREFETCH + 3) * BATCH  # of this epoch, or of the next one
    with strace.counted(daemon.pid, tmp_path / "strace") as counts:
        step, samples, at_95, _ = run(state, 0)
        opens = opened(counts())
    print(f"first batch: {at_0 * 1e3:.0f} ms at 0 %; {at_95 * 1e3:.0f} ms at 95 % under strace, {opens} opens")
    assert (step, samples) == (1900, BATCH)
    assert BATCH <= opens <= ahead + 100
    with strace.counted(daemon.pid, tmp_path / "strace") as counts:
        _, samples, _, _ = run(state, 1)
        opens = opened(counts())
    print(f"the last 5 %: {opens} opens for {samples} samples")
    assert samples == MANY // 20
    assert samples <= opens <= samples + ahead + 100
