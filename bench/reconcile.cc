// What it costs to decide that nothing needs doing, for a training job of 10 workers: microseconds
// per pass, beside parsing one of the job's pods as the API server sends it.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "common/check.h"
#include "operator/decide/reconcile.h"

namespace dsj::op {
namespace {

constexpr int kWorkers = 10, kPasses = 20'000;

/// Carries out a plan on the observation itself, as caches would then see it.
void carry_out(const Plan& plan, Observed& observed, std::string& a_pod) {
  auto with_uid = [&](const Create& create) {
    Json object = create.object;
    object["metadata"]["uid"] = create.name + "-uid";
    return object;
  };
  for (const Create& create : plan.creates) {
    observed.children.push_back(child_view(with_uid(create)));
    observed.children.back().kind = create.kind;
  }
  for (const Create& create : plan.pods) {
    const Json object = with_uid(create);
    a_pod = object.dump();
    PodView pod = *pod_view(object);
    pod.phase = PodView::Phase::Running;
    pod.scheduled = pod.running = true;
    pod.node = "node-" + std::to_string(pod.worker);
    observed.nodes[pod.node] = {.ready = true};
    observed.pods.push_back(std::move(pod));
  }
  if (!plan.status.is_null()) observed.job->own_status = plan.status;
}

bool rests(const Plan& plan) {
  return plan.creates.empty() && plan.pods.empty() && plan.deletes.empty() && plan.status.is_null();
}

void run() {
  Json spec = Json::parse(R"({
    "deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto",
                             "zero_optimization": {"stage": 2}}},
    "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/tmp/out",
                 "maxSteps": 1000},
    "workers": {"slotsPerWorker": 1}})");
  spec["workers"]["replicas"] = kWorkers;
  Observed observed{.ns = "n", .name = "j"};
  observed.job = JobView{.ns = "n", .name = "j", .uid = "uid", .generation = 1, .spec = spec};
  observed.wanted = judge(observed.name, spec, std::nullopt, "");
  const Time now{std::chrono::seconds(1'800'000'000)};
  std::string a_pod;
  for (int i = 0; i < 10; ++i) {
    carry_out(reconcile(observed, now), observed, a_pod);
    observed.job->agent.attempt = 1;
    observed.job->agent.updated = now;
  }
  DSJ_CHECK(observed.pods.size() == kWorkers && rests(reconcile(observed, now)), "no rest");

  std::vector<double> passes, parses;
  for (int i = 0; i < kPasses; ++i) {
    passes.push_back(
        bench::seconds_of([&] { DSJ_CHECK(rests(reconcile(observed, now)), "%d", i); }));
    parses.push_back(bench::seconds_of([&] { DSJ_CHECK(!Json::parse(a_pod).empty(), "%d", i); }));
  }
  std::ranges::sort(passes);
  const double p50 = bench::median(passes), p99 = passes[passes.size() * 99 / 100];
  std::printf("no-op pass, %d pods, %d passes: p50 %.1f us, p99 %.1f us; %.2f of parsing one pod\n",
              kWorkers, kPasses, p50 * 1e6, p99 * 1e6, p50 / bench::median(parses));
}

}  // namespace
}  // namespace dsj::op

int main() {
  dsj::op::run();
}
