#include "agent/status/agent_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "job/failure_reasons.h"

namespace dsj::agent {
namespace {

constexpr int64_t kAliveMs = 30'000;

int64_t now_ms() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct AgentMetrics::Families {
  prometheus::Registry registry;

  prometheus::Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge()
        .Name(std::string("deepspeedjob_") + name)
        .Help(help)
        .Register(registry)
        .Add({});
  }
  prometheus::Family<prometheus::Counter>& counter(const char* name, const char* help) {
    return prometheus::BuildCounter()
        .Name(std::string("deepspeedjob_") + name)
        .Help(help)
        .Register(registry);
  }

  prometheus::Gauge& ranks = gauge("ranks_running", "Rank processes of this worker");
  prometheus::Gauge& attempt = gauge("attempt", "Number of the newest attempt");
  prometheus::Gauge& world = gauge("world_size", "Ranks of the newest attempt");
  prometheus::Gauge& step = gauge("step", "Last optimizer step done");
  prometheus::Gauge& total = gauge("total_steps", "Steps of the whole job");
  prometheus::Gauge& loss = gauge("loss", "Loss of the last step");
  prometheus::Gauge& speed =
      gauge("tokens_per_second", "Tokens per second of all ranks in the last step");
  prometheus::Gauge& rate = gauge("learning_rate", "Learning rate of the last step");
  prometheus::Gauge& norm =
      gauge("gradient_norm", "Gradient norm of the last step, before clipping");
  prometheus::Gauge& duration = gauge("step_seconds", "Duration of the last step");
  prometheus::Gauge& wire = gauge("step_wire_bytes", "Bytes that rank 0 sent in the last step");
  prometheus::Gauge& saved_step = gauge("checkpoint_step", "Step of the newest checkpoint");
  prometheus::Gauge& saved_time =
      gauge("checkpoint_timestamp_seconds", "When the newest checkpoint was published");
  prometheus::Gauge& saved_age =
      gauge("checkpoint_age_seconds", "Time since the newest checkpoint that this agent has seen");
  prometheus::Gauge& save_seconds =
      gauge("checkpoint_duration_seconds", "Duration of saving the newest checkpoint");
  prometheus::Gauge& stragglers =
      gauge("stragglers", "Ranks that slow down the others in each step");
  prometheus::Gauge& node_problems =
      gauge("node_problems", "Problems that the last check of this worker's node found");
  prometheus::Family<prometheus::Counter>& failures =
      counter("attempt_failures_total", "Attempts that failed, by reason");
  prometheus::Family<prometheus::Counter>& writes =
      counter("status_patches_total", "Writes of the job's status, by result");
  prometheus::Counter& stored = writes.Add({{"result", "stored"}});
  prometheus::Counter& conflicts = writes.Add({{"result", "conflict"}});
  prometheus::Counter& failed = writes.Add({{"result", "failed"}});
};

AgentMetrics::AgentMetrics() : families_(std::make_unique<Families>()), turned_at_(now_ms()) {}
AgentMetrics::~AgentMetrics() = default;

void AgentMetrics::take(const report::Report& report) {
  const auto set = [](prometheus::Gauge& gauge, auto value) {
    if (value) gauge.Set(static_cast<double>(*value));
  };
  Families& all = *families_;
  std::visit(report::overloaded{
                 [&](const report::Attempt& attempt) {
                   all.attempt.Set(static_cast<double>(attempt.attempt));
                   all.world.Set(static_cast<double>(attempt.world_size));
                   all.stragglers.Set(0);
                 },
                 [&](const report::Resolved& resolved) { set(all.total, resolved.total_steps); },
                 [&](const report::Step& step) {
                   all.step.Set(static_cast<double>(step.step));
                   set(all.loss, step.loss);
                   set(all.speed, step.tokens_per_second);
                   set(all.rate, step.lr);
                   set(all.norm, step.grad_norm);
                   set(all.duration, step.step_seconds);
                   set(all.wire, step.wire_bytes);
                 },
                 [&](const report::Checkpoint& saved) {
                   all.saved_step.Set(static_cast<double>(saved.step));
                   set(all.save_seconds, saved.seconds);
                   all.saved_time.Set(seconds_since_1970());
                 },
                 [&](const report::Stragglers& told) {
                   all.stragglers.Set(static_cast<double>(told.count));
                 },
                 [&](const report::Failure& failure) {
                   all.failures.Add({{"reason", reason_label(failure.reason)}}).Increment();
                 },
                 [](const auto&) {}},
             report);
}

void AgentMetrics::node_problems(size_t count) {
  families_->node_problems.Set(static_cast<double>(count));
}

void AgentMetrics::turned(int ranks_running, const StatusPublisher* publisher) {
  turned_at_ = now_ms();
  families_->ranks.Set(ranks_running);
  if (!publisher) return;
  const auto counts = publisher->counts();
  const auto raise = [](prometheus::Counter& counter, int64_t to) {
    if (static_cast<double>(to) > counter.Value()) {
      counter.Increment(static_cast<double>(to) - counter.Value());
    }
  };
  raise(families_->stored, counts.stored);
  raise(families_->conflicts, counts.conflicts);
  raise(families_->failed, counts.failures);
}

std::string AgentMetrics::text() const {
  const double saved = families_->saved_time.Value();
  if (saved > 0) families_->saved_age.Set(seconds_since_1970() - saved);
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

std::optional<HttpAnswer> AgentMetrics::refuse(const HttpHead& head) {
  if (head.path != "/metrics" && head.path != "/healthz") return HttpAnswer{404, "no such path"};
  if (head.method != "GET") return HttpAnswer{405, "GET is expected"};
  return std::nullopt;
}

HttpAnswer AgentMetrics::answer(const HttpHead& head, const std::string&) {
  if (head.path == "/metrics") return {200, text(), kPrometheusText};
  const int64_t silent = now_ms() - turned_at_;
  if (silent < kAliveMs) return {200, "ok\n"};
  return {503, "the agent's loop has not run for " + std::to_string(silent / 1000) + " s\n"};
}

}  // namespace dsj::agent
