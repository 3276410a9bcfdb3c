#include "agent/wire/transport.h"

#include <algorithm>

namespace dsj::agent {
namespace {

/// For any gang: a worker that is silent for 15 s is lost, and one that hears nothing for 10 s ends
/// its ranks (pod_config).
constexpr Time kLongestBeat{3000};

/// The time between the beats of one worker if all together send `most` per second.
Time share(int workers, int most) {
  return Time((static_cast<int64_t>(workers) * 1000 + most - 1) / most);
}

/// A pseudo-random number in [0, 1] for each worker and failure.
double chance(int worker, int failures) {
  uint64_t mixed = (static_cast<uint64_t>(worker) << 20) + static_cast<uint64_t>(failures);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<double>((mixed ^ (mixed >> 31)) >> 40) / static_cast<double>(1 << 24);
}

}  // namespace

Directive Board::answer(int worker, int64_t incarnation) const {
  if (worker < 0 || worker >= static_cast<int>(answers.size())) return unknown;
  const Answers& own = answers[worker];
  if (incarnation < own.incarnation) return replaced;
  return incarnation == own.incarnation ? own.current : own.successor;
}

Time soon_beat(int workers) {
  return std::clamp(share(workers, kSoonBeatsMax), Time(100), kLongestBeat);
}

Time steady_beat(int workers) {
  return std::clamp(share(workers, kSteadyBeatsMax), Time(500), kLongestBeat);
}

Time next_try(int worker, int workers, int failures) {
  constexpr Time kFirst{200}, kMost{500};
  // The mean wait is three quarters of the longest.
  const Time most = std::max(kMost, share(workers, kTriesMax * 3 / 4));
  const Time whole = std::min(most, kFirst * (int64_t{1} << std::clamp(failures - 1, 0, 20)));
  return Time(static_cast<int64_t>(static_cast<double>(whole.count()) *
                                   (0.5 + chance(worker, failures) / 2)));
}

Time patience(Time first, int late) {
  return first * (int64_t{1} << std::clamp(late, 0, 2));
}

Time turn_pause(int workers) {
  return Time(workers / 200);
}

std::optional<int64_t> Sequences::refuse(const WorkerReport& report) {
  Newest& newest = newest_[report.worker];
  if (report.incarnation < newest.incarnation)
    return std::nullopt;  // its answer says that it is replaced
  if (report.incarnation > newest.incarnation) newest = {report.incarnation, -1};
  if (report.sequence < newest.sequence) return newest.sequence;
  const auto step = static_cast<uint64_t>(report.sequence) - static_cast<uint64_t>(newest.sequence);
  if (step > static_cast<uint64_t>(kSequenceStepMax)) return newest.sequence;
  newest.sequence = report.sequence;
  return std::nullopt;
}

}  // namespace dsj::agent
