#include "cli/import/shell.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "cli/import/arithmetic.h"
#include "cli/import/shell_text.h"
#include "common/files/files.h"
#include "common/text.h"

namespace dsj::jobimport {
namespace {

constexpr size_t kMaxScript = 1 << 20;
constexpr size_t kMaxWord = 1 << 16;
constexpr size_t kMaxExpanded = 16 << 20;  // bytes of all variables

bool is_name(char c, bool first) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' ||
         (!first && std::isdigit(static_cast<unsigned char>(c)));
}

/// Words that open or close a block that may not run.
const std::set<std::string> kOpening = {"if", "while", "until", "for", "case", "select", "{"};
const std::set<std::string> kClosing = {"fi", "done", "esac", "}"};
const std::set<std::string> kBetween = {"then", "do", "else", "elif", "!"};
const std::set<std::string> kPrefixes = {"exec", "nohup", "time", "command", "sudo", "env"};
constexpr int kNestingMax = 16;    // of texts that are parsed as a script or a default value
constexpr size_t kRereadMax = 32;  // commands whose text is parsed as a script

class ShellReader {
 public:
  ShellReader(const std::string& text, const std::string& source,
              std::map<std::string, std::string> variables)
      : text_(text), source_(source) {
    for (auto& [name, value] : variables) variables_[name] = {value};
  }

  Result<Script> run() {
    while (at_ < text_.size()) {
      Command command{.line = line_};
      DSJ_TRY_STATUS(read_command(command));
      DSJ_TRY_STATUS(close_command(std::move(command)));
    }
    return std::move(script_);
  }

 private:
  using Values = std::vector<std::string>;

  /// The fields that one word expands to.
  struct Word {
    Values fields;
    std::string current;
    bool begun = false, quoted = false, array = false;

    void add(const std::string& text) {
      current += text;
      begun = true;
    }
    void next() {
      if (begun) fields.push_back(std::move(current));
      current.clear();
      begun = false;
    }
    /// For an unquoted value: blanks separate words, except inside expressions that only a run
    /// can evaluate: $(...), ${...} and `...` are kept as written.
    void split(const std::string& value) {
      int tries = 64;  // bounds searches for a missing end
      for (size_t i = 0; i < value.size();) {
        if (std::isspace(static_cast<unsigned char>(value[i]))) {
          next();
          ++i;
          continue;
        }
        const size_t close = tries > 0 ? end_of_open(value, i) : 0;
        tries -= close == 0 && (value[i] == '$' || value[i] == '`');
        const size_t end = std::max(close, i + 1);
        add(value.substr(i, end - i));
        i = end;
      }
    }
  };

  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void note(const std::string& what) {
    const std::string line = "line " + std::to_string(line_) + ": " + what;
    if (script_.notes.size() < 100 &&
        std::find(script_.notes.begin(), script_.notes.end(), line) == script_.notes.end())
      script_.notes.push_back(line);
  }
  std::unexpected<Error> not_closed(const char* what, int line) const {
    return bad_input(std::string(what) + " is not closed", source_ + ":" + std::to_string(line));
  }

