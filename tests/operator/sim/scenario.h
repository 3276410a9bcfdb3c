// What a simulated job lives through.
#pragma once

namespace dsj::op::sim {

enum class Scenario {
  Plain,       ///< to Complete
  Suspend,     ///< suspended for a while, then resumed
  Scale,       ///< to another world size
  BadEdit,     ///< a spec that is refused, later mended
  Refused,     ///< refused from the beginning, later mended
  CrashLoop,   ///< every attempt fails: the budget ends it
  PodLoop,     ///< no pod gets as far as an attempt
  Fatal,       ///< an exit that no attempt helps against
  Deadline,    ///< activeDeadlineSeconds is over first
  Delete,      ///< the job is deleted at some time
  TimeToLive,  ///< complete, then gone
  Elastic,     ///< nodes go, and come back
};
inline constexpr int kScenarios = 12;

}  // namespace dsj::op::sim
