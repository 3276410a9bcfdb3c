#include "cli/tune/space.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>

#include "job/dsconfig/keys/keys.h"

namespace dsj::tune {
namespace {

using nlohmann::json;

/// "overlap_comm" true → "ocT"; a number above 9,000 in DeepSpeed's short form: "rbs5.0e+07".
std::string short_name(const std::string& key, const json& value) {
  std::string name;
  bool first = true;
  for (const char letter : key) {
    if (first) name += letter;
    first = letter == '_';
  }
  if (value.is_boolean()) return name + (value.get<bool>() ? "T" : "F");
  if (value.is_number() && value.get<double>() > 9000) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1e", value.get<double>());
    return name + text;
  }
  return name + value.dump();
}

/// A key of DeepSpeed's space, and its values.
struct Choice {
  const char* key;
  std::vector<json> values;
  int from_stage;
  bool bucket = false;
};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      {"reduce_bucket_size", {50'000'000, 500'000'000, 1'000'000'000}, 1, true},
      {"allgather_bucket_size", {50'000'000, 500'000'000, 1'000'000'000}, 1, true},
      {"overlap_comm", {true, false}, 2},
      {"reduce_scatter", {false, true}, 2},
      {"contiguous_gradients", {false, true}, 2},
      {"allgather_partitions", {true, false}, 3}};
  return all;
}

/// Whether the key has an effect at this stage.
bool acts(const char* key, int stage) {
  const dsconfig::Key* row = dsconfig::find_key(std::string("zero_optimization.") + key);
  if (row == nullptr || row->state != dsconfig::State::Works) return false;
  return row->stages.empty() || row->stages.find(std::to_string(stage)) != std::string::npos;
}

}  // namespace

std::string name_of(const Candidate& candidate) {
  if (candidate.given) return "as_given";
  std::string name = "z" + std::to_string(candidate.stage) + "_gas" +
                     std::to_string(candidate.accumulation) + "_tmbspg" +
                     std::to_string(candidate.micro_batch);
  if (candidate.offload) name += "_offload";
  for (const auto& [key, value] : candidate.settings.items()) name += "_" + short_name(key, value);
  return name;
}

json ds_config_of(const json& base, const Candidate& candidate) {
  if (candidate.given) return base;
  json config = base;
  config.erase("train_batch_size");
  config["train_micro_batch_size_per_gpu"] = candidate.micro_batch;
  config["gradient_accumulation_steps"] = candidate.accumulation;
  json& zero = config["zero_optimization"];
  if (!zero.is_object()) zero = json::object();
  zero["stage"] = candidate.stage;
  if (candidate.offload) zero["offload_optimizer"] = {{"device", "cpu"}};
  for (const auto& [key, value] : candidate.settings.items()) zero[key] = value;
  return config;
}

std::optional<int64_t> accumulation_of(int64_t micro_batch, const BatchRule& rule) {
  if (rule.keep) {
    const int64_t rows = rule.micro_batch * rule.accumulation;
    if (rows % micro_batch != 0) return std::nullopt;
    return rows / micro_batch;
  }
  const int64_t one = micro_batch * rule.world;
  int64_t steps = std::max(rule.accumulation, (rule.least + one - 1) / one);
  if (rule.most) steps = std::min(steps, *rule.most / one);
  if (steps < 1 || steps * one < rule.least) return std::nullopt;
  return steps;
}

std::vector<int64_t> ladder(const BatchRule& rule, int64_t doublings, int64_t least, int64_t most) {
  const int64_t own = std::clamp(rule.micro_batch, least, most);
  const int64_t top = own > (most >> std::min<int64_t>(doublings, 40)) ? most : own << doublings;
  std::set<int64_t> sizes;
  if (rule.keep) {
    const int64_t rows = rule.micro_batch * rule.accumulation;
    for (int64_t size = std::max(least, own / 2); size <= std::min(top, rows); ++size)
      if (accumulation_of(size, rule)) sizes.insert(size);
  } else {
    for (int64_t size = std::max(least, own / 2); size <= top; size = size < own ? own : size * 2)
      if (accumulation_of(size, rule)) sizes.insert(size);
  }
  for (int64_t size = own; sizes.empty() && size >= least; --size)
    if (accumulation_of(size, rule)) sizes.insert(size);
  return {sizes.begin(), sizes.end()};
}

std::vector<json> settings_of(int stage, int64_t parameters) {
  std::vector<json> all = {json::object()};
  for (const Choice& choice : choices()) {
    if (stage < choice.from_stage || !acts(choice.key, stage)) continue;
    std::vector<json> values;
    for (const json& value : choice.values) {
      values.push_back(value);
      if (choice.bucket && value.get<int64_t>() >= parameters) break;  // the rest is equivalent
    }
    std::vector<json> more;
    for (const json& one : all)
      for (const json& value : values) {
        more.push_back(one);
        more.back()[choice.key] = value;
      }
    all = std::move(more);
  }
  return all;
}

}  // namespace dsj::tune
