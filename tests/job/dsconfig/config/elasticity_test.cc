// The solver against DeepSpeed 0.19.7's (tests/oracle/elasticity_oracle.py), and what the section does to a config.
#include "job/dsconfig/config/elasticity.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "job/dsconfig/keys/resolved_json.h"
#include "job/dsconfig/resolve.h"
#include "test_paths.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

json oracle() {
  std::ifstream file(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/elasticity.oracle.json");
  EXPECT_TRUE(file);
  return json::parse(file);
}

ElasticityRequest request_of(const json& section) {
  return {.version = section["version"],
          .max_train_batch_size = section["max_train_batch_size"],
          .micro_batch_sizes = section["micro_batch_sizes"],
          .min_ranks = section["min_gpus"],
          .max_ranks = section["max_gpus"],
          .ranks_per_node = section["num_gpus_per_node"],
          .model_parallel_size = section["model_parallel_size"],
          .prefer_larger = section["prefer_larger_batch"]};
}

/// FNV-1a over "1,2,4", as the oracle has it.
std::string hash_of(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  uint64_t value = 0xcbf29ce484222325;
  for (const unsigned char byte : text) value = (value ^ byte) * 0x100000001b3;
  std::array<char, 17> hex;
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(value));
  return hex.data();
}

TEST(ElasticityTest, TheDocumentedExamplesAreDeepSpeeds) {
  const json all = oracle();
  int answered = 0;
  for (const json& row : all["documented"]) {
    json section = all["defaults"];
    section.update(row["section"]);
    const int64_t world = row["world"];
    const ElasticityRequest request = request_of(section);
    const auto solved = solve_elasticity(request, world);
    ASSERT_TRUE(solved) << row;
    const auto batch = elastic_batch(request, *solved, world);
    if (row.contains("error")) {
      ASSERT_FALSE(batch) << row;
      EXPECT_TRUE(batch.error().message.starts_with("the world size")) << batch.error().message;
      continue;
    }
    ASSERT_TRUE(batch) << row;
    ++answered;
    EXPECT_EQ(solved->train_batch_size, row["batch"]) << row;
    EXPECT_EQ(solved->world_sizes, row["sizes"].get<std::vector<int64_t>>()) << row;
    EXPECT_EQ(batch->micro, row["micro"]) << row;
    EXPECT_EQ(batch->micro * batch->accumulation * world, row["batch"]) << row;
  }
  EXPECT_EQ(answered, 6);
}

TEST(ElasticityTest, AThousandDrawnSectionsAreDeepSpeeds) {
  const json all = oracle();
  ASSERT_EQ(all["drawn"].size(), 1000u);
  const size_t keys = all["keys"].size();
  int answered = 0, refused = 0;
  for (const json& row : all["drawn"]) {
    json section;
    for (size_t i = 0; i < keys; ++i) section[all["keys"][i].get<std::string>()] = row[i];
    const int64_t world = row[keys];
    const ElasticityRequest request = request_of(section);
    const auto solved = solve_elasticity(request, world);
    const auto batch =
        solved ? elastic_batch(request, *solved, world) : std::unexpected(solved.error());
    // A batch of 0 rows is DeepSpeed's answer where its next check then fails.
    if (row[keys + 1].is_string() || row[keys + 1] == 0) {
      ++refused;
      ASSERT_FALSE(batch) << row;
      EXPECT_EQ(batch.error().kind, ErrorKind::BadInput);
      const bool by_world =
          row[keys + 1] == "ElasticityIncompatibleWorldSize" || row[keys + 1] == 0;
      EXPECT_EQ(batch.error().message.starts_with("the world size"), by_world)
          << row << batch.error().message;
      continue;
    }
    ++answered;
    ASSERT_TRUE(batch) << row << batch.error().to_string();
    EXPECT_EQ(solved->train_batch_size, row[keys + 1]) << row;
    EXPECT_EQ(batch->micro, row[keys + 2]) << row;
    EXPECT_EQ(solved->world_sizes.size(), row[keys + 3].get<size_t>()) << row;
    EXPECT_EQ(row[keys + 4], hash_of(solved->world_sizes)) << row;
  }
  EXPECT_GT(answered, 400);
  EXPECT_GT(refused, 400);
}

