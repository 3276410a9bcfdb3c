// The arguments of a program's parsers, for completions and manual pages. The parsers themselves
// provide them, so there is no second list.
// Tested by: tests/cli/completion_test.cc
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dsj {

struct ArgumentDescription {
  std::vector<std::string> names;  ///< "-o", "--output"; empty for a positional argument
  std::string word;                ///< shown for an argument that may be positional: "FILE"
  std::string help;
  std::vector<std::string> choices;  ///< all allowed words; empty if any is
  std::string default_value;         ///< empty if the help shows none
  bool takes_word = true;            ///< false: a flag
  bool required = false;
};

struct ParserDescription {
  std::string name;  ///< "dsj checkpoint show"
  std::string description;
  std::vector<ArgumentDescription> arguments;
};

/// While it exists, parse() of a parser in this thread reads nothing: it passes the parser's
/// description to `see` and returns 0.
class ParserObserver {
 public:
  using See = std::function<void(ParserDescription)>;
  explicit ParserObserver(See see);
  ~ParserObserver();
  ParserObserver(const ParserObserver&) = delete;
  ParserObserver& operator=(const ParserObserver&) = delete;

  /// Whether one exists in this thread. A verb that prints its own help then calls its parser instead.
  static bool active();

 private:
  See see_;
  ParserObserver* outer_;
  friend class ArgumentParser;
};

}  // namespace dsj
