"""What a storm of faults leaves of the time, by samples of (seconds since 1970, the last step in metrics.jsonl). Steps that a
resume does again are no new ones."""
import datetime
import math


def effective(samples, width=1.0):
    """The share of the time in which new steps were made: of all stretches of `width` seconds those at whose end the furthest
    step is further than at their start. A step has to take less than `width`."""
    start, end = samples[0][0], samples[-1][0]
    count = int((end - start) / width)
    if count < 1:
        raise ValueError(f"samples of {end - start:.1f} s, expected at least {width} s")
    furthest = [samples[0][1]] + [0] * count
    for when, step in samples:
        place = min(count, math.ceil((when - start) / width))
        furthest[place] = max(furthest[place], step)
    made = 0
    for place in range(1, count + 1):
        furthest[place] = max(furthest[place], furthest[place - 1])
        made += furthest[place] > furthest[place - 1]
    return made / count


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
