#include "common/argument_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

#include "common/argument_introspection.h"
#include "common/home_path.h"
#include "common/text.h"

namespace dsj {

Argument Argument::required() const {
  option_->required();
  return *this;
}

namespace {

std::string found_and_expected(const std::string& word, const std::string& expected) {
  return "found \"" + word + "\", expected " + expected;
}

/// `holds`: whether a number is allowed. `expected`: the allowed numbers, in words.
CLI::Validator number_check(bool (*holds)(double), const std::string& expected, const char* shown) {
  return CLI::Validator(
      [=](std::string& word) {
        const auto number = text::parse_double(word);
        return number && holds(*number) ? std::string() : found_and_expected(word, expected);
      },
      shown);
}

}  // namespace

Argument Argument::one_of(const std::vector<std::string>& words) const {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  option_->check(CLI::Validator(
      [words, list](std::string& word) {
        if (std::ranges::find(words, word) != words.end()) return std::string();
        const std::string near = text::did_you_mean(word, words);
        return found_and_expected(word, "one of " + list) + (near.empty() ? "" : ": " + near);
      },
      "{" + list + "}"));
  return *this;
}

Argument Argument::positive(const std::string& hint) const {
  const std::string expected = "a number above 0" + (hint.empty() ? "" : " (" + hint + ")");
  option_->check(number_check([](double value) { return value > 0; }, expected, "> 0"));
  return *this;
}

Argument Argument::non_negative() const {
  option_->check(
      number_check([](double value) { return value >= 0; }, "a number of at least 0", ">= 0"));
  return *this;
}

Argument Argument::from_to(int least, int most) const {
  const std::string range = std::to_string(least) + " to " + std::to_string(most);
  option_->check(CLI::Validator(
      [=](std::string& word) {
        const auto number = text::parse_double(word);
        const bool holds = number && *number >= least && *number <= most;
        return holds ? std::string() : found_and_expected(word, "a number from " + range);
      },
      range));
  return *this;
}

Argument Argument::excludes(const Argument& other) const {
  option_->excludes(other.option_);
  return *this;
}

Argument Argument::needs(const Argument& other) const {
  option_->needs(other.option_);
  return *this;
}

Argument Argument::one_word_each() const {
  option_->type_size(1)->allow_extra_args(false);
  return *this;
}

Argument Argument::separated_by(char delimiter) const {
  option_->delimiter(delimiter);
  return *this;
}

Argument Argument::environment(const std::string& variable) const {
  option_->envname(variable);
  return *this;
}

Argument Argument::show_default() const {
  option_->capture_default_str();
  return *this;
}

struct ArgumentParser::State {
  State(const std::string& description, const std::string& name) : app(description, name) {}

  CLI::App app;

  /// `parse` calls the app's parse().
  template <typename Parse>
  std::optional<int> run(Parse&& parse) {
    try {
      parse();
    } catch (const CLI::ExtrasError&) {
      const std::string word = app.remaining().empty() ? "" : app.remaining().front();
      return mistake(word + ": " + about_extra(word));
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error, std::cout, std::cerr);  // --help
      return mistake(error.what());
    }
    return std::nullopt;
  }

 private:
  int mistake(const std::string& what) const {
    const std::string name = app.get_name();
    std::cerr << (name.empty() ? "" : name + ": ") << what << " (see "
              << (name.empty() ? "" : name + " ") << "--help)" << std::endl;
    return 2;
  }

  /// The message for an unexpected word. CLI11 suggests no similar names.
  std::string about_extra(const std::string& word) const {
    if (!word.starts_with("-")) return "not expected";
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string near = text::did_you_mean(word.substr(0, word.find('=')), names);
    return "not an argument" + (near.empty() ? "" : ": " + near);
  }
};

ArgumentParser::ArgumentParser(const std::string& description, const std::string& name)
    : state_(std::make_unique<State>(description, name)) {}

ArgumentParser::~ArgumentParser() = default;

Argument ArgumentParser::option(const std::string& names, std::string& to,
                                const std::string& help) {
  return Argument(state_->app.add_option(names, to, help));
}

