#include "job/import/shell.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "common/text.h"

namespace dsj::jobimport {
namespace {

constexpr size_t kMaxScript = 1 << 20;
constexpr size_t kMaxWord = 1 << 16;
constexpr size_t kMaxExpanded = 16 << 20;  // of all variables, bytes

bool is_name(char c, bool first) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' ||
         (!first && std::isdigit(static_cast<unsigned char>(c)));
}

/// Words that open or close what only a run decides.
const std::set<std::string> kOpening = {"if", "while", "until", "for", "case", "select", "{"};
const std::set<std::string> kClosing = {"fi", "done", "esac", "}"};
const std::set<std::string> kBetween = {"then", "do", "else", "elif", "!"};
const std::set<std::string> kPrefixes = {"exec", "nohup", "time", "command", "sudo", "env"};

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
      close_command(std::move(command));
    }
    return std::move(script_);
  }

 private:
  using Values = std::vector<std::string>;

  /// The fields that one word becomes.
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
    /// Unquoted: blanks in a value separate words.
    void split(const std::string& value) {
      for (size_t i = 0; i < value.size(); ++i) {
        if (std::isspace(static_cast<unsigned char>(value[i])))
          next();
        else
          add(std::string(1, value[i]));
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
          command.words.clear();  // the { that follows opens its body
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

  /// ">file", "2>&1", "<<EOF": read over.
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
      std::string line = text_.substr(at_, end - at_);
      line.erase(0, std::min(line.find_first_not_of('\t'), line.size()));
      at_ = std::min(end + 1, text_.size());
      ++line_;
      if (line == here_) break;
    }
    here_.clear();
  }

  /// One word, quotes and variables followed; at a blank or an operator it ends.
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
        const std::string inside = text_.substr(at_ + 1, end - at_ - 1);
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
        // "NAME=$other" takes the value whole; a bare $words separates.
        const bool assignment = is_assignment(word.current);
        DSJ_TRY_STATUS(expand(word, assignment));
      } else {
        word.add(std::string(1, c));
        ++at_;
      }
    }
    if (at_ == begin) ++at_;  // an operator at the wrong place
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

  /// At "$" or "`".
  Status expand(Word& word, bool whole) {
    const int line = line_;
    if (peek() == '`' || (peek() == '$' && peek(1) == '(')) {
      const size_t begin = at_;
      size_t end = std::string::npos;
      if (peek() == '`') {
        end = text_.find('`', at_ + 1);
      } else {
        int open = 0;
        for (size_t i = at_ + 1; i < text_.size(); ++i) {
          open += (text_[i] == '(') - (text_[i] == ')');
          if (open == 0) {
            end = i;
            break;
          }
        }
      }
      if (end == std::string::npos) return not_closed("$(", line);
      const std::string inside = text_.substr(begin, end + 1 - begin);
      line_ += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
      note(inside.substr(0, 60) + " is not run");
      word.add(inside);
      at_ = end + 1;
      return {};
    }
    if (peek(1) == '{') {
      const size_t end = text_.find('}', at_);
      if (end == std::string::npos) return not_closed("${", line);
      const std::string inside = text_.substr(at_ + 2, end - at_ - 2);
      at_ = end + 1;
      braced(inside, word, whole);
      return {};
    }
    size_t end = at_ + 1;
    if (is_name(peek(1), true))
      while (end < text_.size() && is_name(text_[end], false)) ++end;
    else if (peek(1) != '\0' && !std::isspace(static_cast<unsigned char>(peek(1))) &&
             peek(1) != '"')
      ++end;  // $1, $@, $?
    const std::string name = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end;
    if (name.empty())
      word.add("$");
    else
      put(name, "$" + name, word, whole);
    return {};
  }

  /// The inside of ${...}.
  void braced(const std::string& inside, Word& word, bool whole) {
    size_t end = 0;
    while (end < inside.size() && is_name(inside[end], end == 0)) ++end;
    if (end == 0 && !inside.empty()) end = 1;  // ${1}, ${@}
    const std::string name = inside.substr(0, end);
    std::string rest = inside.substr(end);
    const std::string shown = "${" + inside + "}";
    if (rest == "[@]" || rest == "[*]") {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return put(name, shown, word, whole);
      for (size_t i = 0; i < found->second.size(); ++i) {
        if (i > 0) word.next();
        expanded_ += found->second[i].size() + 1;
        if (expanded_ > kMaxExpanded) return;
        word.add(found->second[i]);
      }
      return;
    }
    const bool dash = rest.starts_with(":-") || rest.starts_with("-");
    if (dash || rest.starts_with(":=")) {
      rest.erase(0, rest[0] == ':' ? 2 : 1);
      if (variables_.contains(name)) return put(name, shown, word, whole);
      if (rest.find_first_of("$`\\") == std::string::npos) {
        note("$" + name + " is not known here; its default \"" + rest + "\" is taken");
        if (!variables_.contains(name)) whole ? word.add(rest) : word.split(rest);
        return;
      }
    }
    put(rest.empty() ? name : shown, shown, word, whole);
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
        variables_.erase(name);
        note(name + " is set under a condition: not known");
      } else {
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

  void close_command(Command command) {
    if (!command.words.empty() && depth_ == 0 && command.words[0] != "export")
      script_.commands.push_back(std::move(command));
  }

  const std::string& text_;
  const std::string& source_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0, block_ = 0;
  bool in_function_ = false, in_array_ = false;
  size_t expanded_ = 0;
  std::string here_;  ///< the word that ends the here document below this line
  std::map<std::string, Values> variables_;
  Script script_;
};

}  // namespace

Result<Script> read_script(const std::string& text, const std::string& source,
                           std::map<std::string, std::string> variables) {
  if (text.size() > kMaxScript)
    return bad_input("more than " + std::to_string(kMaxScript) + " bytes", source);
  if (const size_t bad = text::invalid_utf8(text); bad != std::string::npos)
    return bad_input("byte " + std::to_string(bad) + " is not UTF-8", source);
  return ShellReader(text, source, std::move(variables)).run();
}

}  // namespace dsj::jobimport
