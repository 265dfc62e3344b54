# SPDX-License-Identifier: Apache-2.0
"""tf.data as its performance guide says: parallel map and prefetch with AUTOTUNE, order left free, decode_and_crop_jpeg.

Variants: "" resizes without antialias, as tf.image.resize does when not told otherwise; "antialias" with; "service" without,
through a tf.data service with one dispatcher and one worker in a process of its own (a child of this trainer).
"""

import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
import trainer

MEAN = tf.constant(trainer.MEAN) * 255
STD = tf.constant(trainer.STD) * 255


def serve():
    """Dispatcher and worker; says the address, and goes when standard input ends."""
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    print(dispatcher.target, flush=True)
    sys.stdin.read()
    del worker


class TfData(trainer.Loader):
    def __init__(self, options):
        self._options = options
        self._service = None
        paths, labels = trainer.samples(options.data)
        dataset = tf.data.Dataset.from_tensor_slices((paths, labels))
        if options.random_crop:
            dataset = dataset.shuffle(len(paths))
        if options.long:
            dataset = dataset.repeat()
        dataset = dataset.map(self._sample, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        dataset = dataset.batch(options.batch, drop_remainder=True)
        if options.variant == "service":
            self._service = subprocess.Popen(
                [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            target = self._service.stdout.readline().strip()
            policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
            dataset = dataset.apply(tf.data.experimental.service.distribute(processing_mode=policy, service=target))
        self._dataset = dataset.prefetch(tf.data.AUTOTUNE)

    def _sample(self, path, label):
        encoded = tf.io.read_file(path)
        antialias = self._options.variant == "antialias"
        if self._options.random_crop:
            begin, size, _ = tf.image.sample_distorted_bounding_box(
                tf.io.extract_jpeg_shape(encoded),
                tf.zeros((1, 0, 4)),
                area_range=(0.08, 1.0),
                aspect_ratio_range=(3 / 4, 4 / 3),
                max_attempts=10,
                min_object_covered=0,
                use_image_if_no_bounding_boxes=True,
            )
            window = tf.stack([begin[0], begin[1], size[0], size[1]])
            image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
            image = tf.image.resize(image, (224, 224), antialias=antialias)
            image = tf.image.random_flip_left_right(image)
        else:
            image = tf.io.decode_jpeg(encoded, channels=3)
            shape = tf.cast(tf.shape(image)[:2], tf.float32)
            shape = tf.cast(tf.round(shape * 256 / tf.reduce_min(shape)), tf.int32)
            image = tf.image.resize(image, shape, antialias=antialias)
            image = tf.image.resize_with_crop_or_pad(image, 224, 224)
        if self._options.floats:
            return (image - MEAN) / STD, label
        return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8), label

    def epoch(self, number):
        return iter(self._dataset)

    def stream(self):
        return iter(self._dataset)

    def images(self, batch):
        return np.asarray(memoryview(batch[0]))

    def close(self):
        if self._service is not None:
            self._service.communicate()


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        trainer.main(TfData, ["tensorflow-cpu", "tensorflow", "numpy"])
