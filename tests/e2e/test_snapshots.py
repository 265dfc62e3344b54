# SPDX-License-Identifier: Apache-2.0
"""Index snapshots outlive the daemon: a job that reopens goes on with its order, whatever became of the folder meanwhile."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import Control, files_of, run_python, wait_until

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")

from stock_client import Call, open_inline, read_epoch  # noqa: E402

import daemon as daemon_support  # noqa: E402
import loaderd  # noqa: E402

NOBODY = 65534


@pytest.fixture
def folder(photos, tmp_path):
    """A copy of the photos that a test may change."""
    copy = tmp_path / "train"
    shutil.copytree(photos, copy)
    return copy


@pytest.fixture
def snapshots(tmp_path):
    """Where the daemons of this test keep theirs."""
    return tmp_path / "state" / "loaderd" / "snapshots"


@pytest.fixture
def daemon(tmp_path):
    """A daemon whose folder, and so whose log, stays when it is started anew."""
    place = tmp_path / "daemon"
    place.mkdir()
    with daemon_support.Daemon(folder=place) as running:
        yield running


def restart(daemon):
    daemon.kill()
    daemon.start()


def kept(snapshots, number=1):
    """Waits for so many snapshots; their files."""
    return wait_until(lambda: len(found := sorted(snapshots.glob("*.index"))) == number and found)


@contextlib.contextmanager
def job(stubs, daemon, folder, expected="", policy="BAD_SAMPLE_POLICY_SKIP"):
    """(Opened, function that reads an epoch) of a shuffled job."""
    pb = stubs["job_pb2"]
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        call = Call(stubs, channel)
        try:
            opened = open_inline(
                stubs,
                call,
                folder,
                [pb.TransformStep(center_crop=pb.CenterCrop(size=[16]))],
                7,
                expected=expected,
                order=pb.OrderSpec(kind=pb.ORDER_KIND_TORCH_SHUFFLE, seed=5),
                on_bad_sample=pb.BadSamplePolicy.Value(policy),
            )
            yield opened, lambda **where: list(read_epoch(stubs, call, opened, **where))
        finally:
            call.end()


def pixels(batches):
    """Checksum of the image by index, and the indices in order."""
    order, sums = [], {}
    for _, fields in batches:
        for index, image in zip(fields["index"].tolist(), fields["images"], strict=True):
            order.append(index)
            sums[index] = hashlib.sha256(image.tobytes()).hexdigest()
    return order, sums


def change(folder):
    """Adds, touches, renames and removes; the names that are gone."""
    files = files_of(folder)
    shutil.copy(files[0], files[0].with_name("0000_new.jpg"))
    shutil.copytree(files[0].parent, folder / "class_00b")
    os.utime(files[1])
    files[2].rename(files[2].with_name("zzz.jpg"))
    files[30].unlink()
    return [files[2], files[30]]


def test_a_reopened_job_goes_on_with_its_order_and_its_bytes(stubs, daemon, folder, snapshots):
    files = files_of(folder)
    with job(stubs, daemon, folder) as (opened, read):
        order, sums = pixels(read())
        assert sorted(order) == list(range(60))
        begun = opened.order_fingerprint
        kept(snapshots)
        restart(daemon)
    gone = change(folder)
    with job(stubs, daemon, folder, begun) as (opened, read):
        assert (opened.order_fingerprint, opened.num_samples) == (begun, 60)
        batches = read()
        rest = read(epoch=0, first_batch=4)
    # Where a sample is missing its batch is shorter by it; all else is where it was.
    lost = [files.index(path) for path in gone]
    now, sums_now = pixels(batches)
    assert now == [index for index in order if index not in lost]
    assert sums_now == {index: value for index, value in sums.items() if index not in lost}
    bad = {each.index: each.reason for _, fields in batches for each in fields["bad"]}
    assert sorted(bad) == sorted(lost)
    for path in gone:
        assert str(path) in bad[files.index(path)] and "vanished since indexing" in bad[files.index(path)]
    assert pixels(rest)[0] == [index for index in order[28:] if index not in lost]
    daemon.wait_log("as it was, with 60 samples, from its index snapshot")


def test_a_missing_file_fails_its_step_by_name_and_the_next_goes_on(stubs, daemon, folder, snapshots):
    with job(stubs, daemon, folder) as (opened, read):
        order, _ = pixels(read())
        kept(snapshots)
        restart(daemon)
    gone = files_of(folder)[order[0]]
    gone.unlink()
    with job(stubs, daemon, folder, opened.order_fingerprint, "BAD_SAMPLE_POLICY_FAIL") as (_, read):
        (first, _), *others = read()
        assert str(gone) in first.error and "vanished since indexing" in first.error
        assert pixels(others)[0] == order[7:]


def test_old_and_new_jobs_are_served_at_once(stubs, daemon, folder, snapshots):
    with job(stubs, daemon, folder) as (opened, read):
        order, _ = pixels(read())
        begun = opened.order_fingerprint
        kept(snapshots)
        restart(daemon)
    change(folder)
    with job(stubs, daemon, folder, begun) as (old, read_old), job(stubs, daemon, folder) as (new, read_new):
        assert (old.num_samples, old.order_fingerprint) == (60, begun)
        assert new.num_samples == len(files_of(folder)) == 81
        assert new.order_fingerprint != begun
        assert sorted(pixels(read_new())[0]) == list(range(81))
        assert len(pixels(read_old())[0]) == 58
        assert len(Control(daemon.socket)("datasets")["datasets"]) == 2
        kept(snapshots, 2)


def refusal(stubs, daemon, folder, expected):
    with pytest.raises(grpc.RpcError) as caught, job(stubs, daemon, folder, expected):
        pass
    return caught.value.code(), caught.value.details()


def fingerprint_now(stubs, daemon, folder):
    with job(stubs, daemon, folder) as (opened, _):
        return opened.order_fingerprint


def test_without_its_snapshot_a_changed_folder_is_refused_with_both_orders(stubs, daemon, folder, snapshots):
    begun = fingerprint_now(stubs, daemon, folder)
    (file,) = kept(snapshots)
    daemon.kill()
    file.unlink()
    change(folder)
    daemon.start()
    code, text = refusal(stubs, daemon, folder, begun)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    now = fingerprint_now(stubs, daemon, folder)
    for part in (str(folder), begun, now, str(snapshots.parent), "put the names back as they were, or begin the job anew"):
        assert part in text, text


def test_without_its_snapshot_an_unchanged_folder_is_served(stubs, daemon, folder, snapshots):
    with job(stubs, daemon, folder) as (opened, read):
        order, sums = pixels(read())
        kept(snapshots)
    daemon.kill()
    shutil.rmtree(snapshots)
    os.utime(folder)
    daemon.start()
    with job(stubs, daemon, folder, opened.order_fingerprint) as (_, read):
        assert pixels(read()) == (order, sums)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "huge"])
def test_a_damaged_snapshot_is_as_good_as_none_and_is_logged(stubs, daemon, folder, snapshots, damage):
    begun = fingerprint_now(stubs, daemon, folder)
    (file,) = kept(snapshots)
    daemon.kill()
    data = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        os.truncate(file, 1 << 40)
    daemon.start()
    # The folder is what it was: it is indexed, served, and its snapshot written again.
    with job(stubs, daemon, folder, begun) as (opened, _):
        assert opened.order_fingerprint == begun
    daemon.wait_log(str(file))
    assert "indexing the folder in its place" in daemon.log()
    wait_until(lambda: file.exists() and len(file.read_bytes()) == len(data))


def test_what_is_no_fingerprint_is_refused(stubs, daemon, folder):
    code, text = refusal(stubs, daemon, folder, "../../etc/passwd")
    assert code is grpc.StatusCode.INVALID_ARGUMENT and "expected_order_fingerprint" in text


def test_files_are_its_users_alone(stubs, daemon, folder, snapshots):
    fingerprint_now(stubs, daemon, folder)
    (file,) = kept(snapshots)
    assert [path.stat().st_mode & 0o7777 for path in (snapshots.parent, snapshots, file)] == [0o700, 0o700, 0o600]


def test_a_state_directory_without_right_is_told_once_and_costs_nothing_else(photos, open_folder):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be a user without rights")
    folders = [pathlib.Path(open_folder) / f"train{number}" for number in range(2)]
    for each in folders:
        shutil.copytree(photos, each)
        for part in (each, *each.iterdir()):
            part.chmod(0o755)
    place = pathlib.Path(open_folder) / "run"
    place.mkdir()
    env = {"XDG_STATE_HOME": "/proc/nowhere", "HOME": "/nonexistent"}
    with daemon_support.Daemon(folder=place, user=NOBODY, env=env) as running:
        prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        code = (
            "import sys, loaderd, loaderd.transforms as T\n"
            "loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 7, transform=T.CenterCrop(16), socket=sys.argv[2])\n"
            "print(sum(len(batch.index) for batch in loader))"
        )
        for each in folders:
            assert run_python(code, each, running.socket, prefix=prefix) == 60
        running.wait_log("index snapshots are not kept in /proc/nowhere/loaderd/snapshots")
        assert running.log().count("index snapshots are not kept") == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs", str(place)]
    if os.geteuid() != 0 or (made := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip("needs the right to mount" + ("" if os.geteuid() else f": {made.stderr.strip()}"))
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_told_once_and_costs_nothing_else(stubs, folder, tmp_path, small_disk):
    place = tmp_path / "daemon"
    place.mkdir()
    with daemon_support.Daemon(folder=place, env={"XDG_STATE_HOME": str(small_disk)}) as running:
        for name in ("one", "two"):
            shutil.copytree(folder, tmp_path / name)
            for number, file in enumerate(files_of(tmp_path / name)):
                file.rename(file.with_name(f"{number:0250d}.jpg"))
            with job(stubs, running, tmp_path / name) as (_, read):
                assert sorted(pixels(read())[0]) == list(range(60))
        running.wait_log("No space left on device")
        # What fits is written all the same.
        with job(stubs, running, folder):
            kept(small_disk / "loaderd" / "snapshots")
        assert running.log().count("index snapshots are not kept") == 1
        assert len(list((small_disk / "loaderd" / "snapshots").iterdir())) == 1


def test_the_system_daemon_keeps_them_where_systemd_says(stubs, folder, tmp_path):
    place = tmp_path / "daemon"
    place.mkdir()
    state = tmp_path / "var"
    config = f'dataset_root: "{folder}"'
    env = {"STATE_DIRECTORY": f"{state}:/nowhere"}
    with daemon_support.Daemon(system=True, config=config, folder=place, env=env) as running:
        begun = fingerprint_now(stubs, running, folder)
        kept(state / "snapshots")
        restart(running)
        change(folder)
        with job(stubs, running, folder, begun) as (opened, read):
            assert opened.order_fingerprint == begun and len(pixels(read())[0]) == 58
    with daemon_support.Daemon(system=True, config=config + f'\nstate_dir: "{tmp_path}/own"', folder=place) as running:
        fingerprint_now(stubs, running, folder)
        kept(tmp_path / "own" / "snapshots")
    with daemon_support.Daemon(system=True, config=config, folder=place) as running:
        assert "no state directory: index snapshots are not kept" in running.log()


def test_the_fingerprint_that_describe_tells_is_the_one_to_expect(daemon, folder, snapshots):
    begun = loaderd.ImageFolder(folder).describe(daemon.socket).order_fingerprint
    (file,) = kept(snapshots)
    assert file.name.endswith(f"-{begun}.index")
