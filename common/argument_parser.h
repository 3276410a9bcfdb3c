// What a program or a verb takes on its command line: options, flags and words without a name, each
// read into a variable of the caller. Built on CLI11, which stays in argument_parser.cc: a file
// that includes it compiles for seconds longer.
//
//   ArgumentParser parser("What the program does.", "dsj verb");
//   std::string file, output = "text";
//   parser.option("FILE", file, "a job").required();            // no dash: a word without a name
//   parser.option("-o,--output", output, "text or json").one_of({"text", "json"});
//   if (const auto over = parser.parse(args)) return *over;
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class Option;
}

namespace dsj {

/// One argument of a parser, valid as long as that. Each function returns the argument itself.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument required() const;
  Argument one_of(const std::vector<std::string>& words) const;
  Argument positive() const;                    ///< a number above 0
  Argument non_negative() const;                ///< a number, 0 or above
  Argument from_to(int least, int most) const;  ///< a number between these, both allowed
  Argument excludes(const Argument& other) const;
  Argument needs(const Argument& other) const;
  /// Each use of the option takes one word; otherwise a list also takes the words that follow.
  Argument one_word_each() const;
  /// A list's word may hold several, with this between them.
  Argument separated_by(char delimiter) const;
  /// The variable of the environment that stands for the argument if it is not given.
  Argument environment(const std::string& variable) const;
  /// The help shows the value that the caller's variable has now.
  Argument show_default() const;

 private:
  CLI::Option* option_;
};

class ArgumentParser {
 public:
  /// `name`: the program's, for the usage line; empty: that of argv.
  explicit ArgumentParser(const std::string& description, const std::string& name = "");
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  /// An option ("-o,--output"), or a word without a name ("FILE"). parse() writes `to`, which keeps
  /// its value if the argument is not given and must outlive the parser.
  Argument option(const std::string& names, std::string& to, const std::string& help = "");
  Argument option(const std::string& names, int& to, const std::string& help = "");
  Argument option(const std::string& names, int64_t& to, const std::string& help = "");
  Argument option(const std::string& names, uint64_t& to, const std::string& help = "");
  Argument option(const std::string& names, std::optional<int64_t>& to,
                  const std::string& help = "");
  /// Takes true or false; flag() takes no word.
  Argument option(const std::string& names, bool& to, const std::string& help = "");
  /// Takes any number of words.
  Argument option(const std::string& names, std::vector<std::string>& to,
                  const std::string& help = "");

  /// Gets the word that is given; returns what is wrong with it.
  using Take = std::function<std::optional<std::string>(const std::string& word)>;
  /// An option whose word `take` reads.
  Argument option(const std::string& names, const Take& take, const std::string& help = "");

  /// "--tied,!--untied": the name with the ! sets false.
  Argument flag(const std::string& names, bool& to, const std::string& help = "");

  /// --help is an argument like any other: the caller prints its own.
  void no_help();

  /// Reads the arguments behind the program's name. A value: the program ends with this exit code,
  /// 0 after --help and 2 after a mistake; the help is on stdout, the mistake on stderr. A word with
  /// an unexpanded "~/" (home_path.h) is a mistake.
  std::optional<int> parse(std::span<const std::string> args);
  /// As parse(args), from main's arguments.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dsj
