#include "operator/serve/metrics.h"

#include <gmock/gmock.h>

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Time kStart{Seconds(1'767'225'600)};

class MetricsTest : public ::testing::Test {
 protected:
  /// The operator writes `after` over what it wrote last.
  void pass(const std::function<void(OwnStatus&)>& change) {
    OwnStatus after = status_;
    change(after);
    metrics_.transition({.name = "j", .own_status = to_json(status_)}, {.status = to_json(after)});
    status_ = after;
  }
  static void set(OwnStatus& status, const char* type, bool yes, const char* reason, Time since) {
    set_condition(status.conditions, {.type = type,
                                      .status = yes ? "True" : "False",
                                      .reason = reason,
                                      .message = "",
                                      .since = since});
  }
  static void fail(OwnStatus& status, const char* reason, int64_t attempt) {
    status.last_failure = {{"reason", reason}, {"attempt", attempt}};
    status.failure_history.push_back(status.last_failure);
    ++status.restarts.total;
  }
  std::string text() { return metrics_.text(cache_, queue_, true); }

  OwnStatus status_;
  Metrics metrics_;
  Queue queue_;
  Cache cache_{[](const std::string&) {}};
};

TEST_F(MetricsTest, AJobIsCountedWhenItIsTakenUpAndWhenItEnds) {
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_created_total 0"));
  pass([](OwnStatus& s) { s.phase = "Pending"; });
  pass([](OwnStatus& s) { s.phase = "Starting"; });
  pass([](OwnStatus& s) { set(s, "Complete", true, "Completed", kStart); });
  pass([](OwnStatus& s) { s.workers = "0/2"; });
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_created_total 1"));
  EXPECT_THAT(
      text(),
      HasSubstr("deepspeedjob_completed_total{reason=\"Completed\",result=\"Complete\"} 1"));
}

TEST_F(MetricsTest, FailuresByKindAndEachOnce) {
  pass([](OwnStatus& s) { fail(s, "NodeLost", 1); });
  pass([](OwnStatus& s) { s.workers = "1/2"; });
  pass([](OwnStatus& s) {
    fail(s, "HangDetected", 2);
    fail(s, "NodeLost", 2);
  });
  pass([](OwnStatus& s) { set(s, "Progressing", false, "NoReport", kStart); });
  pass([](OwnStatus& s) { s.workers = "2/2"; });
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_node_failures_total 2"));
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_hangs_total 2"));
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_restarts_total{reason=\"NodeLost\"} 3"))
      << "of one pass by the last of its failures";
}

TEST_F(MetricsTest, DowntimeIsFromOneAttemptToTheNext) {
  pass([](OwnStatus& s) { set(s, "Running", false, "NotStarted", kStart); });
  pass([](OwnStatus& s) { set(s, "Running", true, "AttemptRunning", kStart + Seconds(5)); });
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_restart_downtime_seconds_count 0"));
  pass([](OwnStatus& s) { set(s, "Running", false, "Restarting", kStart + Seconds(60)); });
  pass([](OwnStatus& s) { set(s, "Running", true, "AttemptRunning", kStart + Seconds(67)); });
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_restart_downtime_seconds_count 1"));
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_restart_downtime_seconds_sum 7"));
}

TEST_F(MetricsTest, RequestsByVerbAndCode) {
  metrics_.requested("PATCH", "200");
  metrics_.requested("PATCH", "200");
  metrics_.requested("PATCH", "409");
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_api_requests_total{code=\"200\",verb=\"PATCH\"} 2"));
  EXPECT_THAT(text(), HasSubstr("deepspeedjob_api_requests_total{code=\"409\",verb=\"PATCH\"} 1"));
}

/// Prometheus keeps a series for each value of a label, for ever.
TEST_F(MetricsTest, WordsOfAUsersProgramMakeNoSeries) {
  for (int i = 0; i < 100; ++i) {
    pass([&](OwnStatus& s) { fail(s, ("Batch" + std::to_string(i)).c_str(), i); });
  }
  pass([](OwnStatus& s) { fail(s, "OOMKilled", 101); });
  pass([](OwnStatus& s) { set(s, "Failed", true, "MyOwnReason", kStart); });
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr("deepspeedjob_restarts_total{reason=\"Other\"} 100"));
  EXPECT_THAT(all, HasSubstr("deepspeedjob_restarts_total{reason=\"OOMKilled\"} 1"));
  EXPECT_THAT(all, HasSubstr("completed_total{reason=\"Other\",result=\"Failed\"} 1"));
  EXPECT_THAT(all, Not(HasSubstr("Batch")));
}

}  // namespace
}  // namespace dsj::op::testing
