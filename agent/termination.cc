#include "agent/termination.h"

#include <algorithm>

#include "agent/blame.h"
#include "agent/rank_end.h"
#include "common/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;
using nlohmann::json;

std::string reason_of(int exit_code) {
  switch (exit_code) {
    case kExitDone:
      return kReasonCompleted;
    case kExitPreempted:
      return kReasonPreempted;
    case kExitPeerLost:
      return "PeerLost";
    case kExitBadInput:
      return "BadInput";
    case kExitEnvironment:
      return "Environment";
    default:
      return "Failed";
  }
}

/// The end of a text; never starts in the middle of a character.
std::string tail(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t start = text.size() - bytes;
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) ++start;
  return text.substr(start);
}

std::string dump(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The first of this worker's ranks that failed by itself; null: none.
const RankState* failed_rank(const std::vector<RankState>& ranks, size_t* index) {
  const RankState* first = nullptr;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankState& rank = ranks[i];
    const RankEnd end = end_of(rank);
    if (end != RankEnd::Failed && end != RankEnd::Refused) continue;
    if (first && first->exit_order <= rank.exit_order) continue;
    first = &rank;
    *index = i;
  }
  return first;
}

json blame_of(const RankState& rank, int number) {
  json failure = {{"rank", number}};
  if (rank.signal != 0) {
    failure["signal"] = rank.signal;
  } else {
    failure["exitCode"] = rank.exit_code;
  }
  if (!rank.last_words.empty()) failure["lastWords"] = rank.last_words;
  return failure;
}

json blame_of(const json& report) {
  if (!report.is_object() || report.value("rank", -1) < 0) return nullptr;
  json failure = {{"rank", report["rank"]}};
  if (report.value("signal", 0) != 0) {
    failure["signal"] = report["signal"];
  } else {
    failure["exitCode"] = report.value("exitCode", 0);
  }
  if (!report.value("lastWords", "").empty()) failure["lastWords"] = report["lastWords"];
  return failure;
}

}  // namespace

std::string to_text(const Termination& termination) {
  json object = {{"reason", termination.reason},
                 {"message", termination.message},
                 {"step", termination.step},
                 {"attempt", termination.attempt}};
  if (termination.failure.is_object()) object.update(termination.failure);
  for (size_t room = 2000; dump(object).size() > kTerminationBytesMax; room /= 2) {
    if (object.contains("lastWords")) {
      object["lastWords"] = tail(object["lastWords"].get<std::string>(), room);
      if (room < 100) object.erase("lastWords");
    } else {
      object["message"] = object["message"].get<std::string>().substr(0, room);
    }
    if (room < 2) break;
  }
  return dump(object);
}

Termination termination_of(const Worker& worker, const std::vector<int>& ranks,
                           const Outcome* outcome, const json& last_failure) {
  Termination result{.attempt = worker.report.attempt};
  for (const auto& rank : worker.report.ranks) result.step = std::max(result.step, rank.step);
  if (outcome) {
    result.reason = outcome->reason;
    result.message = outcome->message;
    if (outcome->exit_code != kExitDone && outcome->exit_code != kExitPreempted) {
      result.failure = blame_of(last_failure);
    }
    return result;
  }
  result.reason = reason_of(worker.exit_code);
  result.message = worker.exit_reason;
  if (worker.exit_code == kExitDone || worker.exit_code == kExitPreempted) return result;
  size_t index = 0;
  if (const RankState* rank = failed_rank(worker.report.ranks, &index)) {
    const int number = index < ranks.size() ? ranks[index] : -1;
    result.failure = blame_of(*rank, number);
    if (!rank->reason.empty()) result.reason = rank->reason;
    result.message = "rank " + std::to_string(number) + " ended with " +
                     describe_exit(rank->exit_code, rank->signal);
    if (!rank->message.empty()) result.message += ": " + rank->message;
  }
  return result;
}

Termination termination_of(const Error& error) {
  return {.reason = error.kind == ErrorKind::BadInput ? "BadInput" : "Environment",
          .message = error.to_string()};
}

}  // namespace dsj::agent
