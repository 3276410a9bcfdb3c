// Generates shell completions and manual pages of `dsj` from its verbs' parsers. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/argument_introspection.h"

namespace dsj::cli {

/// A verb, or a verb with its subcommand.
struct Command {
  std::string words;    ///< "get", "checkpoint show"
  std::string summary;  ///< a phrase for lists; empty for subcommands
  ParserDescription parser;
};

std::string bash_completion(const std::vector<Command>& commands);
std::string zsh_completion(const std::vector<Command>& commands);
std::string fish_completion(const std::vector<Command>& commands);

/// {"dsj.1": text, "dsj-get.1": text, ...} in man's format. `version`: for the footer.
std::map<std::string, std::string> manual_pages(const std::vector<Command>& commands,
                                                const std::string& version);

}  // namespace dsj::cli
