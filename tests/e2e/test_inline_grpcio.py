# SPDX-License-Identifier: Apache-2.0
"""The service without our client: stock grpcio, with stubs generated here, reads by inline delivery."""

import contextlib
import os
import pathlib
import socket
import time

import numpy as np
import pytest
from conftest import files_of, run_python, wait_until

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")

from stock_client import Call, open_inline, read_epoch  # noqa: E402

import daemon as daemon_support  # noqa: E402
import loaderd  # noqa: E402
import loaderd.transforms as T  # noqa: E402


@pytest.fixture
def call(stubs, daemon):
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        call = Call(stubs, channel)
        yield call
        call.end()


def test_stock_grpc_reads_two_epochs_with_the_pixels_that_the_client_gets(stubs, photos, daemon, call):
    job = stubs["job_pb2"]
    opened = open_inline(stubs, call, photos, [job.TransformStep(center_crop=job.CenterCrop(size=[48]))], 7)
    assert opened.num_samples == 60 and opened.num_batches == 9 and not opened.segment_token
    expected = loaderd.DataLoader(loaderd.ImageFolder(photos), 7, transform=T.CenterCrop(48), socket=daemon.socket)
    for epoch in range(2):
        got = list(read_epoch(stubs, call, opened, epoch))
        assert [ref.step for ref, _ in got] == list(range(9))
        for (ref, fields), batch in zip(got, expected, strict=True):
            assert ref.epoch == epoch and ref.count == len(batch.index)
            assert np.array_equal(fields["images"], batch.images)
            assert np.array_equal(fields["labels"], batch.labels)
            assert np.array_equal(fields["index"], batch.index)


def test_batches_larger_than_a_message_come_in_pieces(stubs, photos, call):
    job = stubs["job_pb2"]
    opened = open_inline(stubs, call, photos, [job.TransformStep(resize=job.Resize(size=[512, 512]))], 16)
    sizes = [ref.inline_bytes for ref, _ in read_epoch(stubs, call, opened)]
    assert len(sizes) == 4 and sizes[0] > 12 << 20


def test_a_job_that_cannot_be_ends_the_call_with_the_fields_path(stubs, photos, call):
    job = stubs["job_pb2"]
    with pytest.raises(grpc.RpcError) as caught:
        open_inline(stubs, call, photos, [job.TransformStep(center_crop=job.CenterCrop(size=[0]))], 7)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "transform[0].center_crop.size" in caught.value.details()


def test_describe_tells_every_class(stubs, photos, daemon):
    pb = stubs["loader_pb2"]
    request = pb.DescribeRequest()
    request.dataset.image_folder.path = str(photos)
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        answers = list(stubs["loader_pb2_grpc"].LoaderStub(channel).Describe(request, timeout=30))
    assert answers[0].num_samples == len(files_of(photos)) == 60
    assert [name for answer in answers for name in answer.class_name] == [b"class_00", b"class_01", b"class_02"]


def resident_kb(daemon, field):
    text = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0])


def test_a_request_over_the_limit_costs_nobody_else_their_session(stubs, daemon, photos):
    """gRPC takes it in before it judges it: memory of its size, for so long. Others go on, and the memory comes back."""
    pb = stubs["loader_pb2"]
    sessions = [
        iter(loaderd.DataLoader(loaderd.ImageFolder(photos), 4, transform=T.CenterCrop(8), socket=daemon.socket))
        for _ in range(20)
    ]
    seen = sum(len(next(session).index) for session in sessions)
    before = resident_kb(daemon, "VmRSS")
    pathlib.Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")
    begin = time.monotonic()
    with grpc.insecure_channel(f"unix:{daemon.socket}", [("grpc.max_send_message_length", -1)]) as channel:
        stub = stubs["loader_pb2_grpc"].LoaderStub(channel)
        with pytest.raises(grpc.RpcError, match=r"larger than max \(\d+ vs. 4194304\)"):
            list(stub.Describe(pb.DescribeRequest(json=bytes(100 << 20)), timeout=60))
    seconds, peak = time.monotonic() - begin, resident_kb(daemon, "VmHWM") - before
    seen += sum(len(batch.index) for session in sessions for batch in session)
    assert seen == 20 * 60
    print(f"a request of 100 MiB: refused after {seconds:.2f} s, {peak} kB more at the peak")
    assert peak < 120_000
    wait_until(lambda: resident_kb(daemon, "VmRSS") - before < 60_000)


def test_a_class_list_longer_than_a_message_comes_in_parts(stubs, daemon, tmp_path):
    """On gRPC's default limits, of 4 MiB a message, with a list of 5 MB."""
    names = [f"{number:0250d}" for number in range(20_000)]
    folder = tmp_path / "names"
    folder.mkdir()
    for name in names:
        (folder / name).mkdir()
        (folder / name / "0.jpg").touch()
    request = stubs["loader_pb2"].DescribeRequest()
    request.dataset.image_folder.path = str(folder)
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        responses = list(stubs["loader_pb2_grpc"].LoaderStub(channel).Describe(request, timeout=60))
    assert len(responses) > 1 and responses[0].num_classes == 20_000
    assert [name.decode() for response in responses for name in response.class_name] == names
    assert loaderd.ImageFolder(folder).describe(daemon.socket).class_names == tuple(names)


ASK = """
import json, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.sendall(bytes.fromhex(sys.argv[2]))
answer, descriptors, _, _ = socket.recv_fds(peer, 4096, 4)
print(json.dumps([answer[:1].hex(), answer[1:].decode(), len(descriptors)]))
"""


def test_a_segment_token_is_worth_nothing_to_another_process_or_user(stubs, photos, open_folder):
    pb, job = stubs["loader_pb2"], stubs["job_pb2"]
    config = f'listen {{ socket: "{open_folder}/loaderd.sock" mode: 0666 }}\ndataset_root: "{photos}"'
    with (
        daemon_support.Daemon(system=True, config=config, folder=open_folder) as running,
        grpc.insecure_channel(f"unix:{running.socket}") as channel,
    ):
        call = Call(stubs, channel)
        spec = job.JobSpec(batch_size=4, transform=[job.TransformStep(center_crop=job.CenterCrop(size=[48]))])
        spec.dataset.image_folder.path = str(photos)
        call.put(pb.SessionRequest(open=pb.Open(spec=spec)))
        while (response := call.next()).WhichOneof("response") == "indexing":
            pass
        token = response.opened.segment_token
        assert len(token) == 16
        strangers = [()]
        if os.geteuid() == 0:
            strangers.append(("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
        for prefix in strangers:
            code, why, descriptors = run_python(ASK, f"{open_folder}/loaderd-segment.sock", token.hex(), prefix=prefix)
            assert (code, descriptors) == ("01", 0) and "belongs to another process" in why
        # The owner's own request is served all the same, once.
        for code, descriptors in (("00", 1), ("01", 0)):
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as peer:
                peer.connect(f"{open_folder}/loaderd-segment.sock")
                peer.sendall(token)
                answer, handed, _, _ = socket.recv_fds(peer, 4096, 4)
                assert (answer[:1].hex(), len(handed)) == (code, descriptors)
                for descriptor in handed:
                    os.close(descriptor)
        call.end()
