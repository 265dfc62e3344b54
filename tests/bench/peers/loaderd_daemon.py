# SPDX-License-Identifier: Apache-2.0
"""loaderd, its Python client: numpy views of shared memory. The daemon runs already; its index of the folder is cold.

Variants "fidelity=exact" and "fidelity=fast": that option of the loader. --prepare makes the index warm.
"""

import inspect

import trainer

import loaderd
import loaderd.transforms as T


def recipe(options):
    if options.random_crop:
        steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
    else:
        steps = [T.Resize(256), T.CenterCrop(224)]
    if options.floats:
        steps += [T.ToTensor(), T.Normalize(trainer.MEAN, trainer.STD)]
    return T.Compose(steps)


def choices(options):
    """The loader's arguments beyond the usual. A build without the option can only be exact."""
    name, _, value = options.variant.partition("=")
    if name != "fidelity":
        return {}
    if name in inspect.signature(loaderd.DataLoader).parameters:
        return {name: value}
    if value != "exact":
        raise SystemExit(f"not in this build: {options.variant}")
    return {}


class Daemon(trainer.Loader):
    def __init__(self, options):
        self._loader = loaderd.DataLoader(
            loaderd.ImageFolder(options.data),
            batch_size=options.batch,
            shuffle=options.random_crop,
            drop_last=True,
            transform=recipe(options),
            socket=options.socket,
            **choices(options),
        )

    def epoch(self, number):
        self._loader.set_epoch(number)
        return iter(self._loader)


def make(options):
    return Daemon(options)


def prepare(options):
    """Lets the daemon index the folder."""
    loaderd.ImageFolder(options.data).describe(options.socket)


if __name__ == "__main__":
    trainer.main(make, ["numpy"], prepare)
