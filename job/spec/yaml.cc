#include "job/spec/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <optional>
#include <sstream>

#include "common/text.h"

namespace dsj::jobspec {
namespace {

using dsconfig::Position;
using nlohmann::json;

using dsconfig::kMaxText;
constexpr size_t kMaxNodes = 100'000;  // after expanding aliases
constexpr size_t kMaxPath = 2048;      // longer paths get no position

/// Thrown and caught in this file only.
struct YamlError {
  Position position;
  std::string message, hint;
};

Position position_of(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? Position{} : Position{mark.line + 1, mark.column + 1};
}

/// The digits of `word` from `begin` on in `base`, without underscores; null for other characters.
json whole_in_base(const std::string& word, size_t begin, int base, bool negative) {
  std::string digits(negative ? "-" : "");
  for (char c : word.substr(begin))
    if (c != '_') digits += c;
  int64_t whole = 0;
  const char* end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, whole, base);
  return error == std::errc() && at == end ? json(whole) : json();
}

/// "1:30" → 90; null unless every group after the first is 0 to 59.
json sexagesimal(const std::string& word, size_t begin, bool negative) {
  int64_t total = 0;
  for (size_t at = begin, groups = 0; at <= word.size(); ++groups) {
    const size_t colon = std::min(word.find(':', at), word.size());
    const json group = whole_in_base(word.substr(at, colon - at), 0, 10, false);
    const bool good = group.is_number() && word[at] != '-' && colon - at <= (groups ? 2 : 9) &&
                      (groups == 0 || group.get<int64_t>() < 60) && groups < 6;
    if (!good) return nullptr;
    total = total * 60 + group.get<int64_t>();
    at = colon + 1;
  }
  return negative ? -total : total;
}

/// A scalar that YAML 1.1 reads differently from the core schema; null if it does not.
json resolved_1_1(const std::string& word) {
  for (const char* yes : {"yes", "Yes", "YES", "on", "On", "ON"})
    if (word == yes) return true;
  for (const char* no : {"no", "No", "NO", "off", "Off", "OFF"})
    if (word == no) return false;
  const bool sign = word[0] == '-' || word[0] == '+';
  const bool negative = word[0] == '-';
  const size_t first = sign ? 1 : 0;
  if (first >= word.size() || word[first] < '0' || word[first] > '9') return nullptr;
  if (word.find(':') != std::string::npos)
    return word[first] == '0' ? json() : sexagesimal(word, first, negative);
  if (word[first] == '0' && word.size() > first + 1) {
    if (word[first + 1] == 'x') return whole_in_base(word, first + 2, 16, negative);
    if (word[first + 1] == 'b') return whole_in_base(word, first + 2, 2, negative);
    if (const json octal = whole_in_base(word, first + 1, 8, negative); !octal.is_null())
      return octal;
  }
  if (word.find('_') == std::string::npos) return nullptr;
  std::string plain;
  for (char c : word)
    if (c != '_') plain += c;
  if (const json whole = whole_in_base(plain, first, 10, negative); !whole.is_null()) return whole;
  if (const auto value = text::parse_double(plain)) return *value;
  return nullptr;
}

/// A plain scalar, by the core schema.
json resolved(const std::string& word) {
  if (word.empty() || word == "~" || word == "null" || word == "Null" || word == "NULL")
    return nullptr;
  if (word == "true" || word == "True" || word == "TRUE") return true;
  if (word == "false" || word == "False" || word == "FALSE") return false;
  const char first = word[0];
  const bool numeric =
      (first >= '0' && first <= '9') || first == '-' || first == '+' || first == '.';
  if (!numeric) return word;
  int64_t whole = 0;
  const char* begin = word.data() + (first == '+' ? 1 : 0);
  const char* end = word.data() + word.size();
  if (auto [at, error] = std::from_chars(begin, end, whole); error == std::errc() && at == end)
    return whole;
  if (const auto value = text::parse_double(word)) return *value;
  return word;
}

class Converter {
 public:
  Converter(dsconfig::Positions& positions, Dialect dialect)
      : positions_(positions), dialect_(dialect) {}

