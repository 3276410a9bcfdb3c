// The format of a verb's result: -o text or -o json. With json the result is one document on
// stdout; all other output of the verb and its child processes goes to stderr.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/argument_parser.h"

namespace dsj::cli {

/// Adds -o to a verb whose --output names a file or a directory.
Argument add_format(ArgumentParser& parser, std::string& format);
/// Adds -o and --output, as in kubectl.
Argument add_format_and_output(ArgumentParser& parser, std::string& format);

/// The document as printed by dsj. Bytes that are not UTF-8 are replaced.
std::string document_text(const nlohmann::json& document);

/// Redirects stdout to stderr until print() or destruction, for this process and those that it
/// starts. One at a time.
class StdoutAside {
 public:
  explicit StdoutAside(bool aside);
  ~StdoutAside();
  StdoutAside(const StdoutAside&) = delete;
  StdoutAside& operator=(const StdoutAside&) = delete;

  bool active() const { return stdout_ >= 0; }
  /// Prints on the real stdout. Does nothing if stdout was not redirected.
  void print(const std::string& text);

 private:
  void give_back();
  int stdout_ = -1;  ///< a duplicate of its descriptor
};

/// Prints the result of a verb if the format is "json"; prints nothing for other formats.
class JsonResult {
 public:
  explicit JsonResult(const std::string& format) : aside_(format == "json") {}
  /// Whether print() prints, so that an expensive document is only made when needed.
  bool wanted() const { return aside_.active(); }
  void print(const nlohmann::json& document) {
    if (wanted()) aside_.print(document_text(document));
  }

 private:
  StdoutAside aside_;
};

}  // namespace dsj::cli
