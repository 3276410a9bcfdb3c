// Shell completions and manual pages of `dsj`, made from what its verbs' parsers take. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/argument_introspection.h"

namespace dsj::cli {

/// A verb, or a verb with its second word.
struct Command {
  std::string words;    ///< "get", "checkpoint show"
  std::string summary;  ///< half a sentence, for lists; empty for second words
  ParserDescription parser;
};

std::string bash_completion(const std::vector<Command>& commands);
std::string zsh_completion(const std::vector<Command>& commands);
std::string fish_completion(const std::vector<Command>& commands);

/// {"dsj.1": text, "dsj-get.1": text, ...} in man's language. `version`: for the foot of each page.
std::map<std::string, std::string> manual_pages(const std::vector<Command>& commands,
                                                const std::string& version);

}  // namespace dsj::cli
