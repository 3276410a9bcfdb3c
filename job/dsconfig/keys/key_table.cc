#include "job/dsconfig/keys/key_table.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "common/text.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

constexpr State kStates[] = {State::Works,       State::Moot,     State::Inert,
                             State::Unsupported, State::Rejected, State::WithSection};

const char* meaning_of(State state) {
  switch (state) {
    case State::Works:
      return "does what it says; the named test fails if it is ignored";
    case State::Moot:
      return "accepted silently: none of its values can change a run here";
    case State::Inert:
      return "a value other than the default gets a warning with the reason; the run continues";
    case State::Unsupported:
      return "a value other than the default stops the run with the reason";
    case State::Rejected:
      return "a value other than the default is an error, as in DeepSpeed";
    case State::WithSection:
      return "judged together with its section, or with the key that switches it on";
  }
  return "";
}

const char* name_of(Type type) {
  switch (type) {
    case Type::Bool:
      return "bool";
    case Type::Int:
      return "int";
    case Type::Float:
      return "float";
    case Type::String:
      return "string";
    case Type::List:
      return "list";
    case Type::Section:
      return "section";
    case Type::Any:
      break;
  }
  return "any";
}

/// Whether a section only contains keys: it gets no row.
bool is_container(const Key& key) {
  return key.type == Type::Section && key.state == State::Works;
}

std::vector<std::string> tests_of(const Key& key) {
  std::istringstream words(key.test);
  std::vector<std::string> tests;
  for (std::string word; words >> word;) tests.push_back(word);
  return tests;
}

bool is_test_name(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return !name.empty() && name.find('.') == std::string::npos;
  const size_t dot = name.find('.', colon);
  return colon > 0 && dot != std::string::npos && dot > colon + 1 && dot + 1 < name.size();
}

std::string range_of(const Key& key) {
  std::string text;
  for (const std::string& choice : key.choices) text += (text.empty() ? "" : ", ") + choice;
  if (!text.empty()) return text;
  const bool low = key.min > -1e300, high = key.max < 1e300;
  if (low && high) return text::number(key.min) + " to " + text::number(key.max);
  if (low) return "at least " + text::number(key.min);
  return high ? "at most " + text::number(key.max) : "";
}

std::string shown(const json& value) {
  if (value.is_null()) return "";
  return value == INT64_MAX ? "no limit" : value.dump();
}

std::string section_name(const Key& key) {
  const std::string top = key.path.substr(0, key.path.find('.'));
  const Key* found = find_key(top);
  return found != nullptr && found->type == Type::Section ? top : "";
}

std::map<State, int> counts_of(const std::vector<Key>& table) {
  std::map<State, int> counts;
  for (const Key& key : table)
    if (!is_container(key)) ++counts[key.state];
  return counts;
}

/// A cell of a table: without bars and line breaks.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.replace(at, 1, "\\|");
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string row(const Key& key) {
  std::string name = "`" + key.path + "`";
  for (const std::string& alias : key.aliases) name += ", `" + alias + "`";
  std::string type = name_of(key.type);
  if (const std::string range = range_of(key); !range.empty()) type += ": " + range;
  std::string fallback = shown(key.fallback);
  if (!key.fallback_013.is_null()) fallback += " (0.13.1: " + shown(key.fallback_013) + ")";
  std::string why = key.reason;
  for (const std::string& test : tests_of(key)) why += (why.empty() ? "`" : " `") + test + "`";
  std::string line = "|";
  for (const std::string& one : {name, type, fallback, key.stages.empty() ? "all" : key.stages,
                                 key.auto_rule, std::string(name_of(key.state)), why})
    line += " " + cell(one) + " |";
  return line + "\n";
}

