# SPDX-License-Identifier: Apache-2.0
"""A plain pool of threads in the trainer, with torchvision.io.decode_image: no processes; three batches are in the making."""

import collections
import concurrent.futures

import torch
import torch_common
import trainer
from torchvision.io import ImageReadMode, decode_image

AHEAD = 3


class Pool(trainer.Loader):
    def __init__(self, options):
        torch.set_num_threads(1)  # the pool's threads are the parallelism
        self._options = options
        self._paths, self._labels = trainer.samples(options.data)
        if options.long:
            self._paths *= trainer.LONG
            self._labels *= trainer.LONG
        self._transform = torch_common.of_tensors(options)
        self._pool = concurrent.futures.ThreadPoolExecutor(options.threads)

    def _sample(self, index):
        return self._transform(decode_image(self._paths[index], ImageReadMode.RGB)), self._labels[index]

    def epoch(self, number):
        generator = torch.Generator().manual_seed(number)
        count = len(self._paths)
        order = torch.randperm(count, generator=generator) if self._options.random_crop else torch.arange(count)
        size = self._options.batch
        batches = iter(order[: count // size * size].view(-1, size).tolist())
        pending = collections.deque()

        def submit():
            for indices in batches:
                pending.append([self._pool.submit(self._sample, index) for index in indices])
                return

        for _ in range(AHEAD):
            submit()
        while pending:
            images, labels = zip(*(future.result() for future in pending.popleft()), strict=True)
            submit()
            yield torch.stack(images), torch.tensor(labels)

    def stream(self):
        return self.epoch(0)

    def close(self):
        self._pool.shutdown(cancel_futures=True)

    def images(self, batch):
        return batch[0].numpy()


if __name__ == "__main__":
    trainer.main(Pool, torch_common.PACKAGES)