Argument ArgumentParser::option(const std::string& names, int& to, const std::string& help) {
  return Argument(state_->app.add_option(names, to, help));
}

Argument ArgumentParser::option(const std::string& names, int64_t& to, const std::string& help) {
  return Argument(state_->app.add_option(names, to, help));
}

Argument ArgumentParser::option(const std::string& names, uint64_t& to, const std::string& help) {
  return Argument(state_->app.add_option(names, to, help));
}

Argument ArgumentParser::option(const std::string& names, std::optional<int64_t>& to,
                                const std::string& help) {
  return Argument(state_->app.add_option(names, to, help));
}

Argument ArgumentParser::option(const std::string& names, bool& to, const std::string& help) {
  return Argument(state_->app.add_option(names, to, help));
}

Argument ArgumentParser::option(const std::string& names, std::vector<std::string>& to,
                                const std::string& help) {
  return Argument(state_->app.add_option(names, to, help));
}

Argument ArgumentParser::option(const std::string& names, const Take& take,
                                const std::string& help) {
  const auto read = [names, take](const std::string& word) {
    if (const auto wrong = take(word)) throw CLI::ValidationError(names, *wrong);
  };
  return Argument(state_->app.add_option_function<std::string>(names, read, help));
}

Argument ArgumentParser::flag(const std::string& names, bool& to, const std::string& help) {
  return Argument(state_->app.add_flag(names, to, help));
}

void ArgumentParser::no_help() {
  state_->app.set_help_flag();
}

namespace {

/// An error if the word, or the part after its "=", begins with ~/: only paths do.
std::optional<HomePath> home_path_in(const std::string& word) {
  const size_t equals = word.starts_with("-") ? word.find('=') : std::string::npos;
  return home_path(equals == std::string::npos ? word : word.substr(equals + 1));
}

thread_local ParserObserver* observer = nullptr;

ArgumentDescription describe(const CLI::Option& option) {
  ArgumentDescription argument{.help = option.get_description(),
                               .default_value = option.get_default_str(),
                               .takes_word = option.get_items_expected_max() > 0,
                               .required = option.get_required()};
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  if (option.get_positional()) argument.word = option.get_name(/*positional=*/true);
  // one_of() shows its words as {a, b}.
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin != std::string::npos && end != std::string::npos) {
    std::istringstream words(type.substr(begin + 1, end - begin - 1));
    for (std::string word; words >> word;) {
      if (word.ends_with(',')) word.pop_back();
      argument.choices.push_back(word);
    }
  }
  return argument;
}

ParserDescription describe(const CLI::App& app) {
  ParserDescription parser{.name = app.get_name(), .description = app.get_description()};
  for (const CLI::Option* option : app.get_options()) parser.arguments.push_back(describe(*option));
  return parser;
}

}  // namespace

ParserObserver::ParserObserver(See see) : see_(std::move(see)), outer_(observer) {
  observer = this;
}

ParserObserver::~ParserObserver() {
  observer = outer_;
}

bool ParserObserver::active() {
  return observer != nullptr;
}

std::optional<int> ArgumentParser::parse(std::span<const std::string> args) {
  if (observer) {
    observer->see_(describe(state_->app));
    return 0;
  }
  for (const std::string& word : args) {
    const auto wrong = home_path_in(word);
    if (!wrong) continue;
    std::cerr << wrong->message << " (" << wrong->hint << ")\n";
    return 2;
  }
  std::vector<std::string> reversed;  // CLI11 reads them from the back
  bool options = true;
  for (const std::string& word : args) {
    options = options && word != "--";  // what follows belongs to another program
    // kubectl's "-o=json". CLI11 reads the "=" as part of the value.
    if (options && word.size() > 2 && word[0] == '-' && word[1] != '-' && word[2] == '=') {
      reversed.push_back(word.substr(0, 2));
      reversed.push_back(word.substr(3));
    } else {
      reversed.push_back(word);
    }
  }
  std::ranges::reverse(reversed);
  return state_->run([&] { state_->app.parse(std::move(reversed)); });
}

std::optional<int> ArgumentParser::parse(int argc, const char* const* argv) {
  return state_->run([&] { state_->app.parse(argc, argv); });
}

}  // namespace dsj
