# SPDX-License-Identifier: Apache-2.0
from harness import stats


def test_spread_is_median_lowest_and_highest():
    assert stats.spread([3, 1, 10]) == stats.Spread(3, 1, 10, 3)
    assert stats.spread([1, 2]) == stats.Spread(1.5, 1, 2, 2)


def test_no_values_have_no_spread():
    assert stats.spread([]) is None
    assert stats.of_key([{"other": 1}], "rate") is None


def test_one_value_is_told_without_a_spread():
    assert stats.spread([1234.4]).text() == "1,234"
    assert stats.spread([1, 2, 3.25]).text(1) == "2.0 (1.0 to 3.2)"


def test_ratio_is_taken_within_each_round():
    # The machine was twice as slow in round 2: the ratio is the same.
    assert stats.paired_ratio({1: 90, 2: 45}, {1: 100, 2: 50}) == stats.Spread(0.9, 0.9, 0.9, 2)


def test_ratio_leaves_out_rounds_that_one_side_lacks():
    assert stats.paired_ratio({1: 90, 2: 45, 3: 1}, {1: 100, 3: 0}) == stats.Spread(0.9, 0.9, 0.9, 1)
    assert stats.paired_ratio({1: 90}, {}) is None


def test_by_round_skips_what_failed():
    results = [{"round": 1, "account": {"rate": 5}}, {"round": 2, "error": "exit code 1"}, {"round": 3, "account": {}}]
    assert stats.by_round(results, "rate") == {1: 5}