  json value(const YAML::Node& node, const std::string& path, int depth) {
    if (depth > dsconfig::kMaxDepth)
      throw YamlError{position_of(node), "nested too deep", "no job is"};
    if (++nodes_ > kMaxNodes)
      throw YamlError{position_of(node), "too many values, aliases followed", "no job has so many"};
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return nullptr;
      case YAML::NodeType::Scalar:
        return node.Tag() == "?" || node.Tag().empty() ? plain(node.Scalar()) : json(node.Scalar());
      case YAML::NodeType::Sequence:
        return list(node, path, depth);
      case YAML::NodeType::Map:
        return object(node, path, depth);
    }
    return nullptr;
  }

 private:
  json plain(const std::string& word) const {
    if (dialect_ == Dialect::Omega && !word.empty())
      if (json read = resolved_1_1(word); !read.is_null()) return read;
    return resolved(word);
  }

  void note(const std::string& path, Position key, Position value) {
    if (path.size() <= kMaxPath) positions_[path] = {key, value};
  }

  json list(const YAML::Node& node, const std::string& path, int depth) {
    json array = json::array();
    for (const YAML::Node& element : node) {
      const std::string child = path + "[" + std::to_string(array.size()) + "]";
      note(child, position_of(element), position_of(element));
      array.push_back(value(element, child, depth + 1));
    }
    return array;
  }

  json object(const YAML::Node& node, const std::string& path, int depth) {
    json result = json::object(), merged = json::object();
    for (const auto& entry : node) {
      const Position at = position_of(entry.first);
      if (!entry.first.IsScalar())
        throw YamlError{at, "a key that is not a word",
                        entry.first.IsMap() ? "quote it; is it a template of Helm's? helm template "
                                              "renders it"
                                            : "quote it"};
      const std::string key = entry.first.Scalar();
      if (key == "<<" && dialect_ == Dialect::Omega) {
        merge(entry.second, path, depth, merged);
        continue;
      }
      if (key == "<<") throw YamlError{at, "merge keys (<<) are not read", "write the fields out"};
      const std::string child = path.empty() ? key : path + "." + key;
      if (result.contains(key)) {
        const Position first = positions_[child].key;
        throw YamlError{at,
                        "the key \"" + key + "\" is given twice, first at line " +
                            std::to_string(first.line) + ", column " + std::to_string(first.column),
                        "keep one of the two"};
      }
      note(child, at, position_of(entry.second));
      result[key] = value(entry.second, child, depth + 1);
    }
    for (auto& [key, child] : merged.items())
      if (!result.contains(key)) result[key] = std::move(child);
    return result;
  }

  /// "<<: *a" or "<<: [*a, *b]"; the first of several wins.
  void merge(const YAML::Node& node, const std::string& path, int depth, json& merged) {
    const json found = value(node, path, depth + 1);
    for (const json& one : found.is_array() ? found : json::array({found})) {
      if (!one.is_object())
        throw YamlError{position_of(node), "<< merges a value that is not a mapping",
                        "write it out"};
      for (const auto& [key, child] : one.items())
        if (!merged.contains(key)) merged[key] = child;
    }
  }

  dsconfig::Positions& positions_;
  Dialect dialect_;
  size_t nodes_ = 0;
};

std::string where(const std::string& source, Position position) {
  if (position.line == 0) return source;
  return source + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

/// Checks that every document ends after its start. yaml-cpp 0.7 repeats an empty document forever
/// at a token that cannot start a document (", x" after one).
class Ending final : public YAML::EventHandler {
 public:
  explicit Ending(const std::string& text) {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (!stuck_ && parser.HandleNextDocument(*this)) {
    }
  }
  const std::optional<Position>& stuck() const { return stuck_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos == last_) stuck_ = Position{mark.line + 1, mark.column + 1};
    last_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int last_ = -1;
  std::optional<Position> stuck_;
};

/// Bytes of a key that is written as "key: value". A reader accepts at most 1,024 characters there,
/// and a byte is written as up to 4; a longer key is written as "? key".
constexpr size_t kShortKey = 250;

void emit(YAML::Emitter& out, const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      if (value.empty()) out << YAML::Flow;
      out << YAML::BeginMap;
      for (const auto& [key, child] : value.items()) {
        out << (key.size() > kShortKey ? YAML::LongKey : YAML::Auto);
        out << YAML::Key << key << YAML::Value;
        emit(out, child);
      }
      out << YAML::EndMap;
      break;
    case json::value_t::array: {
      bool flat = true;
      for (const json& child : value) flat = flat && child.is_primitive();
      if (flat) out << YAML::Flow;
      out << YAML::BeginSeq;
      for (const json& child : value) emit(out, child);
      out << YAML::EndSeq;
      break;
    }
    case json::value_t::string: {
      const std::string& word = value.get_ref<const std::string&>();
      if (resolved(word) != value) out << YAML::DoubleQuoted;
      out << word;
      break;
    }
    case json::value_t::number_float:
      out << text::number(value.get<double>());
      break;
    case json::value_t::null:
      out << YAML::Null;
      break;
    default:
      out << value.dump();
  }
}

}  // namespace

