// The termination message of an agent's pod, which the operator and the user read when the pod is
// gone. One JSON object. Pure. field.h describes the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/report/field.h"

namespace dsj::report {

/// The kubelet keeps at most this, and 12 KiB for all containers of a pod: 2,457 bytes each for five.
inline constexpr size_t kTerminationBytesMax = 4096;

struct TerminationMessage {
  std::string reason;  ///< one word; only kReasonCompleted (contract.h) with exit code 0 is success
  std::string message;
  std::optional<int64_t> step;
  std::optional<int64_t> attempt;
  // If one rank is to blame:
  std::optional<int64_t> rank;
  std::optional<int64_t> exit_code;
  std::optional<int64_t> signal;  ///< instead of an exit code
  std::optional<std::string> last_words;
  static constexpr auto fields() {
    return std::tuple{field(&TerminationMessage::reason, "reason"),
                      field(&TerminationMessage::message, "message"),
                      field(&TerminationMessage::step, "step"),
                      field(&TerminationMessage::attempt, "attempt"),
                      field(&TerminationMessage::rank, "rank"),
                      field(&TerminationMessage::exit_code, "exitCode"),
                      field(&TerminationMessage::signal, "signal"),
                      field(&TerminationMessage::last_words, "lastWords")};
  }
};
static_assert(is_described<TerminationMessage>);

/// At most kTerminationBytesMax. Cuts the rank's last words first, then the message.
std::string to_text(const TerminationMessage& message);
/// The fields that are left if a kubelet cut the end of the text. nullopt if it is not an agent's.
std::optional<TerminationMessage> termination_message_from_text(const std::string& text);

}  // namespace dsj::report
