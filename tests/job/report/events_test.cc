#include "job/report/events.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dsj::report {
namespace {

using nlohmann::json;

/// A line of every kind as released agents and ranks write it. It must stay readable.
const std::vector<std::string> kEventLines = {
    R"({"event":"start","pid":7,"rank":1})",
    R"({"config":{"a":1},"event":"resolved","origins":[{"from":"f","path":"p","value":"v"}],"total_steps":9})",
    R"({"event":"resumed","path":"/c/5","step":5})",
    R"({"event":"step","grad_norm":0.5,"host_rss_bytes":4096,"loss":1.5,"loss_scale":1.0,"lr":1e-05,)"
    R"("skipped":false,"step":6,"step_seconds":0.25,"tokens":12,"tokens_per_second":48.0,"wire_bytes":64})",
    R"({"epoch":0.5,"event":"log","grad_norm":0.5,"learning_rate":1e-05,"loss":1.25,"step":6})",
    R"({"epoch":0.5,"eval_loss":2.5,"eval_runtime":0.5,"eval_samples":7,"eval_samples_per_second":14.0,)"
    R"("eval_targets":70,"event":"eval","step":6})",
    R"({"event":"note","text":"t"})",
    R"({"event":"memory","peak":{"master":8,"params":4},"total":12})",
    R"({"bytes":100,"event":"checkpoint","path":"/c/6","seconds":0.5,"step":6})",
    R"({"event":"exported","path":"/model"})",
    R"({"event":"error","message":"m","reason":"HostOutOfMemory"})",
    R"({"event":"warning","message":"w"})",
    R"({"event":"done","step":9})",
    R"({"event":"damage","message":"m","step":6})",
    R"({"cut_rows":3,"cut_tokens":40,"event":"cut_rows","max_seq_length":64,"rows":9,)"
    R"("rows_without_target":1,"step":0})"};

template <typename Kind>
Kind read(const std::string& line) {
  const auto found = event_from_line(line);
  EXPECT_TRUE(found && std::holds_alternative<Kind>(found->event)) << line;
  if (!found || !std::holds_alternative<Kind>(found->event)) return {};
  return std::get<Kind>(found->event);
}

TEST(Events, EveryKindIsReadAndWrittenAsItWas) {
  std::set<size_t> kinds;
  for (const auto& line : kEventLines) {
    const auto found = event_from_line(line);
    ASSERT_TRUE(found) << line;
    EXPECT_EQ(to_line(found->event), line + "\n");
    EXPECT_EQ(found->others, json::object());
    kinds.insert(found->event.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Event>);
}

TEST(Events, ValuesLieInTheirMembers) {
  const auto step = read<Step>(kEventLines[3]);
  EXPECT_EQ(step.step, 6);
  EXPECT_EQ(step.loss, 1.5);
  EXPECT_EQ(step.lr, 1e-5);
  EXPECT_EQ(step.skipped, false);
  EXPECT_EQ(step.wire_bytes, 64);
  const auto eval = read<Eval>(kEventLines[5]);
  EXPECT_EQ(eval.loss, 2.5);
  EXPECT_EQ(eval.rows, 7);
  EXPECT_EQ(eval.targets, 70);
  EXPECT_EQ(read<Log>(kEventLines[4]).lr, 1e-5);
  EXPECT_EQ(read<Memory>(kEventLines[7]).peak.at("params"), 4);
  EXPECT_EQ(read<RankError>(kEventLines[10]).reason, "HostOutOfMemory");
}

TEST(Events, AHeartbeatIsAStepAlone) {
  EXPECT_EQ(to_line(Step{.step = 3}), "{\"event\":\"step\",\"step\":3}\n");
}

TEST(Events, WhatIsNotFiniteIsAWordAndReadsBack) {
  const std::string line =
      to_line(Step{.step = 3, .loss = NAN, .lr = -INFINITY, .grad_norm = INFINITY});
  EXPECT_EQ(line,
            "{\"event\":\"step\",\"grad_norm\":\"Infinity\",\"loss\":\"NaN\",\"lr\":\"-Infinity\","
            "\"step\":3}\n");
  const Step step = read<Step>(line);
  EXPECT_TRUE(step.loss && std::isnan(*step.loss));
  EXPECT_EQ(step.grad_norm, INFINITY);
  EXPECT_EQ(step.lr, -INFINITY);
  EXPECT_FALSE(read<Eval>(to_line(Eval{.step = 1})).loss) << "not known is another matter";
  EXPECT_FALSE(read<Step>("{\"event\":\"step\",\"step\":1,\"loss\":null}").loss);
}

/// json.dumps writes NaN as no JSON has it, and C's printf in small letters.
TEST(Events, OtherProgramsWordsAreRead) {
  const Step step = read<Step>(
      R"({"event": "step", "step": 1, "loss": NaN, "grad_norm": -Infinity, "lr": "inf"})");
  EXPECT_TRUE(step.loss && std::isnan(*step.loss));
  EXPECT_EQ(step.grad_norm, -INFINITY);
  EXPECT_EQ(step.lr, INFINITY);
  const auto note = read<Note>(R"({"event": "note", "text": "a \"NaN\" and NaN", "x": NaN})");
  EXPECT_EQ(note.text, "a \"NaN\" and NaN");
  EXPECT_FALSE(event_from_line(R"({"event": "step", "step": NaN})"));
  EXPECT_FALSE(read<Step>(R"({"event":"step","step":1,"loss":"none"})").loss);
}

TEST(Events, GarbageIsNoEvent) {
  for (const char* line :
       {"", "hello", "[1]", "{\"event\":5}", "{\"event\":\"dance\"}", "{\"event\":\"step\"}",
        "{\"event\":\"step\",\"step\":-1}", "{\"event\":\"step\",\"step\":\"1\"}",
        "{\"event\":\"step\",\"step\":1", "\xff\xfe", "{\"step\":1}"}) {
    EXPECT_FALSE(event_from_line(line)) << line;
  }
}

TEST(Events, OtherNamesAndTypesAreNoHarm) {
  const auto found = event_from_line(
      R"({"event":"step","step":4,"loss":"low","tokens":8.0,"accuracy":0.5,"wire_bytes":null})");
  ASSERT_TRUE(found);
  const auto& step = std::get<Step>(found->event);
  EXPECT_EQ(step.step, 4);
  EXPECT_FALSE(step.loss);
  EXPECT_EQ(step.tokens, 8) << "Python writes a whole number so";
  EXPECT_EQ(found->others, json({{"loss", "low"}, {"accuracy", 0.5}}));
}

TEST(MetricsLine, HasTheFixedNamesInOrderThenTheOthers) {
  const Step step{.step = 3,
                  .loss = 1.5,
                  .lr = 1e-5,
                  .grad_norm = INFINITY,
                  .loss_scale = 1,
                  .skipped = true,
                  .tokens = 12,
                  .tokens_per_second = 48,
                  .step_seconds = 0.25,
                  .wire_bytes = 64,
                  .host_rss_bytes = 4096};
  EXPECT_EQ(
      metrics_line(step, json::object()),
      R"({"step":3,"loss":1.5,"lr":1e-05,"grad_norm":"Infinity","loss_scale":1.0,"skipped":true,)"
      R"("tokens":12,"tokens_per_second":48.0,"step_seconds":0.25,"wire_bytes":64,)"
      R"("host_rss_bytes":4096})"
      "\n");
  EXPECT_EQ(metrics_line(Step{.step = 4}, {{"accuracy", 0.5}, {"loss", "low"}}),
            R"({"step":4,"loss":"low","lr":null,"grad_norm":null,"loss_scale":null,"skipped":null,)"
            R"("tokens":null,"tokens_per_second":null,"step_seconds":null,"wire_bytes":null,)"
            R"("host_rss_bytes":null,"accuracy":0.5})"
            "\n");
}

/// What an objective measures: names of the line itself, which a reader passes on.
TEST(Events, AnObjectivesMetricsAreNamesOfTheirLine) {
  const Step step{.step = 2, .loss = 0.5, .metrics = {{{"rewards/chosen", 1.5}, {"kl", NAN}}}};
  const std::string line = to_line(step);
  EXPECT_NE(line.find(R"("rewards/chosen":1.5)"), std::string::npos) << line;
  const auto read = event_from_line(line);
  ASSERT_TRUE(read);
  EXPECT_FALSE(std::get<Step>(read->event).metrics);
  EXPECT_EQ(read->others, json({{"rewards/chosen", 1.5}, {"kl", "NaN"}}));
  const std::string own = metrics_line(step, json::object());
  EXPECT_EQ(own, metrics_line(std::get<Step>(read->event), read->others));
  EXPECT_TRUE(own.ends_with("\"host_rss_bytes\":null,\"kl\":\"NaN\",\"rewards/chosen\":1.5}\n"))
      << own;
  const Eval eval{.step = 2, .loss = 0.5, .metrics = {{{"eval_rewards/chosen", 1.5}}}};
  EXPECT_EQ(metrics_line(eval, json::object()),
            "{\"step\":2,\"eval_loss\":0.5,\"eval_rewards/chosen\":1.5}\n");
}

TEST(MetricsLine, ADifficultyIsNamedWhereThereIsOne) {
  const Step step{.step = 2, .difficulty = {{{"random_ltd", 64}, {"seqlen", 16}}}};
  const std::string line = metrics_line(step, json::object());
  EXPECT_TRUE(line.ends_with(R"("host_rss_bytes":null,"difficulty":{"random_ltd":64,"seqlen":16}})"
                             "\n"))
      << line;
  const auto read = event_from_line(to_line(step));
  ASSERT_TRUE(read);
  EXPECT_EQ(std::get<Step>(read->event).difficulty, step.difficulty);
}

TEST(MetricsLine, OfAnEvaluationAlwaysHasItsLoss) {
  EXPECT_EQ(metrics_line(Eval{.step = 3, .loss = 0.5, .rows = 7}, {{"bleu", 2}}),
            "{\"step\":3,\"eval_loss\":0.5,\"eval_samples\":7,\"bleu\":2}\n");
  EXPECT_EQ(metrics_line(Eval{.step = 3}, json::object()), "{\"step\":3,\"eval_loss\":null}\n");
  const auto all = event_from_line(kEventLines[5]);
  EXPECT_EQ(metrics_line(std::get<Eval>(all->event), all->others),
            R"({"step":6,"eval_loss":2.5,"epoch":0.5,"eval_runtime":0.5,"eval_samples":7,)"
            R"("eval_samples_per_second":14.0,"eval_targets":70})"
            "\n");
}

}  // namespace
}  // namespace dsj::report
