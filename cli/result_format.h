// The form of a verb's result: -o text for people, -o json for programs. As JSON the result is one
// document on stdout; what the verb and its processes print besides goes to stderr.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/argument_parser.h"

namespace dsj::cli {

/// Adds -o to a verb whose --output names a file or a directory.
Argument add_format(ArgumentParser& parser, std::string& format);
/// Adds -o and, as kubectl has it, --output.
Argument add_format_and_output(ArgumentParser& parser, std::string& format);

/// A document as dsj prints it. Bytes of a text that are not UTF-8 are replaced.
std::string document_text(const nlohmann::json& document);

/// While it lives, and until it prints, stdout is stderr: for this process and those that it starts.
/// One at a time.
class StdoutAside {
 public:
  explicit StdoutAside(bool aside);
  ~StdoutAside();
  StdoutAside(const StdoutAside&) = delete;
  StdoutAside& operator=(const StdoutAside&) = delete;

  bool active() const { return stdout_ >= 0; }
  /// Prints on the real stdout. Nothing was put aside: does nothing.
  void print(const std::string& text);

 private:
  void give_back();
  int stdout_ = -1;  ///< a second descriptor of it
};

/// The result of a verb whose format is "json"; of another format it prints nothing.
class JsonResult {
 public:
  explicit JsonResult(const std::string& format) : aside_(format == "json") {}
  /// Whether print() prints: what costs something is made for it alone.
  bool wanted() const { return aside_.active(); }
  void print(const nlohmann::json& document) {
    if (wanted()) aside_.print(document_text(document));
  }

 private:
  StdoutAside aside_;
};

}  // namespace dsj::cli
