#include "agent/gang/sequences.h"

namespace dsj::agent {

std::optional<int64_t> Sequences::refuse(const WorkerReport& report) {
  Newest& newest = newest_[report.worker];
  if (report.incarnation < newest.incarnation)
    return std::nullopt;  // it is told that it is replaced
  if (report.incarnation > newest.incarnation) newest = {report.incarnation, -1};
  if (report.sequence < newest.sequence) return newest.sequence;
  const auto step = static_cast<uint64_t>(report.sequence) - static_cast<uint64_t>(newest.sequence);
  if (step > static_cast<uint64_t>(kSequenceStepMax)) return newest.sequence;
  newest.sequence = report.sequence;
  return std::nullopt;
}

}  // namespace dsj::agent
