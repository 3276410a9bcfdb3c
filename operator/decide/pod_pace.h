// Limits how often pods of one job are created and deleted, for any reason, with a token bucket. A
// defect, a template or an image that exits at once then costs the cluster little. Each creation
// and each deletion takes a token. Creations wait for tokens. Deletions do not wait: they are often
// urgent, and they cannot outnumber creations. The state is the time at which the bucket is full
// again. Pure.
#pragma once

#include <algorithm>

#include "operator/observe/times.h"

namespace dsj::op {

/// Tokens of a full bucket: enough to replace a gang twice, plus some single pods.
constexpr int pod_burst(int workers) {
  return 20 + 4 * std::max(workers, 0);
}
/// The time after which one token comes back.
constexpr Milliseconds pod_interval(int workers) {
  return Milliseconds(60'000 / (6 + std::max(workers, 0)));
}

/// When `pods` can be created at once: `now` or later. A request for more than a full bucket counts
/// as a full bucket.
constexpr Time pods_from(Time full, int workers, int pods, Time now) {
  const int missing = std::min(pods, pod_burst(workers)) - pod_burst(workers);
  return std::max(now, full + missing * pod_interval(workers));
}

/// When the bucket is full again after `pods` were created or deleted.
constexpr Time pods_paid(Time full, int workers, int pods, Time now) {
  return std::max(full, now) + pods * pod_interval(workers);
}

}  // namespace dsj::op
