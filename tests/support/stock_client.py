# SPDX-License-Identifier: Apache-2.0
"""A trainer without our client: stock grpcio with stubs generated here, reading by inline delivery."""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import queue
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

import loaderd

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def generated(folder: pathlib.Path) -> Iterator[dict]:
    """The modules job_pb2, loader_pb2, loader_pb2_grpc, admin_pb2 and admin_pb2_grpc by name, in a package path of their own."""
    from grpc_tools import protoc

    protos = [str(path) for path in (ROOT / "proto" / "loaderd" / "v1").glob("*.proto")]
    arguments = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", f"--grpc_python_out={folder}", *protos]
    assert protoc.main(arguments) == 0
    # The generated modules import one another as loaderd.v1.…, which the client's package has no part of.
    package = str(folder / "loaderd")
    loaderd.__path__.append(package)
    names = ("job_pb2", "loader_pb2", "loader_pb2_grpc", "admin_pb2", "admin_pb2_grpc")
    try:
        yield {name: importlib.import_module(f"loaderd.v1.{name}") for name in names}
    finally:
        loaderd.__path__.remove(package)
        for name in [name for name in sys.modules if name.startswith("loaderd.v1")]:
            del sys.modules[name]


class Call:
    """One Session call: requests by put(), responses by next()."""

    def __init__(self, stubs, channel):
        self._requests = queue.Queue()
        stub = stubs["loader_pb2_grpc"].LoaderStub(channel)
        self.responses = stub.Session(iter(self._requests.get, None), timeout=60)

    def put(self, request):
        self._requests.put(request)

    def next(self):
        return next(self.responses)

    def end(self):
        self._requests.put(None)


def open_inline(stubs, call, folder, transform, batch_size, *, expected="", **job):
    """Opens a job on an image folder; its Opened. `job`: further fields of JobSpec."""
    pb = stubs["loader_pb2"]
    spec = stubs["job_pb2"].JobSpec(batch_size=batch_size, transform=transform, **job)
    spec.dataset.image_folder.path = str(folder)
    request = pb.Open(spec=spec, delivery=pb.DELIVERY_WAY_INLINE, expected_order_fingerprint=expected)
    call.put(pb.SessionRequest(open=request))
    while (response := call.next()).WhichOneof("response") == "indexing":
        pass
    return response.opened


def read_epoch(stubs, call, opened, epoch=0, first_batch=0):
    """Yields (BatchRef, fields by name); bad samples stand in fields["bad"]."""
    pb = stubs["loader_pb2"]
    call.put(pb.SessionRequest(start_epoch=pb.StartEpoch(epoch=epoch, first_batch=first_batch, start=epoch + 1)))
    call.put(pb.SessionRequest(want=pb.Want(count=2)))
    bad = []
    while True:
        response = call.next()
        kind = response.WhichOneof("response")
        if kind == "epoch_end":
            return
        if kind == "bad_samples":
            bad += [SimpleNamespace(index=each.index, reason=each.reason) for each in response.bad_samples.bad]
            continue
        ref = response.batch
        assert kind == "batch" and ref.handling in (pb.HANDLING_INLINE, pb.HANDLING_NONE)
        data = bytearray()
        while len(data) < ref.inline_bytes:
            chunk = call.next().chunk.data
            assert 0 < len(chunk) <= 1 << 20
            data += chunk
        assert len(data) == ref.inline_bytes
        fields = {}
        for field in opened.field if data else ():
            shape = (ref.count, *field.shape[1:])
            fields[field.name] = np.ndarray(shape, field.dtype, data, field.offset, tuple(field.stride_bytes))
        fields["bad"], bad = bad, []
        yield ref, fields
        call.put(pb.SessionRequest(want=pb.Want(count=1)))
