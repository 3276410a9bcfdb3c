#include "cli/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_model(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / "config.json", ignored);
}

/// "Qwen/Qwen2-0.5B" or "gpt2": a hub id, not a path.
bool looks_like_hub_id(const std::string& name) {
  static const std::regex pattern("[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?");
  return std::regex_match(name, pattern);
}

std::string first_word(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

}  // namespace

std::string hub_cache_directory() {
  if (const auto cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const auto home = environment("HF_HOME"); !home.empty()) return home + "/hub";
  return environment("HOME") + "/.cache/huggingface/hub";
}

Result<std::string> find_model(const std::string& name, const std::string& cache) {
  std::error_code ignored;
  if (is_model(name)) return fs::absolute(name).lexically_normal().string();
  if (fs::is_directory(name, ignored)) {
    return bad_input("this directory has no config.json: it is not a Hugging Face model", name);
  }
  if (fs::exists(name, ignored)) {
    return bad_input("expected a model's directory, found a file", name);
  }
  if (!looks_like_hub_id(name)) return bad_input("there is no such directory", name);
  std::string folder = "models--" + name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  const fs::path snapshots = fs::path(cache) / folder / "snapshots";
  const std::string main = first_word(fs::path(cache) / folder / "refs" / "main");
  if (!main.empty() && is_model(snapshots / main)) return (snapshots / main).string();
  std::string only;
  for (const auto& entry : fs::directory_iterator(snapshots, ignored)) {
    if (!is_model(entry.path())) continue;
    if (!only.empty()) {
      return bad_input("the cache has several snapshots of this model and no refs/main",
                       snapshots.string(), "name the directory of one of them");
    }
    only = entry.path().string();
  }
  if (!only.empty()) return only;
  return bad_input(
      "no such directory, and the Hugging Face cache " + cache + " has no model of this name", name,
      "download it first: hf download " + name);
}

}  // namespace dsj::cli
