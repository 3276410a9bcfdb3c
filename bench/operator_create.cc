// How long the operator takes to make pods, beside a loop that makes the same pods and nothing else.
// bench_operator_create           on a server in memory whose requests take 20 ms, 16 at a time
// bench_operator_create server    on the server of $KUBECONFIG, from the root of the repository:
//     tests/cluster/cluster.py run --api build/bin/bench_operator_create server
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <semaphore>
#include <sstream>
#include <thread>

#include "bench/operator_running.h"
#include "bench/timing.h"
#include "job/contract.h"
#include "kube/api_transport.h"
#include "kube/kubeconfig.h"
#include "operator/act/resources.h"
#include "operator/observe/pace.h"
#include "tests/kube/fake_api_server.h"

namespace dsj::op::bench {
namespace {

using dsj::bench::median;
using dsj::bench::seconds_of;
using kube::testing::FakeApiServer;
using std::chrono::milliseconds;

constexpr milliseconds kLatency{20};
constexpr int kAtOnce = 16;

/// A server whose requests take time, and which carries out so many at once. Watches cost nothing.
class Slow final : public kube::Transport {
 public:
  explicit Slow(kube::Transport& server) : server_(server) {}
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    turns_.acquire();
    std::this_thread::sleep_for(kLatency);
    turns_.release();
    return server_.call(request, cancel);
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    return server_.open(request, cancel);
  }

 private:
  kube::Transport& server_;
  std::counting_semaphore<kAtOnce> turns_{kAtOnce};
};

/// Notes what passes through.
class Noted final : public kube::Transport {
 public:
  explicit Noted(kube::Transport& server) : server_(server) {}
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    std::expected<kube::Response, kube::NetError> answer;
    const double seconds = seconds_of([&] { answer = server_.call(request, cancel); });
    const bool made_pod = request.method == "POST" && request.path.ends_with("/pods");
    const std::lock_guard lock(mutex_);
    Kind& kind = kinds_[request.method + " " + collection_of(request.path)];
    ++kind.count;
    kind.seconds += seconds;
    kind.bytes += static_cast<double>(request.body.size());
    if (!made_pod || !answer || answer->status != 201) return answer;
    pod_ = request.body;
    ++pods_;
    return answer;
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    return server_.open(request, cancel);
  }

  void wait_for_pods(int64_t pods) const {
    while (pods_ < pods) std::this_thread::sleep_for(milliseconds(1));
  }
  int64_t pods() const { return pods_; }
  int64_t requests() const {
    const std::lock_guard lock(mutex_);
    int64_t all = 0;
    for (const auto& [name, kind] : kinds_) all += kind.count;
    return all;
  }
  /// As the operator sent it, of nobody's job.
  Json bare_pod() const {
    const std::lock_guard lock(mutex_);
    Json pod = Json::parse(pod_);
    pod["metadata"] = {{"labels", pod["metadata"]["labels"]}};
    return pod;
  }
  void print_kinds() const {
    const std::lock_guard lock(mutex_);
    std::printf("\n| request | count | mean ms | mean bytes sent |\n|---|---|---|---|\n");
    for (const auto& [name, kind] : kinds_) {
      std::printf("| %s | %lld | %.1f | %.0f |\n", name.c_str(), static_cast<long long>(kind.count),
                  1000 * kind.seconds / static_cast<double>(kind.count),
                  kind.bytes / static_cast<double>(kind.count));
    }
    std::printf("\n");
  }

 private:
  struct Kind {
    int64_t count = 0;
    double seconds = 0, bytes = 0;
  };
  /// ".../namespaces/n/pods/p/status?x" is "pods/status".
  static std::string collection_of(const std::string& path) {
    std::istringstream words(path.substr(0, path.find('?')));
    std::vector<std::string> parts;
    for (std::string word; std::getline(words, word, '/');) parts.push_back(word);
    const auto at = std::ranges::find(parts, "namespaces");
    if (parts.end() - at < 3) return parts.back();
    return at[2] + (parts.end() - at > 4 ? "/" + at[4] : "");
  }

