#include "job/report/termination_message.h"

#include "job/report/wire.h"

namespace dsj::report {
namespace {

using nlohmann::json;

/// The end of a text; never starts in the middle of a character.
std::string tail(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t start = text.size() - bytes;
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) ++start;
  return text.substr(start);
}

}  // namespace

std::string to_text(const TerminationMessage& message) {
  TerminationMessage cut = message;
  const auto text = [&] {
    return to_json(cut).dump(-1, ' ', false, json::error_handler_t::replace);
  };
  for (size_t room = 2000; text().size() > kTerminationBytesMax; room /= 2) {
    if (cut.last_words) {
      cut.last_words = tail(*cut.last_words, room);
      if (room < 100) cut.last_words.reset();
    } else {
      cut.message = cut.message.substr(0, room);
    }
    if (room < 2) break;
  }
  return text();
}

std::optional<TerminationMessage> termination_message_from_text(const std::string& text) {
  return from_json<TerminationMessage>(json::parse(text, nullptr, false));
}

}  // namespace dsj::report
