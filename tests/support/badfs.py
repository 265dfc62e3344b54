# SPDX-License-Identifier: Apache-2.0
"""badfs.py SOURCE MOUNT: a read-only view of SOURCE whose reads fail by rule; for tests. Needs python3-fusepy.

SOURCE/.rules is looked at for each read: lines "PART ERRNO COUNT", for example "000007.jpg EIO 1": the first COUNT reads of
files whose path contains PART fail.
"""

import errno
import os
import sys

import fusepy


class BadStorage(fusepy.Operations):
    def __init__(self, source):
        self.source = source
        self.failed = {}

    def getattr(self, path, fh=None):
        try:
            status = os.lstat(self.source + path)
        except OSError as error:
            raise fusepy.FuseOSError(error.errno) from None
        names = ("st_mode", "st_size", "st_nlink", "st_uid", "st_gid", "st_mtime", "st_ino")
        return {name: getattr(status, name) for name in names}

    def readdir(self, path, fh):
        return [".", "..", *(name for name in os.listdir(self.source + path) if name != ".rules")]

    def open(self, path, flags):
        return os.open(self.source + path, flags & ~os.O_NONBLOCK)

    def release(self, path, fh):
        os.close(fh)

    def read(self, path, size, offset, fh):
        for part, what, count in self.rules():
            if part in path and self.failed.get((path, what), 0) < int(count):
                self.failed[path, what] = self.failed.get((path, what), 0) + 1
                raise fusepy.FuseOSError(getattr(errno, what))
        return os.pread(fh, size, offset)

    def rules(self):
        try:
            with open(self.source + "/.rules") as file:
                return [line.split() for line in file]
        except FileNotFoundError:
            return []


if __name__ == "__main__":
    fusepy.FUSE(BadStorage(sys.argv[1]), sys.argv[2], foreground=True, direct_io=True, ro=True)
