#include "job/spec/sharding.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "common/json.h"
#include "common/text.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

/// The stage of ShardingStrategy's names and numbers, in lower case; nullopt for others.
std::optional<int> stage_of(const std::string& strategy) {
  static const std::map<std::string, int> kStages = {{"full_shard", 3},    {"1", 3}, {"true", 3},
                                                     {"shard_grad_op", 2}, {"2", 2}, {"false", 2},
                                                     {"no_shard", 0},      {"3", 0}};
  const auto found = kStages.find(strategy);
  return found == kStages.end() ? std::nullopt : std::optional(found->second);
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::unexpected<Error> not_a_strategy(const std::string& found, const std::string& where) {
  if (found.starts_with("hybrid_shard") || found == "4" || found == "5")
    return bad_input(
        "\"" + found + "\" shards within a node only", where,
        "name a ds_config with zero_optimization.mics_shard_size, the ranks of a node");
  return bad_input("found \"" + found + "\", expected full_shard, shard_grad_op or no_shard",
                   where);
}

}  // namespace

Result<Sharding> sharding_of_words(const std::string& words) {
  Sharding sharding;
  std::string word;
  for (const char c : words + " ") {
    if (c != ' ' && c != ',') {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "offload") {
      sharding.offload = true;
    } else if (const auto stage = stage_of(word); stage && !std::isdigit(word[0])) {
      sharding.stage = word == "false" ? 0 : *stage;
    } else if (!word.empty() && word != "auto_wrap") {
      return not_a_strategy(word, "--fsdp");
    }
    word.clear();
  }
  if (sharding.offload && sharding.stage == 0)
    return bad_input("offload needs full_shard or shard_grad_op", "--fsdp");
  return sharding;
}

Result<Sharding> sharding_of_settings(const json& settings) {
  const auto said = [&](const std::string& name) {
    for (const std::string& key : {"fsdp_" + name, name})
      if (const json& value = json_child(settings, key.c_str()); !value.is_null())
        return lower(value.is_string() ? value.get<std::string>() : value.dump());
    return std::string();
  };
  std::string strategy = said("sharding_strategy");
  if (strategy.empty()) strategy = said("reshard_after_forward");  // version 2 has only this key
  Sharding sharding{.stage = 3};
  if (!strategy.empty()) {
    const auto stage = stage_of(strategy);
    if (!stage) return not_a_strategy(strategy, "fsdp_sharding_strategy");
    sharding.stage = *stage;
  }
  sharding.offload = sharding.stage > 0 && said("offload_params") == "true";
  sharding.recompute = said("activation_checkpointing") == "true";
  return sharding;
}

json ds_config_of(const Sharding& sharding) {
  json zero = {{"stage", sharding.stage}};
  if (sharding.offload) zero["offload_optimizer"] = {{"device", "cpu"}};
  if (sharding.offload && sharding.stage == 3) zero["offload_param"] = {{"device", "cpu"}};
  return {{"train_micro_batch_size_per_gpu", "auto"},
          {"gradient_accumulation_steps", "auto"},
          {"gradient_clipping", "auto"},
          {"bf16", {{"enabled", "auto"}}},
          {"fp16", {{"enabled", "auto"}}},
          {"zero_optimization", zero}};
}

}  // namespace dsj::jobspec
