#include "job/report/termination_message.h"

#include "common/cut_text.h"
#include "job/report/wire.h"

namespace dsj::report {
namespace {

using nlohmann::json;

/// The fields in the order of their table: the deciding fields come before the long texts, so that
/// they remain if a kubelet cuts the end.
std::string in_order(const TerminationMessage& message) {
  const json written = to_json(message);
  nlohmann::ordered_json ordered;
  for (const char* name :
       {"reason", "attempt", "step", "rank", "exitCode", "signal", "message", "lastWords"}) {
    if (written.contains(name)) ordered[name] = written[name];
  }
  return ordered.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// A whole object, or the beginning of one of ours.
json parsed(std::string text) {
  json whole = json::parse(text, nullptr, false);
  if (!whole.is_discarded() || !text.starts_with("{\"reason\"")) return whole;
  constexpr int kLongestEscape = 12;  // two \uXXXX
  std::string open = text;
  for (int dropped = 0; dropped <= kLongestEscape && !open.empty(); ++dropped, open.pop_back()) {
    json closed = json::parse(open + "\"}", nullptr, false);
    if (!closed.is_discarded()) return closed;
  }
  const size_t comma = text.rfind(",\"");
  return comma == std::string::npos ? whole
                                    : json::parse(text.substr(0, comma) + "}", nullptr, false);
}

}  // namespace

std::string to_text(const TerminationMessage& message) {
  TerminationMessage cut = message;
  const auto written = [&] { return in_order(cut); };
  for (size_t room = 2000; written().size() > kTerminationBytesMax; room /= 2) {
    if (cut.last_words) {
      cut.last_words = text::last_bytes(*cut.last_words, room);
      if (room < 100) cut.last_words.reset();
    } else {
      cut.message = text::first_bytes(cut.message, room);
    }
    if (room < 2) break;
  }
  return written();
}

std::optional<TerminationMessage> termination_message_from_text(const std::string& text) {
  return from_json<TerminationMessage>(parsed(text));
}

}  // namespace dsj::report