  Status read_command(Command& command) {
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
        at_ += peek(1) == '\n' ? 2 : 3;
        ++line_;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '\n') {
        ++at_;
        ++line_;
        skip_here_document();
        return {};
      } else if (c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
        const bool function = c == '(' && peek(1) == ')' && command.words.size() == 1;
        ++at_;
        if (function) {
          ++at_;
          command.words.clear();  // the following { opens its body
        } else if (!command.words.empty()) {
          return {};
        }
      } else if (c == '<' || c == '>') {
        DSJ_TRY_STATUS(redirection());
      } else {
        if (command.words.empty()) command.line = line_;
        DSJ_TRY(Word word, read_word());
        DSJ_TRY_STATUS(take(std::move(word), command));
      }
    }
    return {};
  }

  /// ">file", "2>&1", "<<EOF": skipped.
  Status redirection() {
    const bool here = peek() == '<' && peek(1) == '<' && peek(2) != '<';
    while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '-') ++at_;
    while (peek() == ' ' || peek() == '\t') ++at_;
    if (peek() == '\0' || peek() == '\n') return {};
    DSJ_TRY(Word word, read_word());
    word.next();
    if (here && !word.fields.empty()) here_ = word.fields[0];
    return {};
  }

  void skip_here_document() {
    if (here_.empty()) return;
    while (at_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string line(text_.substr(at_, end - at_));
      line.erase(0, std::min(line.find_first_not_of('\t'), line.size()));
      at_ = std::min(end + 1, text_.size());
      ++line_;
      if (line == here_) break;
    }
    here_.clear();
  }

  /// Reads one word, up to a blank or an operator, with quotes and variables resolved.
  Result<Word> read_word() {
    Word word;
    const int line = line_;
    const size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = peek();
      if (std::isspace(static_cast<unsigned char>(c)) || c == ';' || c == '&' || c == '|' ||
          c == ')' || c == '<' || c == '>')
        break;
      if (word.current.size() > kMaxWord || word.fields.size() > kMaxWord ||
          expanded_ > kMaxExpanded)
        return bad_input("a word is too long", source_ + ":" + std::to_string(line));
      if (c == '(') {
        if (word.current.empty() || word.current.back() != '=' || word.quoted || in_array_) break;
        ++at_;
        in_array_ = true;  // arrays do not nest
        auto values = read_array();
        in_array_ = false;
        DSJ_TRY(word.fields, std::move(values));
        word.array = true;
        return word;
      }
      if (c == '\\') {
        const size_t newline = peek(1) == '\r' ? 2 : 1;
        if (peek(newline) == '\n') {
          at_ += newline + 1;
          ++line_;
          if (std::isspace(static_cast<unsigned char>(peek())) || !word.begun) break;
          continue;
        }
        word.add(std::string(1, peek(1)));
        word.quoted = true;
        at_ = std::min(at_ + 2, text_.size());
      } else if (c == '\'') {
        const size_t end = text_.find('\'', at_ + 1);
        if (end == std::string::npos) return not_closed("'", line);
        const std::string inside(text_.substr(at_ + 1, end - at_ - 1));
        line_ += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
        word.add(inside);
        word.quoted = true;
        at_ = end + 1;
      } else if (c == '"') {
        word.quoted = true;
        word.begun = true;
        ++at_;
        DSJ_TRY_STATUS(double_quoted(word, line));
      } else if (c == '$' || c == '`') {
        // "NAME=$other" keeps the value as one word; a bare $words is split.
        const bool assignment = is_assignment(word.current);
        DSJ_TRY_STATUS(expand(word, assignment));
      } else {
        word.add(std::string(1, c));
        ++at_;
      }
    }
    if (at_ == begin) ++at_;  // an operator in the wrong place
    return word;
  }

  Status double_quoted(Word& word, int line) {
    while (at_ < text_.size() && peek() != '"') {
      const char c = peek();
      if (word.current.size() > kMaxWord || expanded_ > kMaxExpanded)
        return bad_input("a word is too long", source_ + ":" + std::to_string(line));
      if (c == '\\' && at_ + 1 < text_.size()) {
        const char escaped = peek(1);
        if (escaped == '\n')
          ++line_;
        else if (escaped == '"' || escaped == '$' || escaped == '\\' || escaped == '`')
          word.add(std::string(1, escaped));
        else
          word.add(std::string("\\") + escaped);
        at_ += 2;
      } else if (c == '$' || c == '`') {
        DSJ_TRY_STATUS(expand(word, true));
      } else {
        line_ += c == '\n';
        word.add(std::string(1, c));
        ++at_;
      }
    }
    if (at_ >= text_.size()) return not_closed("\"", line);
    ++at_;
    return {};
  }

  Result<Values> read_array() {
    const int line = line_;
    Values values;
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == ')') {
        ++at_;
        return values;
      }
      if (c == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(c))) {
        ++at_;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        DSJ_TRY(Word word, read_word());
        word.next();
        values.insert(values.end(), word.fields.begin(), word.fields.end());
        if (values.size() > kMaxWord)
          return bad_input("an array is too long", source_ + ":" + std::to_string(line));
      }
    }
    return not_closed("(", line);
  }

  /// Expands what begins with "$" or "`".
  Status expand(Word& word, bool whole) {
    const int line = line_;
    const bool command = peek() == '`' || peek(1) == '(';
    if (command || peek(1) == '{') {
      const size_t end = end_of_open(text_, at_);
      if (end == 0) return not_closed(command ? "$(" : "${", line);
      const std::string inside(text_.substr(at_, end - at_));
      at_ = end;
      if (!command) {
        DSJ_TRY_STATUS(braced(inside.substr(2, inside.size() - 3), word, whole));
      } else if (const auto number = arithmetic(inside)) {
        word.add(*number);
      } else if (const auto directory = directory_of(inside, source_)) {
        word.add(*directory);
      } else {
        note(inside.substr(0, 60) + " is not run");
        word.add(inside);
      }
      line_ = line + static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
      return {};
    }
    size_t end = at_ + 1;
    if (is_name(peek(1), true))
      while (end < text_.size() && is_name(text_[end], false)) ++end;
    else if (peek(1) != '\0' && !std::isspace(static_cast<unsigned char>(peek(1))) &&
             peek(1) != '"')
      ++end;  // $1, $@, $?
    const std::string name(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end;
    if (name.empty())
      word.add("$");
    else
      put(name, "$" + name, word, whole);
    return {};
  }

  /// Expands the content of ${...}.
  Status braced(const std::string& inside, Word& word, bool whole) {
    size_t end = 0;
    while (end < inside.size() && is_name(inside[end], end == 0)) ++end;
    if (end == 0 && !inside.empty()) end = 1;  // ${1}, ${@}
    const std::string name = inside.substr(0, end);
    std::string rest = inside.substr(end);
    const std::string shown = "${" + inside + "}";
    const auto found = variables_.find(name);
    if (rest == "[@]" || rest == "[*]") {
      if (found == variables_.end()) {
        put(name, shown, word, whole);
        return {};
      }
      for (size_t i = 0; i < found->second.size(); ++i) {
        if (i > 0) word.next();
        expanded_ += found->second[i].size() + 1;
        if (expanded_ > kMaxExpanded) return {};
        word.add(found->second[i]);
      }
      return {};
    }
    const bool colon = rest.starts_with(":-") || rest.starts_with(":=");
    if ((colon || rest.starts_with("-")) && nesting_ < kNestingMax) {
      const bool empty =
          found != variables_.end() && (found->second.empty() || found->second[0].empty());
      if (found != variables_.end() && !(colon && empty)) {
        put(name, shown, word, whole);
        return {};
      }
      rest.erase(0, colon ? 2 : 1);
      DSJ_TRY(const std::string value, default_text(rest));
      if (!empty) note("$" + name + " is not known here; its default \"" + value + "\" is taken");
      whole ? word.add(value) : word.split(value);
      return {};
    }
    put(rest.empty() ? name : shown, shown, word, whole);
    return {};
  }

  /// The default in ${NAME:-...}, without quotes and with variables replaced.
  Result<std::string> default_text(const std::string& rest) {
    Word word;
    const std::string_view outer = std::exchange(text_, rest);
    const size_t at = std::exchange(at_, 0);
    ++nesting_;
    Status status;
    while (status && at_ < text_.size()) {
      const char c = peek();
      const size_t quote = c == '\'' ? text_.find('\'', at_ + 1) : std::string_view::npos;
      if (c == '"') {
        ++at_;
        status = double_quoted(word, line_);
      } else if (quote != std::string_view::npos) {
        word.add(std::string(text_.substr(at_ + 1, quote - at_ - 1)));
        at_ = quote + 1;
      } else if (c == '$' || c == '`') {
        status = expand(word, true);
      } else {
        word.add(std::string(1, c));
        ++at_;
      }
    }
    --nesting_;
    text_ = outer;
    at_ = at;
    if (!status) return std::unexpected(status.error());
    return std::move(word.current);
  }

  /// The value of $((...)) or $(expr ...) of integers and integer variables; nullopt for other
  /// content or unknown variables.
  std::optional<std::string> arithmetic(const std::string& text) const {
    constexpr std::string_view kExpr = "$(expr ";
    std::string inside;
    if (text.starts_with("$((") && text.ends_with("))")) {
      inside = text.substr(3, text.size() - 5);
    } else if (text.starts_with(kExpr)) {
      inside = text.substr(kExpr.size(), text.size() - kExpr.size() - 1);
      std::erase(inside, '\\');  // expr 2 \* 4
    } else {
      return std::nullopt;
    }
    const auto value =
        whole_arithmetic(inside, [this](const std::string& name) -> std::optional<int64_t> {
          const auto found = variables_.find(name);
          if (found == variables_.end() || found->second.empty()) return std::nullopt;
          return text::parse_int(found->second[0]);
        });
    return value ? std::optional(std::to_string(*value)) : std::nullopt;
  }

  void put(const std::string& name, const std::string& shown, Word& word, bool whole) {
    const auto found = variables_.find(name);
    if (name == "@" || name == "*") {
      if (found == variables_.end()) return note("$@, the arguments of the script, are not known");
      for (const std::string& one : found->second) {
        word.next();
        word.add(one);
      }
      return;
    }
    if (found == variables_.end() || found->second.empty()) {
      note(shown + " is not known here");
      word.add(shown);
      return;
    }
    const std::string& value = found->second[0];
    expanded_ += value.size();
    if (expanded_ > kMaxExpanded) return;
    whole ? word.add(value) : word.split(value);
  }

  static bool is_assignment(const std::string& word) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) return false;
    for (size_t i = 0; i < equals; ++i)
      if (!is_name(word[i], i == 0)) return false;
    return true;
  }

  Status take(Word word, Command& command) {
    const bool only_export = command.words.size() == 1 &&
                             (command.words[0] == "export" || command.words[0] == "local" ||
                              command.words[0] == "declare" || command.words[0] == "readonly");
    if ((command.words.empty() || only_export) && is_assignment(word.current)) {
      const size_t equals = word.current.find('=');
      const std::string name = word.current.substr(0, equals);
      Values values = word.array ? word.fields : Values{word.current.substr(equals + 1)};
      if (depth_ > 0) {
        note(name + " is set under a condition: " +
             (variables_.contains(name) ? "its value before that is used" : "not known"));
      } else {
        if (only_export && command.words[0] == "export")
          exported_.insert(name);
        else if (!only_export && !values.empty())
          command.environment[name] = values[0];
        variables_[name] = std::move(values);
      }
      return {};
    }
    const bool keyword = !word.quoted && command.words.empty();
    word.next();
    for (std::string& field : word.fields) {
      if (keyword && command.words.empty()) {
        if (kBetween.contains(field) || kPrefixes.contains(field)) continue;
        if (field == "function") {
          in_function_ = true;
          continue;
        }
        if (kOpening.contains(field)) {
          if (depth_++ == 0) block_ = line_;
          continue;
        }
        if (kClosing.contains(field)) {
          if (depth_ > 0 && --depth_ == 0)
            note("from line " + std::to_string(block_) + " on: not followed, a run decides");
          continue;
        }
        if (in_function_) {
          in_function_ = false;
          continue;
        }
      }
      if (command.words.size() >= kMaxWord)
        return bad_input("a command is too long", source_ + ":" + std::to_string(command.line));
      command.words.push_back(std::move(field));
    }
    return {};
  }

  /// Keeps a command; for one that runs a text (eval TEXT, bash -c TEXT), the text's commands.
  Status close_command(Command command) {
    if (command.words.empty() || command.words[0] == "export") return {};
    auto& commands = depth_ == 0 ? script_.commands : script_.conditional;
    for (const std::string& name : exported_)
      if (const auto known = variables_.find(name);
          known != variables_.end() && !known->second.empty())
        command.environment.emplace(name, known->second[0]);
    const std::string inner = script_of(command.words);
    if (inner.empty() || nesting_ >= kNestingMax || ++reread_ > kRereadMax) {
      commands.push_back(std::move(command));
      return {};
    }
    ShellReader reader(inner, source_, {});
    reader.variables_ = variables_;
    reader.exported_ = exported_;
    reader.expanded_ = expanded_ + inner.size();
    reader.line_ = command.line;
    reader.nesting_ = nesting_ + 1;
    reader.reread_ = reread_;
    auto read = reader.run();
    expanded_ = reader.expanded_;
    reread_ = reader.reread_;
    if (!read) {  // the text has more levels of quotes than this parser supports
      commands.push_back(std::move(command));
      return {};
    }
    for (std::string& one : read->notes)
      if (std::ranges::find(script_.notes, one) == script_.notes.end() &&
          script_.notes.size() < 100)
        script_.notes.push_back(std::move(one));
    std::ranges::move(read->commands, std::back_inserter(commands));
    std::ranges::move(read->conditional, std::back_inserter(script_.conditional));
    return {};
  }

  /// The text that eval, bash -c or sh -c runs; empty for other commands.
  static std::string script_of(const std::vector<std::string>& words) {
    std::string text;
    if (words[0] == "eval") {
      for (size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i];
      return text;
    }
    for (size_t i = 0; i + 2 < words.size(); ++i) {
      const std::string shell = words[i].substr(words[i].find_last_of('/') + 1);
      if ((shell == "bash" || shell == "sh") && words[i + 1].starts_with("-") &&
          !words[i + 1].starts_with("--") && words[i + 1].ends_with("c"))
        return words[i + 2];
    }
    return text;
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0, block_ = 0, nesting_ = 0;
  bool in_function_ = false, in_array_ = false;
  size_t expanded_ = 0, reread_ = 0;
  std::string here_;  ///< the end word of the here document after this line
  std::map<std::string, Values> variables_;
  std::set<std::string> exported_;
  Script script_;
};

}  // namespace

Result<Script> read_script(const std::string& text, const std::string& source,
                           std::map<std::string, std::string> variables) {
  if (text.size() > kMaxScript)
    return bad_input("more than " + std::to_string(kMaxScript) + " bytes", source);
  if (const size_t bad = text::invalid_utf8(text); bad != std::string::npos)
    return bad_input("byte " + std::to_string(bad) + " is not UTF-8", source);
  variables.emplace("PWD", ".");  // relative paths start where scripts are started
  return ShellReader(text, source, std::move(variables)).run();
}

}  // namespace dsj::jobimport
