#include "agent/status/agent_metrics.h"

#include <gtest/gtest.h>

#include "tests/common/http/raw_http.h"

namespace dsj::agent {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(AgentMetrics, ShowWhatTheReportsSaid) {
  AgentMetrics metrics;
  metrics.take(report::Attempt{.attempt = 2, .world_size = 8});
  metrics.take(report::Resolved{.total_steps = 100});
  metrics.take(report::Step{.step = 7,
                            .loss = 1.5,
                            .lr = 0.25,
                            .grad_norm = 3,
                            .tokens_per_second = 1000,
                            .step_seconds = 0.5,
                            .wire_bytes = 4096});
  metrics.take(report::Step{.step = 8});
  metrics.take(report::Checkpoint{.step = 5, .seconds = 0.25});
  metrics.take(report::Failure{.reason = "Killed"});
  metrics.take(report::Failure{.reason = "Killed"});
  metrics.take(report::Stragglers{.count = 3, .who = "rank 1 and others"});
  metrics.node_problems(2);
  metrics.turned(4, nullptr);
  const std::string text = metrics.text();
  EXPECT_TRUE(has_line(text, "deepspeedjob_attempt 2")) << text;
  EXPECT_TRUE(has_line(text, "deepspeedjob_world_size 8"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_step 8"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_total_steps 100"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_loss 1.5")) << "the last that was finite";
  EXPECT_TRUE(has_line(text, "deepspeedjob_learning_rate 0.25"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_gradient_norm 3"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_step_seconds 0.5"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_step_wire_bytes 4096"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_checkpoint_step 5"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_checkpoint_duration_seconds 0.25"));
  EXPECT_NE(text.find("\ndeepspeedjob_checkpoint_age_seconds "), std::string::npos);
  EXPECT_EQ(text.find("\ndeepspeedjob_checkpoint_age_seconds 0\n"), std::string::npos);
  EXPECT_TRUE(has_line(text, "deepspeedjob_ranks_running 4"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_stragglers 3"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_node_problems 2"));
  EXPECT_TRUE(has_line(text, "deepspeedjob_attempt_failures_total{reason=\"Killed\"} 2"));
}

TEST(AgentMetrics, OverHttp) {
  auto metrics = std::make_shared<AgentMetrics>();
  const auto server = HttpListener::open("127.0.0.1", 0, {}, metrics);
  ASSERT_TRUE(server);
  const auto get = [&](const std::string& line) {
    return raw_http((*server)->port(), line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  };
  EXPECT_NE(get("GET /metrics").find("deepspeedjob_step 0"), std::string::npos);
  EXPECT_TRUE(get("GET /healthz").starts_with("HTTP/1.1 200 OK"));
  EXPECT_TRUE(get("GET /other").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(get("DELETE /metrics").starts_with("HTTP/1.1 405"));
}

}  // namespace
}  // namespace dsj::agent