TEST(ElasticityTest, WorkIsBounded) {
  ElasticityRequest request{.version = 0.1, .max_train_batch_size = kElasticBatchMax};
  for (int64_t i = 1; i <= int64_t{kElasticMicroBatchesMax}; ++i)
    request.micro_batch_sizes.push_back(i);
  const auto solved = solve_elasticity(request, 1);
  ASSERT_TRUE(solved);
  EXPECT_LE(solved->train_batch_size, kElasticBatchMax);
  request.micro_batch_sizes.push_back(1000);
  EXPECT_EQ(solve_elasticity(request, 1).error().where, "elasticity.micro_batch_sizes");
}

json section(const json& more = {}) {
  json all = {{"enabled", true},
              {"max_train_batch_size", 24},
              {"micro_batch_sizes", {4, 6}},
              {"max_gpus", 8},
              {"version", 0.1}};
  if (!more.is_null()) all.update(more);
  return {{"elasticity", all}};
}

std::vector<Finding> of(const Resolution& resolution, Severity severity) {
  std::vector<Finding> found;
  for (const Finding& finding : resolution.findings)
    if (finding.severity == severity) found.push_back(finding);
  return found;
}

TEST(ElasticityConfigTest, TheSectionDecidesTheBatch) {
  const Resolution resolution = resolve(section(), {}, {.world_size = 3});
  ASSERT_TRUE(resolution.runnable()) << of(resolution, Severity::Error)[0].message;
  EXPECT_EQ(resolution.config.train_batch_size, 24);
  EXPECT_EQ(resolution.config.micro_batch_size, 4);
  EXPECT_EQ(resolution.config.gradient_accumulation_steps, 2);
  EXPECT_EQ(resolution.config.elastic_world_sizes, (std::vector<int64_t>{1, 2, 3, 4, 6}));
  EXPECT_EQ(to_json(resolution.config)["elasticity"]["world_sizes"], (json{1, 2, 3, 4, 6}));
  const auto origin = std::ranges::find(resolution.origins, "train_batch_size", &Origin::path);
  ASSERT_NE(origin, resolution.origins.end());
  EXPECT_EQ(origin->from, "elasticity");
}

TEST(ElasticityConfigTest, AWorldSizeOutsideTheListIsRefused) {
  const Resolution resolution = resolve(section(), {}, {.world_size = 5});
  const auto errors = of(resolution, Severity::Error);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].path, "elasticity");
  EXPECT_EQ(errors[0].message, "the world size, 5, is not valid; valid are 1, 2, 3, 4, 6");
}

TEST(ElasticityConfigTest, BatchKeysBesideItAreRefusedOrOverridden) {
  for (const char* key :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    for (const json& value : {json(4), json("auto")}) {
      json config = section();
      config[key] = value;
      const auto errors = of(resolve(config, {}, {.world_size = 3}), Severity::Error);
      ASSERT_EQ(errors.size(), 1u) << key;
      EXPECT_EQ(errors[0].path, key);
      EXPECT_NE(errors[0].hint.find("ignore_non_elastic_batch_info"), std::string::npos);
    }
    json config = section({{"ignore_non_elastic_batch_info", true}});
    config[key] = 5;
    const Resolution resolution = resolve(config, {}, {.world_size = 3});
    ASSERT_TRUE(resolution.runnable()) << key;
    EXPECT_EQ(resolution.config.train_batch_size, 24);
    const auto warnings = of(resolution, Severity::Warning);
    ASSERT_EQ(warnings.size(), 1u) << key;
    EXPECT_EQ(warnings[0].path, key);
    EXPECT_NE(warnings[0].message.find("overrides 5"), std::string::npos) << warnings[0].message;
  }
}

TEST(ElasticityConfigTest, AnArgumentBesideItIsOverriddenWithAWarning) {
  TrainingArgs training;
  training.per_device_train_batch_size = 6;
  training.gradient_accumulation_steps = 2;
  const Resolution resolution = resolve(section(), training, {.world_size = 3});
  ASSERT_TRUE(resolution.runnable());
  const auto warnings = of(resolution, Severity::Warning);
  ASSERT_EQ(warnings.size(), 1u) << "2 micro-steps are what elasticity gives, too";
  EXPECT_EQ(warnings[0].path, "elasticity");
  EXPECT_NE(warnings[0].message.find("perDeviceTrainBatchSize"), std::string::npos);
}

