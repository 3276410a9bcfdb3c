#include "common/argument_parser.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/home_path.h"

namespace dsj {

Argument Argument::required() const {
  option_->required();
  return *this;
}

Argument Argument::one_of(const std::vector<std::string>& words) const {
  option_->check(CLI::IsMember(words));
  return *this;
}

Argument Argument::positive() const {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Argument Argument::non_negative() const {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Argument Argument::from_to(int least, int most) const {
  option_->check(CLI::Range(least, most));
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

  /// `parse`: calls the app's.
  template <typename Parse>
  std::optional<int> run(Parse&& parse) {
    try {
      parse();
    } catch (const CLI::ParseError& error) {
      return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
    }
    return std::nullopt;
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

/// The word, or what follows its "=": no argument of ours that begins with ~/ is anything but a path.
std::optional<HomePath> home_path_in(const std::string& word) {
  const size_t equals = word.starts_with("-") ? word.find('=') : std::string::npos;
  return home_path(equals == std::string::npos ? word : word.substr(equals + 1));
}

}  // namespace

std::optional<int> ArgumentParser::parse(std::span<const std::string> args) {
  for (const std::string& word : args) {
    const auto wrong = home_path_in(word);
    if (!wrong) continue;
    std::cerr << wrong->message << " (" << wrong->hint << ")\n";
    return 2;
  }
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes them from the back
  return state_->run([&] { state_->app.parse(std::move(reversed)); });
}

std::optional<int> ArgumentParser::parse(int argc, const char* const* argv) {
  return state_->run([&] { state_->app.parse(argc, argv); });
}

}  // namespace dsj
