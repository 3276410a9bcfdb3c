#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "cli/verbs.h"

namespace dsj::cli {

std::optional<int> parse(CLI::App& app, Arguments args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes them from the back
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace dsj::cli
