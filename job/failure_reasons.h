// The reasons of failures, and which program may use which. A reason is one word. Ranks, agents, the operator and
// users' own programs write reasons. The operator and the agent decide by some of them, so these are reserved: a
// reserved reason from another program is replaced on arrival, and metrics show only listed reasons. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "job/contract.h"
#include "job/join_keys.h"
#include "job/node_health.h"

namespace dsj {

/// Replaces a reason that is reserved for another program or is not a word.
inline constexpr char kReasonRankFailed[] = "RankFailed";
/// The longest reason.
inline constexpr size_t kReasonBytesMax = 64;

/// Reserved for the operator: reasons of pods, of the gang and of its conditions.
inline constexpr std::array<std::string_view, 15> kOperatorsReasons = {
    "NodeLost", "PodDeleted",    "PodFailed",         "PodRejected",   "GangReleased",
    "Evicted",  "SpecChanged",   "InitializerFailed", "Resized",       "NotFinished",
    "Finished", "NotRestarting", "DeadlineExceeded",  "FailurePolicy", "StartupDeadlineExceeded"};
/// Reserved for agents, about themselves: a rank that ends never ends its pod with these.
inline constexpr std::array<std::string_view, 7> kAgentsReasons = {
    contract::kReasonCompleted,
    contract::kReasonPreempted,
    contract::kReasonBackoffLimitExceeded,
    contract::kReasonUnhealthyNode,
    kReasonKeyMissing,
    "WorkerLost",
    "Superseded"};

/// Further reasons of our own programs and of kubelets.
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
/// Shown in metrics for any other reason: users' programs write any word, and each label value makes a series.
inline constexpr char kReasonOther[] = "Other";

/// Whether `text` consists of letters and digits and begins with a letter.
constexpr bool is_reason_word(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !text.empty() && text.size() <= kReasonBytesMax && letter(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

/// `reason` if an agent may use it, or kReasonRankFailed.
inline std::string reason_of_agent(std::string_view reason) {
  const bool good = is_reason_word(reason) && std::ranges::count(kOperatorsReasons, reason) == 0;
  return std::string(good ? reason : kReasonRankFailed);
}

/// `reason` if a rank may use it, or kReasonRankFailed.
inline std::string reason_of_rank(std::string_view reason) {
  return std::ranges::count(kAgentsReasons, reason) == 0 ? reason_of_agent(reason)
                                                         : kReasonRankFailed;
}

/// The label of `reason` in a metric: itself if it is listed above, or kReasonOther.
inline std::string reason_label(std::string_view reason) {
  const auto listed = [&](const auto& words) { return std::ranges::count(words, reason) > 0; };
  const bool known = listed(kOperatorsReasons) || listed(kAgentsReasons) || listed(kOtherReasons);
  return std::string(known ? reason : kReasonOther);
}

}  // namespace dsj
