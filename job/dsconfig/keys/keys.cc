#include "job/dsconfig/keys/keys.h"

#include <algorithm>
#include <map>
#include <set>

namespace dsj::dsconfig {
namespace {

std::string section_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}
std::string name_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

struct Index {
  std::map<std::string, const Key*, std::less<>> by_path;
  std::map<std::string, std::vector<std::string>> names;
};

const Index& index() {
  static const Index built = [] {
    Index result;
    for (const Key& key : all_keys()) {
      const std::string section = section_of(key.path);
      result.by_path[key.path] = &key;
      result.names[section].push_back(name_of(key.path));
      for (const std::string& alias : key.aliases) {
        result.by_path[section.empty() ? alias : section + "." + alias] = &key;
        result.names[section].push_back(alias);
      }
    }
    return result;
  }();
  return built;
}

/// Names that many sections use. A match in another section is no hint.
bool is_common_word(const std::string& name) {
  static const std::set<std::string> words = {"enabled",
                                              "type",
                                              "params",
                                              "device",
                                              "seed",
                                              "version",
                                              "verbose",
                                              "debug",
                                              "profile",
                                              "job_name",
                                              "lr",
                                              "eps",
                                              "betas",
                                              "metric",
                                              "group",
                                              "team",
                                              "project",
                                              "overwrite",
                                              "fast",
                                              "dtype",
                                              "writer",
                                              "timers",
                                              "pipeline",
                                              "kwargs",
                                              "momentum",
                                              "backend",
                                              "ratio",
                                              "gamma",
                                              "theta",
                                              "schedule",
                                              "modules",
                                              "output_path",
                                              "alpha",
                                              "base_lr",
                                              "epochs",
                                              "factor",
                                              "max_lr",
                                              "mode",
                                              "power",
                                              "rho",
                                              "step_size",
                                              "total_iters",
                                              "total_steps",
                                              "steps_per_epoch",
                                              "num_epochs",
                                              "num_workers",
                                              "pin_memory",
                                              "min_value",
                                              "max_value",
                                              "model_type",
                                              "difficulty",
                                              "max_step",
                                              "schedule_type",
                                              "schedule_config",
                                              "global_batch_size",
                                              "micro_batch_size"};
  return words.contains(name);
}

}  // namespace

const std::vector<Key>& all_keys() {
  static const std::vector<Key> table = [] {
    ResolvedConfig defaults;
    std::vector<Key> keys;
    for (auto part :
         {training_keys(), optimizer_keys(), scheduler_keys(), precision_keys(), zero_keys(),
          offload_keys(), observation_keys(), data_keys(), other_engine_keys()})
      for (Key& key : part) {
        if (key.field != nullptr && key.fallback.is_null())
          std::visit([&](const auto* field) { key.fallback = *field; }, key.field(defaults));
        keys.push_back(std::move(key));
      }
    return keys;
  }();
  return table;
}

const Key* find_key(std::string_view path) {
  const auto found = index().by_path.find(path);
  return found == index().by_path.end() ? nullptr : found->second;
}

const std::vector<std::string>& names_in(const std::string& section) {
  static const std::vector<std::string> none;
  const auto found = index().names.find(section);
  return found == index().names.end() ? none : found->second;
}

std::vector<std::string> homes_of(const std::string& name, const std::string& section) {
  std::vector<std::string> homes;
  if (is_common_word(name)) return homes;
  for (const auto& [path, key] : index().by_path)
    if (name_of(path) == name && section_of(path) != section) homes.push_back(path);
  return homes;
}

}  // namespace dsj::dsconfig
