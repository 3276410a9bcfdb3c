#include "cli/cluster/patience.h"

#include <cstdio>

namespace dsj::cli {
namespace {

constexpr std::chrono::minutes kUnansweredMost{5};

}  // namespace

bool Patience::lasts(const kube::ApiError& error) {
  if (!error.passing()) return false;
  const auto now = clock_.monotonic();
  if (!since_) {
    since_ = now;
    std::fprintf(stderr, "dsj %s: %s; retrying for %lld minutes\n", verb_,
                 error.to_string().c_str(), static_cast<long long>(kUnansweredMost.count()));
  }
  return now - *since_ < kUnansweredMost;
}

}  // namespace dsj::cli
