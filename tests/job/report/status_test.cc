// The CRD declares exactly the fields of the tables, with their types; and what the tables write is
// what is read.
#include "job/report/status.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "job/report/field_value.h"
#include "job/spec/yaml.h"
#include "test_paths.h"

namespace dsj::report {
namespace {

using nlohmann::json;

json status_schema() {
  auto document = jobspec::read_yaml(std::string(DSJ_SOURCE_DIR) + "/crds/deepspeedjobs.yaml");
  if (!document) {
    ADD_FAILURE() << document.error().to_string();
    return {};
  }
  return document
      ->value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
}

template <typename Value>
void expect_type(const json& schema, Unit unit) {
  if constexpr (IsOptional<Value>::value) {
    expect_type<typename Value::value_type>(schema, unit);
  } else if constexpr (std::is_same_v<Value, double>) {
    EXPECT_EQ(schema, json({{"type", "string"}, {"nullable", true}}));
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    EXPECT_EQ(schema["type"], "integer");
  } else if constexpr (std::is_same_v<Value, bool>) {
    EXPECT_EQ(schema["type"], "boolean");
  } else if constexpr (std::is_same_v<Value, std::string>) {
    EXPECT_EQ(schema["type"], "string");
    EXPECT_EQ(schema.value("format", ""), unit == Unit::Time ? "date-time" : "");
  } else if constexpr (std::is_same_v<Value, std::map<std::string, int64_t>>) {
    EXPECT_EQ(schema["additionalProperties"]["type"], "integer");
  } else if constexpr (std::is_same_v<Value, std::vector<FailureRecord>>) {
    EXPECT_EQ(schema["type"], "array");
    EXPECT_EQ(schema["maxItems"], kEarlierFailuresMax);
    expect_type<FailureRecord>(schema["items"], unit);
  } else if constexpr (std::is_same_v<Value, std::map<std::string, double>>) {
    ADD_FAILURE() << "the status has no numbers without names";
  } else {
    static_assert(std::is_same_v<Value, json> || Described<Value>);
    // One owner for the whole, or the server keeps a line for each key beside it.
    json type = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
    if (schema.contains("x-kubernetes-map-type")) type["x-kubernetes-map-type"] = "atomic";
    EXPECT_EQ(schema, type);
  }
}

template <typename T>
void expect_declared(const json& schema) {
  std::set<std::string> declared, described;
  for (const auto& [name, value] : schema["properties"].items()) declared.insert(name);
  for_each_status_field<T>([&](const auto& field, const char* name) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(described.insert(name).second) << "it is listed twice";
    if (declared.contains(name)) {
      json type = schema["properties"][name];
      type.erase("description");
      expect_type<typename std::remove_cvref_t<decltype(field)>::Value>(type, field.unit);
    }
  });
  EXPECT_EQ(declared, described);
}

TEST(Status, TheCrdDeclaresEveryFieldAndNoOther) {
  const json status = status_schema()["properties"];
  expect_declared<Training>(status[kTraining]);
  const json checkpoint = status[kCheckpoint]["properties"];
  expect_declared<Saved>(checkpoint[kLastSaved]);
  expect_declared<Restored>(checkpoint[kLastRestored]);
  expect_declared<Damaged>(checkpoint[kLastDamaged]);
  EXPECT_EQ(checkpoint.size(), 3u);
}

TEST(Status, NothingKnownIsEmpty) {
  EXPECT_EQ(status_json(Training{}), json::object());
}

TEST(Status, HasTheNewestOfEachReport) {
  const Training training{
      .step = 6,
      .resolved = Resolved{.config = {{"x", 1}}, .total_steps = 9},
      .attempt = Attempt{.attempt = 2, .world_size = 8},
      .newest = Step{.step = 6, .loss = 1.5, .lr = 1e-6, .loss_scale = NAN, .tokens = 5},
      .percentage = 66,
      .seconds_left = 4,
      .eval = Eval{.step = 5, .loss = 2.5},
      .updated = "2026-01-01T00:00:00Z",
      .memory = Memory{.peak = {{"params", 4}}},
      .exported = Exported{"/model"},
      .world_size = 8,
      .stop_step = 7,
      .last_failure = FailureRecord{.time = "t", .reason = "Killed", .attempt = 1}};
  const json expected = {
      {"step", 6},
      {"resolvedConfig", {{"x", 1}}},
      {"totalSteps", 9},
      {"attempt", 2},
      {"loss", "1.5"},
      {"learningRate", "1e-06"},
      {"gradNorm", nullptr},
      {"lossScale", "NaN"},
      {"tokensPerSecond", nullptr},
      {"progressPercentage", 66},
      {"estimatedRemainingSeconds", 4},
      {"evalStep", 5},
      {"evalLoss", "2.5"},
      {"lastUpdatedTime", "2026-01-01T00:00:00Z"},
      {"peakBytes", {{"params", 4}}},
      {"modelPath", "/model"},
      {"worldSize", 8},
      {"stopStep", 7},
      {"lastFailure", {{"time", "t"}, {"reason", "Killed"}, {"message", ""}, {"attempt", 1}}}};
  EXPECT_EQ(status_json(training), expected);
  EXPECT_EQ(field_value<&Training::step>(expected), 6);
  EXPECT_EQ(field_value<&Attempt::attempt>(expected), 2);
  EXPECT_EQ(field_value<&Step::loss>(expected), 1.5);
  EXPECT_EQ(field_value<&Step::lr>(expected), 1e-6);
  EXPECT_FALSE(field_value<&Step::grad_norm>(expected));
  EXPECT_TRUE(std::isnan(*field_value<&Step::loss_scale>(expected)));
  EXPECT_EQ(field_value<&Training::last_failure>(expected)->attempt, 1);
  EXPECT_EQ(field_value<&Memory::peak>(expected)->at("params"), 4);
}

TEST(Status, OfACheckpointOnlyWhatIsKnown) {
  const Checkpoint checkpoint{.step = 5, .bytes = 10, .seconds = 0.5, .path = "/c/5"};
  EXPECT_EQ(status_json(Saved{.time = "t", .world_size = 4, .checkpoint = checkpoint}),
            json({{"step", 5},
                  {"path", "/c/5"},
                  {"time", "t"},
                  {"worldSize", 4},
                  {"sizeBytes", 10},
                  {"durationSeconds", "0.5"}}));
  EXPECT_EQ(status_json(Saved{.time = "t", .checkpoint = Checkpoint{.step = 5}}),
            json({{"step", 5}, {"path", ""}, {"time", "t"}}));
  EXPECT_EQ(status_json(Restored{.time = "t", .resumed = Resumed{5, "/c/5"}}),
            json({{"step", 5}, {"path", "/c/5"}, {"time", "t"}}));
  EXPECT_EQ(status_json(Damaged{.time = "t", .attempt = 2, .damage = Damage{5, "m"}}),
            json({{"step", 5}, {"message", "m"}, {"time", "t"}, {"attempt", 2}}));
}

TEST(Status, AHangHasItsCollectiveAndTheRanksThatDidNotArrive) {
  const Failure hang{
      .rank = 2, .collective = "all_gather #9 (layer 3, 8 bytes)", .missing_ranks = "2, 5-7"};
  const json record = status_json(record_of(hang, "t"));
  EXPECT_EQ(record["collective"], "all_gather #9 (layer 3, 8 bytes)");
  EXPECT_EQ(record["missingRanks"], "2, 5-7");
  EXPECT_EQ(failure_from_status(record)->missing_ranks, "2, 5-7");
  EXPECT_FALSE(status_json(record_of(Failure{.rank = 2}, "t")).contains("missingRanks"));
}

TEST(Status, AFailureNamesASignalOrAnExitCodeOfTheRankToBlame) {
  const Failure failure{.attempt = 2, .worker = 1, .rank = 3, .signal = 9, .step = 7};
  EXPECT_EQ(status_json(record_of(failure, "t")), json({{"time", "t"},
                                                        {"attempt", 2},
                                                        {"step", 7},
                                                        {"reason", ""},
                                                        {"message", ""},
                                                        {"worker", 1},
                                                        {"rank", 3},
                                                        {"signal", 9}}));
  const auto exited = record_of({.rank = 0, .exit_code = 1, .last_words = "w"}, "t");
  EXPECT_EQ(exited.exit_code, 1);
  EXPECT_FALSE(exited.signal || exited.worker);
  EXPECT_EQ(exited.last_words, "w");
  EXPECT_FALSE(record_of({.exit_code = 1}, "t").exit_code) << "no rank is to blame";
  const auto read = failure_from_status(status_json(exited));
  ASSERT_TRUE(read);
  EXPECT_EQ(status_json(*read), status_json(exited));
  EXPECT_FALSE(failure_from_status(nullptr));
}

TEST(Status, OddOnesAreNoHarm) {
  for (const json& odd : {json(), json(5), json::array(), json{{"step", "x"}, {"loss", 1}}}) {
    EXPECT_FALSE(field_value<&Training::step>(odd));
    EXPECT_FALSE(field_value<&Step::loss>(odd));
    EXPECT_FALSE(field_value<&Training::last_failure>(odd));
  }
}

}  // namespace
}  // namespace dsj::report
