#include "job/import/imported.h"

#include <cctype>
#include <filesystem>

#include "job/spec/overrides.h"
#include "job/spec/yaml.h"

namespace dsj::jobimport {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json::json_pointer pointer(const std::string& dotted) {
  std::string text = "/" + dotted;
  for (char& c : text)
    if (c == '.') c = '/';
  return json::json_pointer(text);
}

void comment(std::string& text, const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += "#\n# " + title + "\n";
  for (const std::string& line : lines) {
    text += "#   ";
    for (char c : line) text += c == '\n' || c == '\r' ? ' ' : c;
    text += '\n';
  }
}

}  // namespace

std::string argument_word(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_array()) return value.dump();
  std::string words;
  for (const json& one : value) words += (words.empty() ? "" : ",") + argument_word(one);
  return words;
}

std::string sentence_of(const dsconfig::Finding& finding) {
  std::string text = finding.path + ": " + finding.message;
  if (!finding.hint.empty()) text += " (" + finding.hint + ")";
  return text;
}

Status finish(Imported& imported, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    DSJ_TRY(const jobspec::Override change, jobspec::parse_override(text));
    DSJ_TRY_STATUS(jobspec::apply(change, 0, imported.manifest));
  }
  std::string message, hint;
  for (const Missing& missing : imported.missing) {
    if (imported.manifest.contains(pointer(missing.path))) continue;
    message += (message.empty() ? "" : "; ") + missing.path + ": " + missing.message;
    hint += (hint.empty() ? "add --set " : " --set ") + missing.path + "=...";
  }
  if (!message.empty()) return bad_input(message, imported.origin, hint);
  return {};
}

void make_paths_absolute(json& manifest, const std::string& base) {
  const auto rebase = [&](const char* path, bool only_existing) {
    const json::json_pointer at(path);
    if (!manifest.contains(at) || !manifest[at].is_string()) return;
    const std::string name = manifest[at].get<std::string>();
    if (name.empty() || name[0] == '/' || name.starts_with("$")) return;
    std::error_code ignored;
    const fs::path whole = fs::absolute(fs::path(base) / name).lexically_normal();
    if (only_existing && !name.starts_with(".") && !fs::exists(whole, ignored)) return;
    manifest[at] = whole.string();
  };
  rebase("/spec/training/modelNameOrPath", true);
  rebase("/spec/training/dataPath", false);
  rebase("/spec/training/outputDir", false);
  rebase("/spec/training/resumeFromCheckpoint", true);
  rebase("/spec/deepspeed/configFrom/file", false);
}

std::string to_text(const Imported& imported) {
  std::string text;
  comment(text, "Imported from", {imported.origin});
  text.erase(0, 2);  // the first "#" line of its own
  comment(text, "Predefined:", imported.predefined);
  comment(text, "Left open:", imported.left_open);
  comment(text, "Not carried over:", imported.not_carried);
  return text + jobspec::to_yaml(imported.manifest);
}

std::string job_name(const std::string& words) {
  std::string name;
  for (char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && std::isalnum(byte);
    if (plain)
      name += static_cast<char>(std::tolower(byte));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  while (!name.empty() && !std::isalpha(static_cast<unsigned char>(name[0]))) name.erase(0, 1);
  name = name.substr(0, 40);
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "imported" : name;
}

}  // namespace dsj::jobimport