/// Whether the blanks at the start of a line, counted from 1, contain a tab.
static bool begins_with_tab(const std::string& text, int line) {
  size_t at = 0;
  for (int next = 1; next < line && at < text.size(); ++next)
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
  const size_t word = text.find_first_not_of(" \t", at);
  return text.substr(at, word == std::string::npos ? word : word - at).find('\t') !=
         std::string::npos;
}

/// Keeps only the document of a kind, if it is unique and every other is an object of another kind.
static void keep_kind(std::vector<YAML::Node>& documents, std::string_view kind) {
  const auto kind_of = [](const YAML::Node& node) {
    const YAML::Node found = node.IsMap() ? node["kind"] : YAML::Node();
    return found && found.IsScalar() ? found.Scalar() : std::string();
  };
  const auto wanted = [&](const YAML::Node& node) { return kind_of(node) == kind; };
  if (std::ranges::any_of(documents, [&](const auto& node) { return kind_of(node).empty(); }))
    return;
  if (std::ranges::count_if(documents, wanted) == 1)
    documents = {*std::ranges::find_if(documents, wanted)};
}

Result<dsconfig::Document> parse_yaml(const std::string& text, const std::string& source,
                                      Dialect dialect, std::string_view kind) {
  if (text.size() > kMaxText)
    return bad_input("the file has more than " + std::to_string(kMaxText) + " bytes", source,
                     "is it a DeepSpeedJob?");
  if (const size_t bad = text::invalid_utf8(text); bad != std::string::npos)
    return bad_input("byte " + std::to_string(bad) + " is not UTF-8", source,
                     "save the file as UTF-8");
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    return bad_input("byte " + std::to_string(zero) + " is zero, which YAML does not allow",
                     source);
  dsconfig::Document document{.source = source};
  try {
    if (const auto at = Ending(text).stuck())
      return bad_input("not YAML: the document cannot continue like this", where(source, *at));
    std::vector<YAML::Node> documents;
    for (const YAML::Node& node : YAML::LoadAll(text))
      if (!node.IsNull()) documents.push_back(node);
    if (documents.empty() && dialect == Dialect::Omega) {
      document.value = json::object();
      return document;
    }
    if (documents.empty()) return bad_input("the file is empty, expected a DeepSpeedJob", source);
    if (documents.size() > 1 && !kind.empty()) keep_kind(documents, kind);
    if (documents.size() > 1)
      return bad_input("several documents, expected one", where(source, position_of(documents[1])),
                       "one job per file");
    document.value = Converter(document.positions, dialect).value(documents[0], "", 0);
  } catch (const YAML::Exception& error) {
    const Position at =
        error.mark.is_null() ? Position{} : Position{error.mark.line + 1, error.mark.column + 1};
    const bool tab = begins_with_tab(text, at.line);
    return bad_input("not YAML: " + (tab ? "the line begins with a tab" : error.msg),
                     where(source, at), tab ? "indent with blanks" : "");
  } catch (const YamlError& error) {
    return bad_input(error.message, where(source, error.position), error.hint);
  }
  return document;
}

Result<dsconfig::Document> read_yaml(const std::string& path, Dialect dialect,
                                     std::string_view kind) {
  DSJ_TRY(const std::string text, dsconfig::text_of_file(path));
  return parse_yaml(text, path, dialect, kind);
}

std::string to_yaml(const json& value) {
  YAML::Emitter out;
  emit(out, value);
  return std::string(out.c_str()) + "\n";
}

}  // namespace dsj::jobspec
