#include "job/report/termination_message.h"

#include "common/cut_text.h"
#include "job/report/wire.h"

namespace dsj::report {
namespace {

using nlohmann::json;

}  // namespace

std::string to_text(const TerminationMessage& message) {
  TerminationMessage cut = message;
  const auto written = [&] {
    return to_json(cut).dump(-1, ' ', false, json::error_handler_t::replace);
  };
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
  return from_json<TerminationMessage>(json::parse(text, nullptr, false));
}

}  // namespace dsj::report
