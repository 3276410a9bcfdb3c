#!/usr/bin/env python3
"""docs/faults.md out of what `make test-cluster` printed. Usage: faults_doc.py LOG >docs/faults.md"""
import re
import sys

HEAD = """# Faults

What happens to a 2 x 1 job on real nodes, and to its losses: after each case the job is Complete (or what the row says), with
every loss that of an undisturbed run bit for bit where the world size is the same, no saved step lost, and nothing of the
never-list seen in any version of its job and pods (`tests/cluster/jobs/never.py`). *Charged*: to `backoffLimit`. Seconds: from
the fault until training is behind the step at which it was, or until what the row says; measured once, on two cores, with a
node called lost 15 s after its last word, `nodeFailure.graceSeconds` 5 and `forceDeleteAfterSeconds` 20. The tests are cases of
`cluster_jobs` (`make test`) and `cluster_faults` (`make test-cluster`); this table is made by `faults_doc.py` from their output.

| fault | what happens | charged | s | test |
|---|---|---|---|---|
"""


RUN = """
## The whole run

What `make test-cluster` printed, without the lines that are in the table above:

```
"""


def main():
    rows, run = [], []
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in map(str.rstrip, log):
            found = re.match(r" *result: fault \| (.*) \| (.*) \| (.*) \| ([0-9.]+) s \| (\w+)$", line)
            if found:
                rows.append("| {} | {} | {} | {} | `{}` |\n".format(*found.groups()))
            elif run or re.match(r"(ok|FAILED) +\w+ \[", line):
                run.append(line + "\n")
    sys.stdout.write(HEAD + "".join(rows) + RUN + "".join(run) + "```\n")


main()
