#!/usr/bin/env python3
"""How storm_time.py counts. Usage: storm_time_check.py GTEST_REPORT. Exit 1 on a failure."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from cases import Report, expect  # noqa: E402
from history import Change  # noqa: E402
from storm_time import effective, lost, restores  # noqa: E402


def even(first, last, step, rate=4):
    """Samples of steady training, four a second, `rate` steps a second, from `step` on."""
    return [(first + i / 4, step + int(i / 4 * rate)) for i in range(int((last - first) * 4) + 1)]


def equal(found, expected):
    expect(found == expected, f"{found}, expected {expected}")


def near(found, expected):
    expect(abs(found - expected) < 1e-9, f"{found}, expected {expected}")


def all_of_it_trains():
    near(effective(even(100, 160, 0)), 1.0)


def slow_steps_train():
    """One in four seconds, seen by four samples a second."""
    near(effective(even(100, 160, 0, rate=0.25)), 1.0)


def a_standstill_does_not():
    """Ten seconds of sixty, of which a step's own quarter of a second counts."""
    near(effective(even(100, 130, 0) + even(140, 160, 121)), (60 - 10 + 0.25) / 60)


def steps_done_again_do_not():
    """Ten seconds stand still, then five do the last 20 steps again."""
    near(effective(even(100, 130, 0) + even(140, 160, 101)), (30 + 0.25 + 15) / 60)


def nothing_trains():
    equal(effective([(100, 7), (110, 7)]), 0.0)


def what_was_lost():
    samples = even(100, 130, 0) + even(140, 160, 100)
    equal(lost(samples, [(139.0, 100)]), 20)
    equal(lost(samples, [(139.0, 120)]), 0)
    equal(lost(samples, []), 0)


def restores_are_told_once():
    def job(version, told):
        return Change("job", "MODIFIED", {"metadata": {"name": "j", "uid": "u", "resourceVersion": str(version)},
                                          "status": {"checkpoint": {"lastRestored": told} if told else {}}})
    first, second = {"step": 20, "time": "1970-01-01T00:01:00Z"}, {"step": 20, "time": "1970-01-01T00:02:00Z"}
    changes = [job(1, None), job(2, first), job(3, first), job(4, second)]
    equal(restores(changes, "j"), [(60.0, 20), (120.0, 20)])
    equal(restores(changes, "other"), [])


CASES = [all_of_it_trains, slow_steps_train, a_standstill_does_not, steps_done_again_do_not, nothing_trains, what_was_lost,
         restores_are_told_once]


def main():
    report = Report("StormTime", sys.argv[1])
    for case in CASES:
        report.run(case.__name__, case)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