TEST(ElasticityConfigTest, EveryKeyCounts) {
  const json base = {{"version", 0.2}, {"max_train_batch_size", 64}, {"micro_batch_sizes", {2, 4}}};
  const Resolution before = resolve(section(base), {}, {.world_size = 4});
  ASSERT_TRUE(before.runnable());
  const json was = to_json(before.config)["elasticity"];
  for (const auto& [key, value] : {std::pair<const char*, json>{"max_train_batch_size", 30},
                                   {"micro_batch_sizes", json{2, 5}},
                                   {"min_gpus", 2},
                                   {"max_gpus", 4},
                                   {"num_gpus_per_node", 2},
                                   {"version", 0.1}}) {
    json other = base;
    other[key] = value;
    if (std::string(key) == "version")
      other["num_gpus_per_node"] = 2;  // version 0.1 does not look at it
    const Resolution after = resolve(section(other), {}, {.world_size = 4});
    ASSERT_TRUE(after.runnable()) << key << of(after, Severity::Error)[0].message;
    if (std::string(key) == "version")
      EXPECT_EQ(to_json(after.config)["elasticity"], was);
    else
      EXPECT_NE(to_json(after.config)["elasticity"], was) << key;
  }
  const auto batch_of = [](bool larger) {
    const json at = {{"version", 0.1},
                     {"max_train_batch_size", 6},
                     {"micro_batch_sizes", {4, 6}},
                     {"prefer_larger_batch", larger}};
    return resolve(section(at), {}, {.world_size = 1}).config.train_batch_size;
  };
  EXPECT_EQ(batch_of(true), 6);
  EXPECT_EQ(batch_of(false), 4);
  const auto refusal = [&](const json& more) {
    const auto errors = of(resolve(section(more), {}, {.world_size = 4}), Severity::Error);
    return errors.size() == 1 ? errors[0].path : std::to_string(errors.size()) + " errors";
  };
  EXPECT_EQ(refusal({{"model_parallel_size", 2}}), "elasticity.model_parallel_size");
  EXPECT_EQ(refusal({{"version", 0.2}, {"model_parallel_size", 3}}),
            "elasticity.model_parallel_size");
  EXPECT_EQ(refusal({{"version", 0.3}}), "elasticity.version");
  EXPECT_EQ(refusal({{"min_gpus", 9}}), "elasticity.max_gpus");
  EXPECT_EQ(refusal({{"min_gpus", 0}}), "elasticity.min_gpus");
  EXPECT_EQ(refusal({{"min_time", -1}}), "elasticity.min_time");
  EXPECT_EQ(refusal({{"micro_batch_sizes", json::array()}}), "elasticity.micro_batch_sizes");
  EXPECT_EQ(refusal({{"micro_batch_sizes", {1, 2.5}}}), "elasticity.micro_batch_sizes");
  EXPECT_EQ(refusal({{"micro_batch_sizes", {0}}}), "elasticity.micro_batch_sizes");
  EXPECT_EQ(refusal({{"micro_batch_sizes", {25}}}), "elasticity.micro_batch_sizes");
}

TEST(ElasticityConfigTest, MissingKeysAndASectionThatIsOff) {
  const json no_micro = {{"elasticity", {{"enabled", true}, {"max_train_batch_size", 24}}}};
  EXPECT_EQ(of(resolve(no_micro, {}, {}), Severity::Error)[0].path, "elasticity.micro_batch_sizes");
  const json no_maximum = {{"elasticity", {{"enabled", true}, {"micro_batch_sizes", {1}}}}};
  EXPECT_EQ(of(resolve(no_maximum, {}, {}), Severity::Error)[0].path,
            "elasticity.max_train_batch_size");
  const json off = {{"elasticity", {{"enabled", false}, {"micro_batch_sizes", {7}}}},
                    {"train_micro_batch_size_per_gpu", 2}};
  const Resolution resolution = resolve(off, {}, {.world_size = 2});
  EXPECT_TRUE(resolution.runnable());
  EXPECT_EQ(resolution.config.train_batch_size, 4);
  EXPECT_FALSE(to_json(resolution.config).contains("elasticity"));
}

TEST(ElasticityConfigTest, AFileAloneNeedsNoWorldSize) {
  const Resolution resolution = resolve_alone(section({{"min_gpus", 2}}));
  EXPECT_TRUE(resolution.runnable());
  EXPECT_TRUE(resolution.notes.empty());
  EXPECT_EQ(resolution.config.elastic_world_sizes, (std::vector<int64_t>{2, 3, 4, 6}));
  EXPECT_EQ(resolution.config.train_batch_size, 24);
}

}  // namespace
}  // namespace dsj::dsconfig
