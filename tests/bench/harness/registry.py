# SPDX-License-Identifier: Apache-2.0
"""The peers: which script runs each, in which environment."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """What is installed together in one virtual environment."""

    requirements: tuple[str, ...]


FAMILIES = {
    "torch": Family(("torch==2.14.1", "torchvision==0.29.1", "pillow", "numpy", "webdataset")),
    "dali": Family(("nvidia-dali-cuda120", "numpy")),
    "tensorflow": Family(("tensorflow-cpu", "numpy")),
    "spdl": Family(("spdl", "numpy")),
    # The CPU build of torch, which has no torchvision; FFCV's own sources are compiled, against OpenCV and libturbojpeg.
    "ffcv": Family(("torch==2.13.0", "numpy", "numba", "pillow", "setuptools", "opencv-python-headless", "ffcv")),
    "grain": Family(("grain", "pillow", "numpy")),
    "plot": Family(("matplotlib",)),
}


class Peer(NamedTuple):
    name: str
    title: str
    script: str
    family: str  # "" is the environment of the harness itself
    variant: str = ""
    same_files: bool = True  # reads the files of the folder, not smaller ones made of them


PEERS = (
    Peer("loaderd", "**loaderd**", "loaderd_daemon", ""),
    Peer("tfdata", "tf.data, its usual resize without antialias", "tf_data", "tensorflow"),
    Peer("tfdata-antialias", "tf.data with antialias", "tf_data", "tensorflow", "antialias"),
    Peer("tfdata-service", "tf.data service, without antialias", "tf_data", "tensorflow", "service"),
    Peer("dali", "DALI CPU", "dali_cpu", "dali"),
    Peer("torch-decode", "torch DataLoader, decode_image", "torch_decode", "torch"),
    Peer("pool-decode", "thread pool, decode_image", "pool_decode", "torch"),
    Peer("grain", "Grain, PIL", "grain_pil", "grain"),
    Peer("torch-pil", "torch DataLoader, PIL", "torch_pil", "torch"),
    Peer("spdl", "SPDL", "spdl_cpu", "spdl"),
    Peer("webdataset", "WebDataset, PIL", "webdataset_pil", "torch"),
    Peer("ffcv-jpg", "FFCV, from its re-encoded smaller file", "ffcv_file", "ffcv", "jpg", same_files=False),
    Peer("ffcv-raw", "FFCV, uncompressed at 256 pixels", "ffcv_file", "ffcv", "raw", same_files=False),
)
BY_NAME = {peer.name: peer for peer in PEERS}

RECIPES = {
    "crop_uint8": "RandomResizedCrop(224) + flip, uint8",
    "crop_float32": "the same, float32 normalised",
    "eval_float32": "Resize(256) + CenterCrop(224), float32 normalised",
}
# The mode of the bare decode that a recipe is held against.
LIMIT_OF = {"crop_uint8": "crop", "crop_float32": "crop", "eval_float32": "full"}


def chosen(names: str) -> tuple[bool, list[Peer]]:
    """"loaderd,limit" -> whether the limit is among them, and the peers. ValueError names what is unknown."""
    limit, peers = False, []
    for name in filter(None, names.split(",")):
        if name == "limit":
            limit = True
        elif name == "all":
            limit, peers = True, list(PEERS)
        elif name in BY_NAME:
            peers.append(BY_NAME[name])
        else:
            raise ValueError(f"no peer {name!r}: there are limit, all, {', '.join(BY_NAME)}")
    return limit, peers