  kube::Transport& server_;
  mutable std::mutex mutex_;
  std::map<std::string, Kind> kinds_;
  std::atomic<int64_t> pods_ = 0;
  std::string pod_;
};

void at_once(int count, const std::function<void(int)>& task) {
  std::atomic<int> next = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < std::min(count, kAtOnce); ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < count; i = next++) task(i);
    });
  }
}

template <typename T>
void must(const kube::ApiResult<T>& done) {
  DSJ_CHECK(done.has_value(), "%s", done.error().to_string().c_str());
}

/// Where the pods of one measurement are made.
class Place {
 public:
  virtual ~Place() = default;
  virtual kube::Transport& server() = 0;
  const std::string ns = "create-" + std::to_string(++places_);

 private:
  static inline int places_ = 0;
};

class InMemory final : public Place {
 public:
  InMemory() { memory_.serve(jobs_resource(), true); }
  kube::Transport& server() override { return slow_; }

 private:
  FakeApiServer memory_;
  Slow slow_{memory_};
};

class OnServer final : public Place {
 public:
  explicit OnServer(kube::Transport& server) : server_(server) {
    Json object;
    object["metadata"]["name"] = ns;
    send("POST", "/api/v1/namespaces", "application/json", object.dump());
    std::ifstream file("crds/deepspeedjobs.yaml");
    const std::string definition{std::istreambuf_iterator<char>(file), {}};
    send("PATCH",
         "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
         "deepspeedjobs.training.dsj.dev?fieldManager=bench&force=true",
         "application/apply-patch+yaml", definition);
    while (server_.call({.path = jobs_resource().collection(ns)}, {})->status != 200) {
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
  kube::Transport& server() override { return server_; }

 private:
  void send(const char* method, const std::string& path, const char* type, std::string body) {
    const auto answer = server_.call(
        {.method = method, .path = path, .content_type = type, .body = std::move(body)}, {});
    DSJ_CHECK(answer && answer->status < 300, "%s", answer ? answer->body.c_str() : "no answer");
  }
  kube::Transport& server_;
};

void submit(kube::Client& user, const std::string& ns, const std::string& name, int workers) {
  must(user.create(jobs_resource(), ns, job_of(ns, name, workers)));
}

/// Seconds of a loop with as many calls at a time for pods as the operator's, and nothing else.
double raw_loop(Place& place, const Json& pod, const std::string& name, int pods) {
  kube::Client client(place.server(), kube::system_clock());
  return seconds_of([&] {
    at_once(pods, [&](int i) {
      Json own = pod;
      own["metadata"]["name"] = name + "-" + std::to_string(i);
      must(client.create(kube::resources::pods(), place.ns, own));
    });
  });
}

void print_row(const std::string& what, double ours, double raw, int64_t requests, int pods) {
  double load = 0;
  (void)getloadavg(&load, 1);
  std::printf("| %s | %.3f | %.3f | %.2f | %lld | %.2f | %.1f |\n", what.c_str(), ours, raw,
              ours / raw, static_cast<long long>(requests), static_cast<double>(requests) / pods,
              load);
  std::fflush(stdout);
}

/// `jobs` jobs submitted at once. Returns what was sent meanwhile.
void measure_create(Place& place, int jobs, int workers, bool with_kinds) {
  kube::Client user(place.server(), kube::system_clock());
  Noted noted(place.server());
  const int pods = jobs * workers;
  double ours = 0;
  int64_t requests = 0;
  {
    const Running running(noted, place.ns);
    submit(user, place.ns, "warm", 1);
    noted.wait_for_pods(1);
    std::this_thread::sleep_for(milliseconds(500));
    const int64_t before = noted.requests();
    ours = seconds_of([&] {
      at_once(jobs, [&](int i) { submit(user, place.ns, "job-" + std::to_string(i), workers); });
      noted.wait_for_pods(1 + pods);
    });
    requests = noted.requests() - before;
  }
  const double raw = raw_loop(place, noted.bare_pod(), "raw", pods);
  print_row(std::to_string(jobs) + " x " + std::to_string(workers), ours, raw, requests, pods);
  if (with_kinds) noted.print_kinds();
}

/// One job after the other.
void measure_small(Place& place, int runs, int workers) {
  kube::Client user(place.server(), kube::system_clock());
  Noted noted(place.server());
  std::vector<double> ours, raw;
  int64_t requests = 0;
  {
    const Running running(noted, place.ns);
    for (int run = 0; run < runs; ++run) {
      const int64_t before = noted.requests(), pods = noted.pods();
      ours.push_back(seconds_of([&] {
        submit(user, place.ns, "job-" + std::to_string(run), workers);
        noted.wait_for_pods(pods + workers);
      }));
      requests = noted.requests() - before;
      std::this_thread::sleep_for(milliseconds(300));
    }
  }
  for (int run = 0; run < runs; ++run) {
    raw.push_back(raw_loop(place, noted.bare_pod(), "raw-" + std::to_string(run), workers));
  }
  print_row("1 x " + std::to_string(workers) + ", median of " + std::to_string(runs), median(ours),
            median(raw), requests, workers);
}

/// Seconds from the first deletion of 30 pods of 64 to the last of their successors.
void measure_replace(Place& place, int runs) {
  constexpr int kPods = 64, kDeleted = 30;
  kube::Client user(place.server(), kube::system_clock());
  Noted noted(place.server());
  const Running running(noted, place.ns);
  submit(user, place.ns, "job", kPods);
  noted.wait_for_pods(kPods);
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) {
    std::this_thread::sleep_for(milliseconds(1500));
    std::vector<std::string> names;
    must(user.list(kube::resources::pods(), place.ns, {},
                   [&](const Json& pod) { names.push_back(pod["metadata"]["name"]); }));
    DSJ_CHECK(names.size() == kPods, "%zu pods", names.size());
    const int64_t before = noted.pods();
    seconds.push_back(seconds_of([&] {
      at_once(kDeleted, [&](int i) {
        must(user.remove(kube::resources::pods(), place.ns, names[static_cast<size_t>(i)],
                         {.grace_seconds = 0}));
      });
      noted.wait_for_pods(before + kDeleted);
    }));
  }
  std::printf("\n%d of %d deleted pods were back after %.2f s, median of %d\n", kDeleted, kPods,
              median(seconds), runs);
  std::fflush(stdout);
}

}  // namespace
}  // namespace dsj::op::bench

int main(int argc, char** argv) {
  using namespace dsj;
  using namespace dsj::op::bench;
  std::unique_ptr<kube::Transport> server;
  if (argc > 1 && std::string(argv[1]) == "server") {
    const auto access = kube::find_access();
    DSJ_CHECK(access.has_value(), "%s", access.error().to_string().c_str());
    const auto calls = static_cast<size_t>(op::Options().workers * (op::kCreatesAtOnce + 1));
    auto made = kube::make_api_transport(*access, calls);
    DSJ_CHECK(made.has_value(), "%s", made.error().to_string().c_str());
    server = std::move(*made);
  }
  const auto place = [&]() -> std::unique_ptr<Place> {
    if (!server) return std::make_unique<InMemory>();
    return std::make_unique<OnServer>(*server);
  };
  std::printf(
      "| jobs x workers | s until all pods | s of a loop of bare pods | ratio | requests meanwhile "
      "| per pod | load |\n|---|---|---|---|---|---|---|\n");
  measure_small(*place(), 15, 8);
  measure_create(*place(), 100, 4, true);
  measure_create(*place(), 1, 2048, false);
  measure_replace(*place(), 5);
}
