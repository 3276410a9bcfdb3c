#include "cli/result_format.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace dsj::cli {
namespace {

Argument add(ArgumentParser& parser, const char* names, std::string& format) {
  if (format.empty()) format = "text";
  return parser.option(names, format, "text or json").one_of({"text", "json"});
}

}  // namespace

Argument add_format(ArgumentParser& parser, std::string& format) {
  return add(parser, "-o", format);
}

Argument add_format_and_output(ArgumentParser& parser, std::string& format) {
  return add(parser, "-o,--output", format);
}

std::string document_text(const nlohmann::json& document) {
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

StdoutAside::StdoutAside(bool aside) {
  if (!aside) return;
  std::fflush(stdout);
  stdout_ = dup(STDOUT_FILENO);
  if (stdout_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
}

StdoutAside::~StdoutAside() {
  give_back();
}

void StdoutAside::give_back() {
  if (stdout_ < 0) return;
  std::fflush(stdout);
  dup2(stdout_, STDOUT_FILENO);
  close(std::exchange(stdout_, -1));
}

void StdoutAside::print(const std::string& text) {
  if (!active()) return;
  give_back();
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace dsj::cli
