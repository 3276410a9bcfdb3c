// Describes and reads the command line of a program or a verb: options, flags and positional
// arguments, each stored in a variable of the caller. Built on CLI11, which only argument_parser.cc
// includes, because it takes seconds to compile.
//
//   ArgumentParser parser("What the program does.", "dsj verb");
//   std::string file, output = "text";
//   parser.option("FILE", file).required();  // no dash: a positional argument
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

/// One argument of a parser, valid while the parser exists. Each function returns the argument.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument required() const;
  Argument one_of(const std::vector<std::string>& words) const;
  /// A number above 0. `hint`: advice if it is not.
  Argument positive(const std::string& hint = "") const;
  Argument non_negative() const;                ///< a number of at least 0
  Argument from_to(int least, int most) const;  ///< a number in this range, inclusive
  Argument excludes(const Argument& other) const;
  Argument needs(const Argument& other) const;
  /// Each use of the option takes one word; without this a list also takes the next words.
  Argument one_word_each() const;
  /// A word of a list may contain several values, separated by this.
  Argument separated_by(char delimiter) const;
  /// The environment variable with the value if the argument is not given.
  Argument environment(const std::string& variable) const;
  /// The help shows the present value of the caller's variable.
  Argument show_default() const;

 private:
  CLI::Option* option_;
};

class ArgumentParser {
 public:
  /// `name`: the program's, for the usage line; default: argv's.
  explicit ArgumentParser(const std::string& description, const std::string& name = "");
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  /// An option ("-o,--output"), a positional argument ("FILE"), or both ("-f,--filename,FILE").
  /// parse() writes `to`, which keeps its value if the argument is not given and must outlive the
  /// parser.
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

  /// Reads the given word; returns an error message if it is wrong.
  using Take = std::function<std::optional<std::string>(const std::string& word)>;
  /// An option whose word `take` reads.
  Argument option(const std::string& names, const Take& take, const std::string& help = "");

  /// "--tied,!--untied": the name with ! sets false.
  Argument flag(const std::string& names, bool& to, const std::string& help = "");

  /// Makes --help an ordinary argument, for callers that print their own help.
  void no_help();

  /// Reads the arguments after the program's name, short ones also as "-o=json". If it returns a
  /// value, the program must exit with it: 0 after --help, 2 after an error. The help goes to stdout,
  /// the error to stderr. A word with an unexpanded "~/" (home_path.h) is an error.
  std::optional<int> parse(std::span<const std::string> args);
  /// As parse(args), from main's arguments.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dsj
