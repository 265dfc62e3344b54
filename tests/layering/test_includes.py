# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from layers import ROOT, Layers, tracked

LAYERS = Layers()


def test_no_source_includes_what_its_layer_may_not() -> None:
    files = tracked("server/*.cc", "server/*.h", "client/*.cc", "client/*.h", "client/*.hpp")
    assert len(files) > 50
    strays = [stray for file in files for stray in LAYERS.strays(file, (ROOT / file).read_text())]
    assert not strays, "\n".join(strays)


def test_table_has_every_folder_of_sources() -> None:
    folders = {"/".join(file.split("/")[:2]) for file in tracked("server/*.cc", "client/*.cc")}
    assert folders <= set(LAYERS.modules)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("server/base/budget.cc", '#include "server/engine/engine.h"'),
        ("server/plan/job.cc", '#include "server/dataset/dataset.h"'),
        ("server/engine/engine.cc", '#include "server/rpc/server.h"'),
        ("server/engine/engine.cc", '#include "loaderd/v1/job.pb.h"'),
        ("server/daemon/main.cc", "#include <grpcpp/grpcpp.h>"),
        ("server/daemon/daemon.cc", "  #  include <systemd/sd-daemon.h>"),
        ("server/transform/recipe.cc", "#include <jpeglib.h>"),
        ("server/engine/fleet.cc", "#include <boost/asio/post.hpp>"),
        ("server/shm/segment.cc", "#include <spdlog/spdlog.h>"),
        ("client/cpp/src/session.cc", '#include "server/base/status.h"'),
        ("client/cpp/src/session.cc", '#include "absl/status/status.h"'),
        ("client/cpp/src/session.cc", "#include <nghttp2/nghttp2.h>"),
        ("client/ctl/channel.cc", '#include "client/cpp/src/channel.h"'),
        ("client/ctl/main.cc", "#include <png.h>"),
        ("server/nowhere/a.cc", "#include <vector>"),
        ("server/base/log.cc", '#include "../shm/segment.h"'),
    ],
)
def test_planted_stray_include_is_found(path: str, line: str) -> None:
    text = f"// SPDX-License-Identifier: Apache-2.0\n#include <vector>\n{line}\n"
    assert len(LAYERS.strays(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("server/engine/engine.cc", '#include "server/shm/segment.h"'),
        ("server/rpc/server.cc", "#include <grpcpp/grpcpp.h>"),
        ("server/daemon/config_text.cc", "#include <google/protobuf/text_format.h>"),
        ("client/ctl/reader.h", '#include "client/cpp/include/loaderd/client.h"'),
        ("client/cpp/src/channel.cc", "#include <nghttp2/nghttp2.h>"),
    ],
)
def test_include_that_the_table_allows_is_not_reported(path: str, line: str) -> None:
    assert LAYERS.strays(path, line + "\n") == []
