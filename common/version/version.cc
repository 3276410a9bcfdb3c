#include "common/version/version.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/argument_parser.h"

namespace dsj {

std::string version_text(const std::string& program, const Version& version) {
  std::string build = version.commit.empty() ? "" : version.describe;
  if (!version.libtorch.empty())
    build += (build.empty() ? "" : ", ") + ("libtorch " + version.libtorch);
  return program + " " + version.release + (build.empty() ? "" : " (" + build + ")");
}

std::string version_json(const std::string& program, const Version& version) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  return nlohmann::ordered_json{{"program", program},
                                {"version", version.release},
                                {"commit", or_null(version.commit)},
                                {"describe", version.describe},
                                {"libtorch", or_null(version.libtorch)}}
      .dump();
}

std::optional<int> answer_version(const std::string& program, std::span<const std::string> args) {
  if (args.empty() || args[0] != "--version") return std::nullopt;
  std::string format = "text";
  ArgumentParser parser("Shows the version, the commit and libtorch's version.",
                        program + " --version");
  parser.option("-o", format, "format").one_of({"text", "json"}).show_default();
  if (const auto over = parser.parse(args.subspan(1))) return *over;
  std::puts((format == "json" ? version_json : version_text)(program, version()).c_str());
  return 0;
}

}  // namespace dsj
