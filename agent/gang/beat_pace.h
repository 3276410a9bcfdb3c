// How often the agents of a gang speak to worker 0's agent. One thread answers all of them, so the more
// they are, the more rarely each of them speaks: the beats and tries of all together in a second stay
// below a bound that the number of workers does not change, up to 6,000 of them. Pure.
#pragma once

#include "agent/gang/messages.h"

namespace dsj::agent {

/// The most beats in a second while something is to happen, while nothing does, and the most tries of
/// workers whom nobody answers: each looks up a name and opens a connection.
inline constexpr int kSoonBeatsMax = 4'000, kSteadyBeatsMax = 2'000, kTriesMax = 500;

/// The wait between the beats of one of `workers` while an attempt begins or ends. 100 ms up to 400
/// workers, a second at 4,096.
Time soon_beat(int workers);
/// The same while the ranks run. 500 ms up to 1,000 workers, two seconds at 4,096.
Time steady_beat(int workers);
/// The wait before the next try of `worker` after `failures` (1, 2, ...) beats in a row without an
/// answer: 200 ms, doubled with each, up to 500 ms or what kTriesMax asks for; spread over [1/2, 1] of
/// itself by the worker's number, so that not all come at once.
Time next_try(int worker, int workers, int failures);
/// How long a try waits, `first` if the last one was not `late`: doubled with each try in a row that reached
/// worker 0's machine and had no answer in time, up to four times. A worker 0 that is slow gets to it in the end;
/// one that is not there is not waited for any longer.
Time patience(Time first, int late);
/// The least time between two turns of worker 0's agent that beats cause. A turn looks at every worker,
/// so what turns take of a second stays the same for any gang.
Time turn_pause(int workers);

}  // namespace dsj::agent
