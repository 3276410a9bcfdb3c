// Words that explain a failure, and who may say which. Ranks, agents and the operator name failures in one word each,
// and a program of the user's may write any. What the operator and the agent decide by are reserved: such a word in
// the mouth of somebody else is replaced where it comes in, and metrics name none that is not listed. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "job/contract.h"
#include "job/join_keys.h"
#include "job/node_health.h"

namespace dsj {

/// What is said in place of a word that is reserved or is none.
inline constexpr char kReasonRankFailed[] = "RankFailed";
/// The longest word.
inline constexpr size_t kReasonBytesMax = 64;

/// Only the operator says these: of pods, of the gang, and in its conditions.
inline constexpr std::array<std::string_view, 15> kOperatorsReasons = {
    "NodeLost", "PodDeleted",    "PodFailed",         "PodRejected",   "GangReleased",
    "Evicted",  "SpecChanged",   "InitializerFailed", "Resized",       "NotFinished",
    "Finished", "NotRestarting", "DeadlineExceeded",  "FailurePolicy", "StartupDeadlineExceeded"};
/// Only agents say these, of themselves: a rank that ended never ends its pod so.
inline constexpr std::array<std::string_view, 7> kAgentsReasons = {
    contract::kReasonCompleted,
    contract::kReasonPreempted,
    contract::kReasonBackoffLimitExceeded,
    contract::kReasonUnhealthyNode,
    kReasonKeyMissing,
    "WorkerLost",
    "Superseded"};

/// What else is said by our own programs and by kubelets.
inline constexpr std::array<std::string_view, 25> kOtherReasons = {kReasonRankFailed,
                                                                   contract::kReasonNotFinite,
                                                                   "BadInput",
                                                                   "ContainerCannotRun",
                                                                   "ContainerStatusUnknown",
                                                                   "Environment",
                                                                   "Error",
                                                                   "Failed",
                                                                   "HangDetected",
                                                                   "Killed",
                                                                   "NoLastWords",
                                                                   "NodeAffinity",
                                                                   "NodeShutdown",
                                                                   "OOMKilled",
                                                                   "OutOfcpu",
                                                                   "OutOfmemory",
                                                                   "OutOfnvidia_com_gpu",
                                                                   "OutOfpods",
                                                                   "PeerLost",
                                                                   "Preempting",
                                                                   "StartError",
                                                                   "SupervisorLost",
                                                                   "Terminated",
                                                                   "TopologyAffinityError",
                                                                   "UnexpectedAdmissionError"};
/// In a metric, of every other word: a program of the user's says what it likes, and each value of a label is a series.
inline constexpr char kReasonOther[] = "Other";

/// A word of letters and digits, a letter first.
constexpr bool is_reason_word(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !text.empty() && text.size() <= kReasonBytesMax && letter(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

/// `said` by an agent, or kReasonRankFailed.
inline std::string reason_of_agent(std::string_view said) {
  const bool good = is_reason_word(said) && std::ranges::count(kOperatorsReasons, said) == 0;
  return std::string(good ? said : kReasonRankFailed);
}

/// `said` by a rank, or kReasonRankFailed.
inline std::string reason_of_rank(std::string_view said) {
  return std::ranges::count(kAgentsReasons, said) == 0 ? reason_of_agent(said) : kReasonRankFailed;
}

/// `said` as a label of a metric: itself if it is listed above, or kReasonOther.
inline std::string reason_label(std::string_view said) {
  const auto listed = [&](const auto& words) { return std::ranges::count(words, said) > 0; };
  const bool known = listed(kOperatorsReasons) || listed(kAgentsReasons) || listed(kOtherReasons);
  return std::string(known ? said : kReasonOther);
}

}  // namespace dsj
