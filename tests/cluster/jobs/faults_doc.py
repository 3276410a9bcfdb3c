#!/usr/bin/env python3
"""docs/reports/faults.md out of what `make test-cluster` printed. Usage: faults_doc.py LOG >docs/reports/faults.md"""
import datetime
import re
import sys

HEAD = """# Faults

What each fault does to a job on a cluster, for anyone who wants to know what a job survives. A 2 x 1 job runs on real
nodes, and each test breaks one thing. Command: `make test-cluster`; `tests/cluster/jobs/faults_doc.py LOG` made this page
from its output on @DAY@.

After each case the job is Complete, unless the row says otherwise. At the same world size every loss equals that of an
undisturbed run bit for bit. No saved step is lost. No recorded version of the job and its pods violates the never-list
(`tests/cluster/jobs/never.py`).

- **charged**: whether `backoffLimit` counts it.
- **named after**: seconds from the fault until the job's status says what happened (`status.lastFailure`, agent 0's report,
  or a condition).
- **stepping after**: seconds from the fault until training has passed the step of the fault. "goes on": training
  never stopped. "-": there is nothing to name, or no next step. "?": not measured since the behaviour changed.

Seconds were measured once, on two cores with other work. A node counted as lost 15 s after its last report, with
`nodeFailure.graceSeconds` 5 and `forceDeleteAfterSeconds` 20.

The tests are cases of `cluster_jobs` (`make test`) and `cluster_faults` (`make test-cluster`).

| fault | what happens | charged | named after | stepping after | test |
|---|---|---|---|---|---|
"""


STORM = """
## Under random faults

`cluster_storm` (`storm_check.py`) trains for 15 minutes, or `DSJ_STORM_SECONDS`, on three nodes. Every 60 to 120 s a rank
is killed, a rank freezes, a node loses its power or a node is drained, drawn from a seed. The job has
`liveness.stepTimeoutSeconds` 10, so a frozen rank is killed after that time. The last line has the share of the time in
which training made new steps, at its usual rate. It depends on chance and on the load of the machine: other
runs at load averages of 1, 2, 6, 9, 12 and 26 had 85.2, 88.3, 84.6, 88.2, 82.7 and 57.9 %.

```
"""

RUN = """
## The whole run

The output of `make test-cluster`, without the lines of the table above:

```
"""


def main():
    rows, storm, run = {}, [], []  # of a case that ran twice the later row
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in map(str.rstrip, log):
            found = re.match(r" *result: fault \| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \| (\w+)$", line)
            if found:
                rows[found[6]] = "| {} | {} | {} | {} | {} | `{}` |\n".format(*found.groups())
            elif "result: storm: " in line:
                storm.append(line.split("result: storm: ")[1].strip() + "\n")
            elif run or re.match(r"(ok|FAILED) +\w+ \[", line):
                run.append(line + "\n")
    sys.stdout.write(HEAD.replace("@DAY@", datetime.date.today().isoformat()) + "".join(rows.values()))
    sys.stdout.write(STORM + "".join(storm) + "```\n" if storm else "")
    sys.stdout.write(RUN + "".join(run) + "```\n" if run else "")


main()
