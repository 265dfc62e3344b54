# SPDX-License-Identifier: Apache-2.0
"""WebDataset over tar shards of the same files, decoded by PIL, with batches mixed between workers as its documentation says."""

import os

import torch_common
import trainer
import webdataset as wds

SHARDS = 16


def shards(options):
    return [str(options.work / f"wds-{number:03d}.tar") for number in range(SHARDS)]


def prepare(options):
    if all(map(os.path.exists, shards(options))):
        return
    every = list(zip(*trainer.samples(options.data), strict=True))
    for number, name in enumerate(shards(options)):
        with wds.TarWriter(name + ".part") as tar:
            for index in range(number, len(every), SHARDS):
                path, label = every[index]
                with open(path, "rb") as file:
                    tar.write({"__key__": f"{index:08d}", "jpg": file.read(), "cls": label})
        os.rename(name + ".part", name)


class Shards(trainer.Loader):
    def __init__(self, options):
        size = options.batch
        if options.long:
            dataset = wds.WebDataset(shards(options), resampled=True)
        else:
            dataset = wds.WebDataset(shards(options), shardshuffle=SHARDS if options.random_crop else False)
        if options.random_crop:
            dataset = dataset.shuffle(1000)
        dataset = dataset.decode("pil").to_tuple("jpg", "cls").map_tuple(torch_common.of_images(options), int).batched(size)
        self._loader = wds.WebLoader(dataset, batch_size=None, num_workers=options.threads, persistent_workers=True).unbatched()
        if options.random_crop:
            self._loader = self._loader.shuffle(1000)
        self._loader = self._loader.batched(size, partial=False)

    def epoch(self, number):
        return iter(self._loader)

    def stream(self):
        return iter(self._loader)

    def images(self, batch):
        return batch[0].numpy()


if __name__ == "__main__":
    trainer.main(Shards, ["webdataset", *torch_common.PACKAGES], prepare)
