"""What a storm of faults leaves of the time, by samples of (seconds since 1970, the last step in metrics.jsonl). Steps that a
resume does again are no new ones."""
import datetime
import statistics


SLOW = 3  # medians: a step that takes longer was disturbed


def effective(samples):
    """The share of the time in which new steps were made. From one new step to the next is training if it takes at most three
    times as long as the median; of what takes longer the median counts, and the rest is lost."""
    begin, furthest = samples[0]
    ends = [begin]
    for when, step in samples:
        if step > furthest:
            ends.append(when)
            furthest = step
    gaps = [after - before for before, after in zip(ends, ends[1:])]
    if not gaps:
        return 0.0
    usual = statistics.median(gaps)
    made = sum(gap if gap <= SLOW * usual else usual for gap in gaps)
    return made / (samples[-1][0] - begin)


def lost(samples, restores):
    """Steps that were done again: for each restore, how far behind the furthest step it began."""
    found = 0
    for when, step in restores:
        furthest = max((reached for seen, reached in samples if seen <= when), default=step)
        found += max(0, furthest - step)
    return found


def restores(changes, job):
    """(seconds since 1970, step) of each attempt that went on from a checkpoint, as the versions of the job tell it."""
    found = []
    for change in sorted(changes, key=lambda entry: entry.version):
        if change.kind != "job" or change.name != job:
            continue
        told = ((change.object.get("status") or {}).get("checkpoint") or {}).get("lastRestored")
        if told:
            when = datetime.datetime.fromisoformat(told["time"].replace("Z", "+00:00")).timestamp()
            if (when, told["step"]) not in found:
                found.append((when, told["step"]))
    return found
