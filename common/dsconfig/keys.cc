#include "common/dsconfig/keys.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/text.h"

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

/// Words that many sections use: finding one elsewhere says nothing.
bool is_common_word(const std::string& name) {
  static const std::set<std::string> words = {
      "enabled",  "type",      "params", "device", "seed",   "version",  "verbose",  "debug",
      "profile",  "job_name",  "lr",     "eps",    "betas",  "metric",   "group",    "team",
      "project",  "overwrite", "fast",   "dtype",  "writer", "timers",   "pipeline", "kwargs",
      "momentum", "backend",   "ratio",  "gamma",  "theta",  "schedule", "modules",  "output_path"};
  return words.contains(name);
}

const std::vector<std::string>& torch_optimizers() {
  static const std::vector<std::string> names = {"SGD",     "ASGD",  "Adadelta",  "Adafactor",
                                                 "Adamax",  "LBFGS", "NAdam",     "RAdam",
                                                 "RMSprop", "Rprop", "SparseAdam"};
  return names;
}
const std::vector<std::string>& deepspeed_optimizers() {
  static const std::vector<std::string> names = {"Lamb",  "OneBitAdam", "ZeroOneAdam", "OneBitLamb",
                                                 "Lion",  "Adagrad",    "MuAdam",      "MuAdamW",
                                                 "MuSGD", "Muon"};
  return names;
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}
bool contains_any_case(const std::vector<std::string>& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& entry) {
    return text::normalized(entry) == text::normalized(name) && entry.size() == name.size();
  });
}

}  // namespace

const std::vector<Key>& all_keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> keys;
    for (auto part :
         {training_keys(), precision_keys(), zero_keys(), observation_keys(), other_engine_keys()})
      for (Key& key : part) keys.push_back(std::move(key));
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

Support optimizer_support(const std::string& type) {
  static const std::vector<std::string> here = {"Adam", "AdamW"};
  if (contains_any_case(here, type)) return Support::Here;
  // DeepSpeed lower-cases its own names; torch's must be exact.
  if (contains_any_case(deepspeed_optimizers(), type) || contains(torch_optimizers(), type))
    return Support::Elsewhere;
  return Support::Unknown;
}

Support scheduler_support(const std::string& type) {
  if (type == "WarmupLR" || type == "WarmupDecayLR") return Support::Here;
  return contains(scheduler_names(), type) ? Support::Elsewhere : Support::Unknown;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {"Adam", "AdamW"};
    for (const auto* part : {&deepspeed_optimizers(), &torch_optimizers()})
      list.insert(list.end(), part->begin(), part->end());
    return list;
  }();
  return names;
}

const std::vector<std::string>& scheduler_names() {
  static const std::vector<std::string> names = {"WarmupLR",
                                                 "WarmupDecayLR",
                                                 "WarmupCosineLR",
                                                 "LRRangeTest",
                                                 "OneCycle",
                                                 "LambdaLR",
                                                 "MultiplicativeLR",
                                                 "StepLR",
                                                 "MultiStepLR",
                                                 "ConstantLR",
                                                 "LinearLR",
                                                 "ExponentialLR",
                                                 "SequentialLR",
                                                 "CosineAnnealingLR",
                                                 "CosineAnnealingWarmRestarts",
                                                 "ChainedScheduler",
                                                 "CyclicLR",
                                                 "OneCycleLR",
                                                 "PolynomialLR",
                                                 "ReduceLROnPlateau"};
  return names;
}

}  // namespace dsj::dsconfig
