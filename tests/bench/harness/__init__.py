# SPDX-License-Identifier: Apache-2.0
"""What `./run bench` is made of; tests/bench/bench.py is its begin."""
