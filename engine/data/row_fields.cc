#include "engine/data/row_fields.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>

namespace dsj::data {
namespace {

using nlohmann::json;

struct Refused {
  const char *field, *why;
};

constexpr char kPreference[] =
    "belongs to a preference row (DPO and its kin), and only answers to learn are trained on here: "
    "keep the better answer as the row's answer, and leave this field out";
constexpr char kMedia[] =
    "goes with text here, and only text is read: take a data set without images, video and sound";
constexpr char kFunctions[] =
    "is OpenAI's old form of tools and their calls: write tools and tool_calls";
constexpr char kPartOfTurn[] =
    "marks parts of a turn, and a turn is learned as a whole or not at all: use weight or train";

constexpr auto kMediaFields = std::to_array<Refused>({{"image", kMedia},
                                                      {"images", kMedia},
                                                      {"video", kMedia},
                                                      {"videos", kMedia},
                                                      {"audio", kMedia},
                                                      {"audios", kMedia}});
constexpr auto kOfRow = std::to_array<Refused>({{"chosen", kPreference},
                                                {"rejected", kPreference},
                                                {"preferred_output", kPreference},
                                                {"non_preferred_output", kPreference},
                                                {"functions", kFunctions}});
constexpr auto kOfTurn = std::to_array<Refused>({{"function_call", kFunctions},
                                                 {"train_detail", kPartOfTurn},
                                                 {"training_detail", kPartOfTurn}});

constexpr std::array kMarks = {"<image>", "<video>", "<audio>"};
constexpr std::array kLabels = {"label", "kto_tag"};

/// The first field of the table, else the first of other media, that the object holds.
std::optional<RowProblem> first_of(std::span<const Refused> table, const json& object) {
  for (const auto& fields : {table, std::span<const Refused>(kMediaFields)}) {
    for (const Refused& one : fields) {
      if (holds(object, one.field)) return RowProblem{one.field, one.why};
    }
  }
  return std::nullopt;
}

/// Collects names of fields, each once, in the order in which they are found.
class Names {
 public:
  void add(std::string name) {
    if (seen_.insert(name).second) names_.push_back(std::move(name));
  }
  /// The fields of `object` that hold something and are none of `read`.
  void add_others(const json& object, std::initializer_list<std::string_view> read,
                  const std::string& where) {
    for (const auto& [name, value] : object.items()) {
      if (std::ranges::find(read, name) == read.end() && holds(object, name.c_str()))
        add(where + name);
    }
  }
  void add_marks(const json& text, const std::string& where) {
    if (!text.is_string()) return;
    for (const char* mark : kMarks) {
      if (text.get_ref<const std::string&>().find(mark) != std::string::npos)
        add(std::string(mark) + " in " + where);
    }
  }
  std::vector<std::string> take() && { return std::move(names_); }

 private:
  std::set<std::string> seen_;
  std::vector<std::string> names_;
};

void unread_in_turn(const json& row, const json& turn, const std::string& where, Names& names) {
  const char* content = content_field(row, turn);
  names.add_others(turn, {role_field(row, turn), content, "weight", "train", "tool_calls"},
                   where + ".");
  const std::string name = where + "." + content;
  if (!turn.contains(content)) return;
  names.add_marks(turn[content], name);
  if (!turn[content].is_array()) return;
  for (const json& part : turn[content]) {
    if (!part.is_object()) continue;
    names.add_others(part, {"type", "text"}, name + "[].");
    names.add_marks(part.value("text", json()), name + "[].text");
  }
}

}  // namespace

bool holds(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return false;
  const bool can_be_empty = found->is_string() || found->is_array() || found->is_object();
  if (found->is_string()) return !found->get_ref<const std::string&>().empty();
  return !can_be_empty || !found->empty();
}

std::optional<RowProblem> refused_field(const json& row) {
  if (!row.is_object()) return std::nullopt;
  if (auto problem = first_of(kOfRow, row)) return problem;
  for (const char* label : kLabels) {
    if (row.value(label, json()) == json(false)) {
      return RowProblem{label,
                        "is false: KTO's mark of an answer that must not be learned, and KTO is "
                        "not built; leave the row out"};
    }
  }
  return std::nullopt;
}

std::optional<RowProblem> refused_turn_field(const json& turn) {
  return first_of(kOfTurn, turn);
}

std::string refused_part(const std::string& type) {
  return "is a part of type \"" + type + "\", and " +
         (type.starts_with("tool") ? std::string("tool calls are read from tool_calls alone")
                                   : std::string("only text is read"));
}

const char* turns_field(const json& row) {
  return holds(row, "messages") || !row.contains("conversations") ? "messages" : "conversations";
}

const char* role_field(const json& row, const json& turn) {
  const bool sharegpt = std::string_view(turns_field(row)) == "conversations";
  const auto [own, other] = sharegpt ? std::pair{"from", "role"} : std::pair{"role", "from"};
  return turn.contains(own) || !turn.contains(other) ? own : other;
}

const char* content_field(const json& row, const json& turn) {
  const bool sharegpt = std::string_view(turns_field(row)) == "conversations";
  const auto [own, other] =
      sharegpt ? std::pair{"value", "content"} : std::pair{"content", "value"};
  return turn.contains(own) || !turn.contains(other) ? own : other;
}

bool takes_system(const json& row) {
  const json& first = row[turns_field(row)][0];
  return holds(row, "system") && first.value(role_field(row, first), "") != "system";
}

std::vector<std::string> unread_fields(const json& row, RowKind kind) {
  Names names;
  if (kind == RowKind::Tokens) {
    names.add_others(row, {"input_ids", "labels", "attention_mask"}, "");
    return std::move(names).take();
  }
  // A label of true says what is done anyway; one that is no truth value is something else.
  const auto label = [&](const char* name, const char* otherwise) -> std::string_view {
    return row.value(name, json()) == json(true) ? name : otherwise;
  };
  if (kind == RowKind::Alpaca) {
    names.add_others(row,
                     {"instruction", "input", "output", "system", "history",
                      label("label", "output"), label("kto_tag", "output")},
                     "");
    for (const char* field : {"instruction", "input"})
      names.add_marks(row.value(field, json()), field);
    return std::move(names).take();
  }
  const char* list = turns_field(row);
  names.add_others(row,
                   {list, "tools", takes_system(row) ? "system" : list, label("label", list),
                    label("kto_tag", list)},
                   "");
  for (const json& turn : row[list]) unread_in_turn(row, turn, std::string(list) + "[]", names);
  return std::move(names).take();
}

}  // namespace dsj::data
