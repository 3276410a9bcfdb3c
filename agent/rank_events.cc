#include "agent/rank_events.h"

#include <array>
#include <utility>

#include "common/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

constexpr std::array<std::pair<const char*, RankEventKind>, 13> kKinds = {{
    {kEventStart, RankEventKind::Start},
    {kEventResolved, RankEventKind::Resolved},
    {kEventResumed, RankEventKind::Resumed},
    {kEventStep, RankEventKind::Step},
    {kEventLog, RankEventKind::Log},
    {kEventEval, RankEventKind::Eval},
    {kEventNote, RankEventKind::Note},
    {kEventMemory, RankEventKind::Memory},
    {kEventCheckpoint, RankEventKind::Checkpoint},
    {kEventExported, RankEventKind::Exported},
    {kEventError, RankEventKind::Error},
    {kEventWarning, RankEventKind::Warning},
    {kEventDone, RankEventKind::Done},
}};

bool has_step(RankEventKind kind) {
  return kind == RankEventKind::Resumed || kind == RankEventKind::Step ||
         kind == RankEventKind::Log || kind == RankEventKind::Eval ||
         kind == RankEventKind::Checkpoint || kind == RankEventKind::Done;
}

std::string text_of(const nlohmann::json& body, const char* key) {
  const auto found = body.find(key);
  return found != body.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::vector<std::string> LineSplitter::feed(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (partial_.size() + piece.size() > kLineBytesMax) overlong_ = true;
    if (!overlong_) partial_ += piece;
    if (end == std::string_view::npos) return lines;
    bytes.remove_prefix(end + 1);
    std::string line = std::exchange(partial_, {});
    if (std::exchange(overlong_, false)) {
      ++dropped_;
      continue;
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

std::optional<RankEvent> parse_event(const std::string& line) {
  RankEvent event;
  event.body = nlohmann::json::parse(line, nullptr, false);
  if (!event.body.is_object()) return std::nullopt;
  const std::string name = text_of(event.body, "event");
  for (const auto& [kind_name, kind] : kKinds) {
    if (name != kind_name) continue;
    event.kind = kind;
    event.reason = text_of(event.body, "reason");
    event.message = text_of(event.body, "message");
    const auto step = event.body.find("step");
    const bool is_step =
        step != event.body.end() && step->is_number_integer() && step->get<int64_t>() >= 0;
    if (is_step) event.step = step->get<int64_t>();
    if (has_step(kind) && !is_step) return std::nullopt;
    return event;
  }
  return std::nullopt;
}

}  // namespace dsj::agent
