// How often pods of one job are made and deleted, whatever the reason: a token bucket, so that a defect, a template or
// an image that ends at once costs the cluster little. A creation and a deletion take a token each. Creations wait for
// tokens; a deletion never waits, because what has to go must go, and nothing is deleted that was not made. The state is
// the time at which the bucket is full again. Pure.
#pragma once

#include <algorithm>

#include "operator/observe/times.h"

namespace dsj::op {

/// Tokens of a full bucket: a gang may come and go twice, and some pods more.
constexpr int pod_burst(int workers) {
  return 20 + 4 * std::max(workers, 0);
}
/// In which a token comes back.
constexpr Milliseconds pod_interval(int workers) {
  return Milliseconds(60'000 / (6 + std::max(workers, 0)));
}

/// When `pods` may be made at once: `now`, or later. More than a full bucket has are made as if it had them.
constexpr Time pods_from(Time full, int workers, int pods, Time now) {
  const int missing = std::min(pods, pod_burst(workers)) - pod_burst(workers);
  return std::max(now, full + missing * pod_interval(workers));
}

/// When the bucket is full again after `pods` were made or deleted.
constexpr Time pods_paid(Time full, int workers, int pods, Time now) {
  return std::max(full, now) + pods * pod_interval(workers);
}

}  // namespace dsj::op
