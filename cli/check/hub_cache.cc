#include "cli/check/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <utility>

#include "cli/check/trainer_checkpoints.h"

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

/// "Qwen/Qwen2-0.5B" or "gpt2": whether it has the form of a hub id.
bool looks_like_hub_id(const std::string& name) {
  static const std::regex pattern("[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?");
  return std::regex_match(name, pattern);
}

/// A variable with a directory, ~ in front expanded.
std::string directory_in(const char* name) {
  const std::string value = environment(name);
  return value == "~" || value.starts_with("~/") ? environment("HOME") + value.substr(1) : value;
}

std::string first_word(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

/// The snapshot in a model's folder of the cache (models--ORG--NAME): that of refs/main, else
/// the only one. Empty if there is none.
Result<std::string> cached_snapshot(const fs::path& folder) {
  std::error_code ignored;
  const fs::path snapshots = folder / "snapshots";
  const std::string main = first_word(folder / "refs" / "main");
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
  return only;
}

/// Says what a directory without a config.json is, by the names of its files.
Error no_model(const fs::path& directory) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(directory / name, ignored); };
  const auto is = [&](std::string what, std::string hint) {
    return Error{ErrorKind::BadInput, std::move(what), directory.string(), std::move(hint)};
  };
  if (has("adapter_config.json"))
    return is(
        "holds a LoRA adapter and not its model",
        "dsj merge --adapter " + directory.string() + " --output OUT makes one model of both");
  if (is_model(directory / "model") || has("model/adapter_config.json"))
    return is("is the output directory of a run, not a model",
              "name its model: " + (directory / "model").string());
  std::string only, gguf;
  int64_t models = 0;
  bool shards_of_meta = false, weights_of_deepspeed = has("latest");
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".gguf")) gguf = name;
    shards_of_meta =
        shards_of_meta || (name.starts_with("consolidated.") && name.ends_with(".pth"));
    weights_of_deepspeed = weights_of_deepspeed || name.ends_with("model_states.pt");
    if (!is_model(entry.path())) continue;
    ++models;
    only = entry.path().string();
  }
  const std::string newest = newest_trainer_checkpoint(directory.string());
  if (is_model(newest))
    return is("holds checkpoints of Trainer's and is not a model itself",
              "name one of them: " + newest);
  if (models == 1) return is("this directory has no config.json", "did you mean " + only + "?");
  if (!gguf.empty())
    return is("holds GGUF files, whose weights are quantised for llama.cpp (" + gguf + ")",
              "take the Hugging Face model that it was made from (safetensors)");
  if (shards_of_meta)
    return is("holds weights in Meta's own form (consolidated.*.pth) and no config.json",
              "take the same model in Hugging Face's form");
  if (weights_of_deepspeed)
    return is("is a checkpoint of DeepSpeed's, not a model",
              "--resume_from_checkpoint continues from it; dsj checkpoint export DIR OUT --to fp32 "
              "writes its weights");
  if (has("manifest.json"))
    return is("is a checkpoint of a run, not a model",
              "--resume_from_checkpoint continues from it; the run's model is in OUTPUT/model");
  return is("this directory has no config.json: it is not a Hugging Face model", "");
}

}  // namespace

std::string hub_cache_directory() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"})
    if (const auto cache = directory_in(name); !cache.empty()) return cache;
  if (const auto home = directory_in("HF_HOME"); !home.empty()) return home + "/hub";
  const std::string caches = directory_in("XDG_CACHE_HOME");
  return (caches.empty() ? environment("HOME") + "/.cache" : caches) + "/huggingface/hub";
}

Result<std::string> find_model(const std::string& name, const std::string& cache) {
  std::error_code ignored;
  if (is_model(name)) return fs::absolute(name).lexically_normal().string();
  if (fs::is_directory(name, ignored)) {
    DSJ_TRY(const std::string snapshot, cached_snapshot(name));
    if (snapshot.empty()) return std::unexpected(no_model(name));
    return fs::absolute(snapshot).lexically_normal().string();
  }
  if (fs::exists(name, ignored)) {
    return bad_input("expected a model's directory, found a file", name);
  }
  if (!looks_like_hub_id(name)) return bad_input("there is no such directory", name);
  std::string folder = "models--" + name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  DSJ_TRY(const std::string snapshot, cached_snapshot(fs::path(cache) / folder));
  if (!snapshot.empty()) return snapshot;
  return bad_input(
      "no such directory, and the Hugging Face cache " + cache + " has no model of this name", name,
      "download it first: hf download " + name + "; HF_HUB_CACHE names another cache");
}

}  // namespace dsj::cli
