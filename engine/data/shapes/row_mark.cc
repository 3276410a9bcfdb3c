#include "engine/data/shapes/row_mark.h"

#include <array>
#include <optional>
#include <utility>

namespace dsj::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array kMarkFields = {"label", "kto_tag"};

std::optional<bool> mark_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) {
    if (value == json(1)) return true;
    if (value == json(0)) return false;
  }
  for (const auto& [yes, no] : {std::pair{"true", "false"}, {"True", "False"}, {"1", "0"}}) {
    if (value == json(yes)) return true;
    if (value == json(no)) return false;
  }
  return std::nullopt;
}

}  // namespace

std::expected<UnmarkedRow, RowProblem> without_mark(json row, const std::string& text) {
  for (const char* field : kMarkFields) {
    const auto found = row.find(field);
    if (found == row.end() || found->is_null()) continue;
    const auto good = mark_of(*found);
    if (!good)
      return std::unexpected(RowProblem{
          field,
          "is " + found->dump() + ", expected true, of a good answer, or false, of a bad one"});
    ordered_json rest = ordered_json::parse(text);
    rest.erase(field);
    row.erase(field);
    return UnmarkedRow{*good, std::move(row), rest.dump()};
  }
  return std::unexpected(RowProblem{
      "",
      "has no label: this objective judges answers that label or kto_tag marks good (true) or bad "
      "(false), or the two answers chosen and rejected; datasetColumns gives other names "
      "(kto_tag)"});
}

std::expected<ShapedRow, RowProblem> to_judge(ShapedRow shaped) {
  switch (shaped.kind) {
    case RowKind::Alpaca:
    case RowKind::Prompt:
    case RowKind::ChatPrompt:
      return shaped;
    case RowKind::Tokens:
    case RowKind::Text:
    case RowKind::Segments:
      return std::unexpected(
          RowProblem{"", "is of shape " + shaped.shape + ": expected a prompt and its answer"});
    case RowKind::Chat:
      break;
  }
  const char* list = turns_field(shaped.row);
  const json& turns = shaped.row[list];
  if (!turns.is_array() || turns.empty() || !turns.back().is_object())
    return shaped;  // check_row()
  const json speaker = turns.back().value(role_field(shaped.row, turns.back()), json());
  if (turns.size() < 2 || !speaker.is_string() ||
      role_of(speaker.get<std::string>()) != "assistant")
    return std::unexpected(
        RowProblem{std::string(list) + "[" + std::to_string(turns.size() - 1) + "]",
                   "is not an answer behind a question: expected the assistant's turn to judge"});
  shaped.kind = RowKind::ChatPrompt;
  shaped.row[kPromptTurns] = turns.size() - 1;
  return shaped;
}

}  // namespace dsj::data
