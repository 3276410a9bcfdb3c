#include "job/report/events.h"

#include "job/report/wire.h"

namespace dsj::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kEventKey[] = "event";

/// The fields in the table's order, then `others` under names not yet used. An unknown value is
/// null if `with_unknown` or its name is `always`; otherwise it is left out.
template <typename T>
ordered_json in_order(const T& object, const json& others, bool with_unknown,
                      std::string_view always = {}) {
  const json known = to_json(object);
  ordered_json ordered;
  for_each_entry<T>([&](const auto& field) {
    const auto found = known.find(field.name);
    if (found != known.end()) {
      ordered[field.name] = *found;
    } else if (const auto other = others.find(field.name); other != others.end()) {
      ordered[field.name] = *other;
    } else if ((with_unknown && !field.rare) || field.name == always) {
      ordered[field.name] = nullptr;
    }
  });
  for (const json* rest : {&known, &others})  // metrics, which no table lists
    for (const auto& [name, value] : rest->items())
      if (!ordered.contains(name)) ordered[name] = value;
  return ordered;
}

std::string line_of(const ordered_json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string to_line(const Event& event) {
  return kind_to_line(kEventKey, event);
}

std::optional<ReadEvent> event_from_line(const std::string& line) {
  ReadEvent read{.others = json::object()};
  auto event = kind_from_line<Event>(kEventKey, line, &read.others);
  if (!event) return std::nullopt;
  read.event = std::move(*event);
  return read;
}

std::string metrics_line(const Step& step, const json& others) {
  return line_of(in_order(step, others, true));
}

std::string metrics_line(const Eval& eval, const json& others) {
  constexpr const char* kLoss = "eval_loss";  // readers recognize the line by it
  return line_of(in_order(eval, others, false, kLoss));
}

std::string metrics_line(const CutRows& rows, const json& others) {
  return line_of(in_order(rows, others, false));
}

}  // namespace dsj::report
