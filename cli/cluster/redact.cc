#include "cli/cluster/redact.h"

#include <algorithm>
#include <regex>

namespace dsj::cli {
namespace {

constexpr char kGone[] = "<redacted>";
/// Longer lines are cut, because std::regex uses stack for each matched character.
constexpr size_t kLineMost = 4096;

/// Variables that configure programs and hold no credentials.
constexpr const char* kPlain[] = {"DSJ_",  "OMP_",   "MKL_",        "NCCL_",     "GLOO_",
                                  "CUDA_", "TORCH_", "TOKENIZERS_", "LD_LIBRARY"};

bool is_plain(const std::string& name) {
  return std::ranges::any_of(kPlain, [&](const char* start) { return name.starts_with(start); });
}

/// How many bytes of the line are kept, at most `most`. A word that would be cut is removed
/// entirely, because half a credential is not recognized.
size_t whole_words(const std::string& line, size_t most) {
  if (line.size() <= most) return line.size();
  const size_t gap = line.find_last_of(" \t\"'", most);
  return gap == std::string::npos ? 0 : gap;
}

std::string redacted_line(std::string line) {
  static const std::pair<std::regex, const char*> kRules[] = {
      {std::regex("eyJ[\\w-]{8,}\\.[\\w-]+\\.[\\w-]*"), kGone},
      {std::regex("\\b(hf|gh[oprsu]|github_pat|glpat|xox[abeprs])[_-][A-Za-z0-9_-]{10,}"), kGone},
      {std::regex("\\bsk-[A-Za-z0-9_-]{16,}"), kGone},
      {std::regex("\\b(AKIA|ASIA)[A-Z0-9]{12,}"), kGone},
      {std::regex("(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}", std::regex::icase), "$1 <redacted>"},
      {std::regex("://[^/\\s:@]+:[^/\\s@]+@"), "://<redacted>@"},
      {std::regex("((token|passw(or)?d|secret|api[_-]?key|credential)[\\w-]*[\"']?\\s*[=:]\\s*)"
                  "(\"[^\"]*(\"|$)|'[^']*('|$)|[^\\s,;]+)",
                  std::regex::icase),
       "$1<redacted>"},
  };
  const size_t more = line.size() - whole_words(line, kLineMost);
  line.resize(line.size() - more);
  for (const auto& [rule, instead] : kRules) line = std::regex_replace(line, rule, instead);
  return more == 0 ? line : line + "... (" + std::to_string(more) + " bytes more)";
}

void redact_words(Json& container, const char* key) {
  const auto words = container.find(key);
  if (words == container.end() || !words->is_array()) return;
  bool next = false;  // the value of a switch is a separate word
  static const std::regex name("^--?[\\w.-]*(token|passw|secret|api-?_?key|credential)[\\w.-]*$",
                               std::regex::icase);
  for (Json& one : *words) {
    if (!one.is_string()) continue;
    const std::string text = one;
    one = next ? std::string(kGone) : redacted_text(text);
    next = std::regex_match(text, name);
  }
}

void redact_container(Json& container) {
  if (!container.is_object()) return;
  redact_words(container, "command");
  redact_words(container, "args");
  const auto env = container.find("env");
  if (env == container.end() || !env->is_array()) return;
  for (Json& variable : *env)
    if (variable.is_object() && variable.contains("value") && !is_plain(word(variable, "name")))
      variable["value"] = kGone;
}

void redact_pod_spec(Json& spec) {
  for (const char* list : {"containers", "initContainers", "ephemeralContainers"}) {
    const auto containers = spec.find(list);
    if (containers == spec.end() || !containers->is_array()) continue;
    for (Json& container : *containers) redact_container(container);
  }
}

}  // namespace

std::string redacted_text(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += redacted_line(text.substr(begin, end - begin));
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

Json redacted(Json object) {
  if (const auto metadata = object.find("metadata"); metadata != object.end()) {
    metadata->erase("managedFields");
    if (const auto notes = metadata->find("annotations"); notes != metadata->end())
      notes->erase("kubectl.kubernetes.io/last-applied-configuration");
  }
  if (!object.contains("spec") || !object["spec"].is_object()) return object;
  Json& spec = object["spec"];
  redact_pod_spec(spec);
  if (const auto all = spec.find("initializers"); all != spec.end() && all->is_object())
    for (Json& one : *all) redact_container(one);
  const Json::json_pointer path("/workers/template/spec");
  if (spec.contains(path) && spec[path].is_object()) redact_pod_spec(spec[path]);
  return object;
}

}  // namespace dsj::cli
