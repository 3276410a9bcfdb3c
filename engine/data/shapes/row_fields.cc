#include "engine/data/shapes/row_fields.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>
#include <utility>

namespace dsj::data {
namespace {

using nlohmann::json;

struct Refused {
  const char *field, *why;
};

constexpr char kPreference[] =
    "belongs to a preference row, and objective sft learns every answer: set objective: dpo to "
    "compare "
    "prompt, chosen and rejected, or keep only the better answer as the row's answer";
constexpr char kMedia[] =
    "holds media, and only text is read: use a data set without images, video and audio";
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
constexpr auto kOfRow = std::to_array<Refused>({{"preferred_output", kPreference},
                                                {"non_preferred_output", kPreference},
                                                {"better_response_id", kPreference},
                                                {"preference", kPreference},
                                                {"functions", kFunctions}});
/// Names of two alternative answers: response_0 and response_1, answer_a and answer_b,
/// response_j and response_k.
constexpr std::array<std::string_view, 5> kAlternatives = {"response", "answer", "output",
                                                           "completion", "human_ref"};
constexpr std::array<std::pair<const char*, const char*>, 5> kSuffixes = {
    {{"_0", "_1"}, {"_1", "_2"}, {"_a", "_b"}, {"_A", "_B"}, {"_j", "_k"}}};
constexpr auto kOfTurn = std::to_array<Refused>({{"function_call", kFunctions},
                                                 {"train_detail", kPartOfTurn},
                                                 {"training_detail", kPartOfTurn}});

constexpr std::array kMarks = {"<image>", "<video>", "<audio>"};
constexpr std::array kLabels = {"label", "kto_tag"};

/// Returns the object's first field that is in the table, else the first media field.
std::optional<RowProblem> first_of(std::span<const Refused> table, const json& object) {
  for (const auto& fields : {table, std::span<const Refused>(kMediaFields)}) {
    for (const Refused& one : fields) {
      if (holds(object, one.field)) return RowProblem{one.field, one.why};
    }
  }
  return std::nullopt;
}

/// Whether the field is the second of two alternative answers.
bool is_alternative(const json& row, const std::string& name) {
  constexpr size_t kSuffix = 2;
  const auto stem = std::string_view(name).substr(0, name.size() - std::min(kSuffix, name.size()));
  if (std::ranges::find(kAlternatives, stem) == kAlternatives.end()) return false;
  return std::ranges::any_of(kSuffixes, [&](const auto& pair) {
    return name.ends_with(pair.second) && holds(row, (std::string(stem) + pair.first).c_str());
  });
}

/// Returns the field that shows a preference between answers.
std::optional<std::string> preference_field(const json& row) {
  for (const auto& [name, value] : row.items()) {
    const bool shows = name.starts_with("chosen") || name.starts_with("rejected") ||
                       name.ends_with("_chosen") || name.ends_with("_rejected") ||
                       is_alternative(row, name);
    if (shows && holds(row, name.c_str())) return name;
  }
  return std::nullopt;
}

/// Whether the value is KTO's mark of a bad answer, as JSON, numbers and CSV write it.
bool says_no(const json& value) {
  for (const json& no : {json(false), json(0), json(0.0), json("false"), json("False"), json("0")})
    if (value == no && value.type() == no.type()) return true;
  return value.is_number_unsigned() && value == json(0);
}

/// Collects names of fields without duplicates, in the order of their first occurrence.
class Names {
 public:
  void add(std::string name) {
    if (seen_.insert(name).second) names_.push_back(std::move(name));
  }
  /// Adds the non-empty fields of `object` that are not in `read`.
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
  names.add_others(turn,
                   {role_field(row, turn), content, kLearnedFields[0], kLearnedFields[1],
                    kLearnedFields[2], kLearnedFields[3], "tool_calls"},
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

std::string kind_of(const json& value) {
  if (value.is_null()) return "null";
  if (value.is_string()) return "text";
  if (value.is_number_float()) return "a fraction";
  if (value.is_number()) return "a number";
  return value.is_boolean() ? "true or false" : value.is_array() ? "a list" : "an object";
}

bool holds(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return false;
  const bool can_be_empty = found->is_string() || found->is_array() || found->is_object();
  if (found->is_string()) return !found->get_ref<const std::string&>().empty();
  return !can_be_empty || !found->empty();
}

std::optional<RowProblem> refused_field(const json& row) {
  if (!row.is_object()) return std::nullopt;
  if (const auto field = preference_field(row)) return RowProblem{*field, kPreference};
  if (auto problem = first_of(kOfRow, row)) return problem;
  for (const char* label : kLabels) {
    const json value = row.value(label, json());
    const bool is_class = !value.is_boolean() && row.contains("text");
    if (says_no(value) && !is_class) {
      return RowProblem{label, "is " + value.dump() +
                                   ": KTO's mark of an answer that must not be learned; objective "
                                   "kto reads it, else leave the row out"};
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

std::optional<std::string> role_of(const std::string& speaker) {
  constexpr std::pair<std::string_view, const char*> kSpeakers[] = {
      {"human", "user"},        {"prompter", "user"},       {"gpt", "assistant"},
      {"chatgpt", "assistant"}, {"bing", "assistant"},      {"bard", "assistant"},
      {"model", "assistant"},   {"bot", "assistant"},       {"observation", "tool"},
      {"function", "tool"},     {"tool_response", "tool"},  {"function_response", "tool"},
      {"system", "system"},     {"user", "user"},           {"assistant", "assistant"},
      {"tool", "tool"},         {"developer", "developer"}, {"ipython", "ipython"}};
  std::string word = speaker;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto found = std::ranges::find(kSpeakers, word, [](const auto& one) { return one.first; });
  return found == std::end(kSpeakers) ? std::nullopt : std::optional<std::string>(found->second);
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

bool has_template_kwargs(const json& row) {
  return row.value(kTemplateKwargs, json()).is_object();
}

bool takes_system(const json& row) {
  const json& first = row[turns_field(row)][0];
  return holds(row, "system") && first.value(role_field(row, first), "") != "system";
}

std::vector<std::string> unread_fields(const json& row, RowKind kind) {
  Names names;
  if (kind == RowKind::Tokens) {
    const bool labelled = !row.value("labels", json()).is_null();
    if (labelled)
      names.add_others(row, {"input_ids", "labels", "attention_mask"}, "");
    else
      names.add_others(row, {"input_ids", "completion_mask", "assistant_masks", "attention_mask"},
                       "");
    return std::move(names).take();
  }
  // A label of true agrees with learning the answer; any other value is an unread field.
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
  if (kind == RowKind::Text) {
    names.add_others(row, {"text", label("label", "text"), label("kto_tag", "text")}, "");
    names.add_marks(row.value("text", json()), "text");
    return std::move(names).take();
  }
  if (kind == RowKind::Segments) {
    names.add_others(row, {"segments", label("label", "segments"), label("kto_tag", "segments")},
                     "");
    return std::move(names).take();
  }
  if (kind == RowKind::Prompt) {
    names.add_others(
        row, {"prompt", "completion", label("label", "prompt"), label("kto_tag", "prompt")}, "");
    names.add_marks(row.value("prompt", json()), "prompt");
    return std::move(names).take();
  }
  const char* list = turns_field(row);
  names.add_others(row,
                   {list, "tools", has_template_kwargs(row) ? kTemplateKwargs : list,
                    takes_system(row) ? "system" : list, label("label", list),
                    label("kto_tag", list), kind == RowKind::ChatPrompt ? kPromptTurns : list},
                   "");
  for (const json& turn : row[list]) unread_in_turn(row, turn, std::string(list) + "[]", names);
  return std::move(names).take();
}

}  // namespace dsj::data
