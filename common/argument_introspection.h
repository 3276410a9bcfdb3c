// What the parsers of a program take, for completions and manual pages. The parsers themselves give it:
// no list is kept a second time.
// Tested by: tests/cli/completion_test.cc
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dsj {

struct ArgumentDescription {
  std::vector<std::string> names;  ///< "-o", "--output"; empty: a word without a name
  std::string word;                ///< of a word without a name: "FILE"
  std::string help;
  std::vector<std::string> choices;  ///< all words that are allowed; empty: any
  std::string default_value;         ///< empty: none is shown
  bool takes_word = true;            ///< false: a flag
  bool required = false;
};

struct ParserDescription {
  std::string name;  ///< "dsj checkpoint show"
  std::string description;
  std::vector<ArgumentDescription> arguments;
};

/// While it lives, parse() of a parser of this thread reads nothing: it gives its description to `see`
/// and returns 0.
class ParserObserver {
 public:
  using See = std::function<void(ParserDescription)>;
  explicit ParserObserver(See see);
  ~ParserObserver();
  ParserObserver(const ParserObserver&) = delete;
  ParserObserver& operator=(const ParserObserver&) = delete;

  /// Whether one lives in this thread: a verb that prints a help of its own goes to its parser instead.
  static bool active();

 private:
  See see_;
  ParserObserver* outer_;
  friend class ArgumentParser;
};

}  // namespace dsj