Status checked(const std::vector<Key>& table) {
  const auto problems = problems_of(table);
  if (problems.empty()) return {};
  std::string all;
  for (const std::string& problem : problems) all += "\n  " + problem;
  return fail(ErrorKind::Internal, "the key table cannot be printed:" + all,
              "job/dsconfig/keys/keys", "name the test in Key::test, or change the key's state");
}

}  // namespace

const char* name_of(State state) {
  switch (state) {
    case State::Works:
      return "works";
    case State::Moot:
      return "no effect by nature";
    case State::Inert:
      return "warned";
    case State::Unsupported:
      return "refused";
    case State::Rejected:
      return "error";
    case State::WithSection:
      return "with its section";
  }
  return "?";
}

std::vector<std::string> problems_of(const std::vector<Key>& table) {
  std::vector<std::string> problems;
  for (const Key& key : table) {
    if (is_container(key)) continue;
    const auto tests = tests_of(key);
    if (key.state == State::Works && tests.empty())
      problems.push_back(key.path + " works, says the table, and names no test");
    if (key.state != State::Works && key.state != State::WithSection && key.reason.empty())
      problems.push_back(key.path + " does not work and gives no reason");
    for (const std::string& test : tests)
      if (!is_test_name(test))
        problems.push_back(key.path + ": \"" + test + "\" is not PROGRAM:Suite.Test");
  }
  return problems;
}

Result<std::string> key_table_markdown(const std::vector<Key>& table) {
  DSJ_TRY_STATUS(checked(table));
  std::string text =
      "# ds_config, key by key\n\n"
      "What each key of ds_config does here, and which test proves it, for anyone who checks a "
      "ds_config.\n"
      "`make docs` prints this page from the table that reads and checks ds_config; a test fails "
      "when the\n"
      "page differs from the table.\n\n| state | keys | meaning |\n|---|---|---|\n";
  const auto counts = counts_of(table);
  int total = 0;
  for (const State state : kStates) {
    const int count = counts.contains(state) ? counts.at(state) : 0;
    total += count;
    text += std::string("| ") + name_of(state) + " | " + std::to_string(count) + " | " +
            meaning_of(state) + " |\n";
  }
  text +=
      "| all | " + std::to_string(total) +
      " | |\n\n"
      "Defaults are those of DeepSpeed 0.19; where 0.13.1 differs, its default is in parentheses. "
      "\"auto\" shows\n"
      "Hugging Face's rule with the argument that it reads. \"auto\" in a key without a rule takes "
      "the default and\n"
      "gives a warning. A key that is not on this page is an error if it is a near miss of one "
      "that is; otherwise\n"
      "it is a warning.\n";
  std::vector<std::string> sections;
  for (const Key& key : table)
    if (std::ranges::find(sections, section_name(key)) == sections.end())
      sections.push_back(section_name(key));
  for (const std::string& section : sections) {
    text +=
        "\n## " + (section.empty() ? "Top level" : section) +
        "\n\n| key, other names | type, range | default | stages | \"auto\" | here | why, or the "
        "test |\n|---|---|---|---|---|---|---|\n";
    for (const Key& key : table)
      if (section_name(key) == section && !is_container(key)) text += row(key);
  }
  return text;
}

Result<json> key_table_json(const std::vector<Key>& table) {
  DSJ_TRY_STATUS(checked(table));
  json counts = json::object(), keys = json::array();
  for (const auto& [state, count] : counts_of(table)) counts[name_of(state)] = count;
  for (const Key& key : table) {
    if (is_container(key)) continue;
    keys.push_back({{"path", key.path},
                    {"aliases", key.aliases},
                    {"type", name_of(key.type)},
                    {"range", range_of(key)},
                    {"default", key.fallback},
                    {"default013", key.fallback_013},
                    {"stages", key.stages},
                    {"auto", key.auto_rule},
                    {"state", name_of(key.state)},
                    {"reason", key.reason},
                    {"tests", tests_of(key)}});
  }
  return json{{"counts", counts}, {"keys", keys}};
}

}  // namespace dsj::dsconfig
