# SPDX-License-Identifier: Apache-2.0
"""loaderd, its Python client: numpy views of shared memory. The daemon runs already; its index of the folder is cold.

Variant "warm": the daemon knows the folder from an earlier open. Variants "fidelity=exact" and "fidelity=fast": that option.
"""

import inspect

import trainer

import loaderd
import loaderd.transforms as T


def recipe(options, **fidelity):
    if options.random_crop:
        steps = [T.RandomResizedCrop(224, **fidelity), T.RandomHorizontalFlip()]
    else:
        steps = [T.Resize(256), T.CenterCrop(224)]
    if options.floats:
        steps += [T.ToTensor(), T.Normalize(trainer.MEAN, trainer.STD)]
    return T.Compose(steps)


def takes(function, name):
    return name in inspect.signature(function).parameters


class Daemon(trainer.Loader):
    def __init__(self, options):
        dataset = loaderd.ImageFolder(options.data)
        of_loader, of_step = {}, {}
        if options.variant.startswith("fidelity="):
            wanted = {"fidelity": options.variant.removeprefix("fidelity=")}
            if takes(loaderd.DataLoader, "fidelity"):
                of_loader = wanted
            elif takes(T.RandomResizedCrop, "fidelity"):
                of_step = wanted
            elif takes(loaderd.ImageFolder, "fidelity"):
                dataset = loaderd.ImageFolder(options.data, **wanted)
            elif wanted["fidelity"] != "exact":
                raise SystemExit("not in this build: fidelity")
        self._loader = loaderd.DataLoader(
            dataset,
            batch_size=options.batch,
            shuffle=options.random_crop,
            drop_last=True,
            transform=recipe(options, **of_step),
            socket=options.socket,
            **of_loader,
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
