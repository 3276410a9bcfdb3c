// What a large cluster costs the operator in memory. bench_operator_scale [JOBS WORKERS NODES]
//
// The real operator with JOBS jobs of WORKERS running pods each. The server keeps nothing: it makes each page up from
// the objects of one job, so that the process has only the operator's memory.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "bench/operator_running.h"
#include "job/contract.h"
#include "operator/act/resources.h"
#include "tests/kube/fake_api_server.h"

namespace dsj::op {
namespace {

using bench::Running;
using kube::testing::FakeApiServer;
using std::chrono::milliseconds;

constexpr char kNs[] = "scale", kJob[] = "job-templ", kNode[] = "node-0001";

/// An operator on a server in memory, and kubelets that let every pod run.
class Cluster {
 public:
  Cluster() { server.serve(jobs_resource(), true); }
  void submit(const std::string& name, int workers) {
    const auto made = user_.create(jobs_resource(), kNs, bench::job_of(kNs, name, workers));
    DSJ_CHECK(made.has_value(), "%s", made.error().to_string().c_str());
  }
  /// Until `pods` pods run and the operator has asked for nothing more for two seconds.
  void settle(size_t pods) {
    std::set<std::string> running;
    int64_t last = -1;
    for (int quiet = 0; quiet < 4;) {
      std::this_thread::sleep_for(milliseconds(500));
      for (const auto& pod : server.shown(kube::resources::pods())) {
        const std::string name = (*pod)["metadata"]["name"];
        if (!running.insert(name).second) continue;
        server.edit(kube::resources::pods(), kNs, name, [](Json& object) { runs(object); });
      }
      for (const auto& job : server.shown(jobs_resource())) begin(*job);
      const int64_t now = requests();
      quiet = now == last && running.size() == pods ? quiet + 1 : 0;
      last = now;
    }
  }
  int64_t requests() const {
    int64_t all = 0;
    for (const char* method : {"GET", "POST", "PATCH", "PUT", "DELETE"}) {
      all += server.requests(method);
    }
    return all;
  }

  FakeApiServer server;

 private:
  static void runs(Json& pod) {
    pod["spec"]["nodeName"] = kNode;
    Json conditions = Json::array();
    for (const char* type : {"PodScheduled", "Ready", "Initialized"}) {
      conditions.push_back({{"type", type}, {"status", "True"}});
    }
    pod["status"] = {
        {"phase", "Running"},
        {"conditions", conditions},
        {"containerStatuses",
         Json::array({{{"name", contract::kContainerName},
                       {"ready", true},
                       {"state", {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}}}}})}};
  }
  /// As worker 0's agent says it, once the operator has written its part.
  void begin(const Json& job) {
    if (!job.contains("status") || job["status"].contains("training")) return;
    server.edit(jobs_resource(), kNs, job["metadata"]["name"], [](Json& object) {
      object["status"]["training"] = {
          {"attempt", 1}, {"step", 10}, {"lastUpdatedTime", "2126-01-01T00:00:00Z"}};
    });
  }

  kube::Client user_{server, kube::system_clock()};
  const Running running_{server, kNs};
};

/// Objects of one running job, as text, by collection.
using Templates = std::map<std::string, std::vector<std::string>>;

void write_templates(const std::string& file, int workers) {
  Cluster cluster;
  cluster.submit(kJob, workers);
  cluster.settle(static_cast<size_t>(workers));
  Json all;
  using namespace kube::resources;
  for (const kube::Resource& kind : {jobs_resource(), pods(), config_maps(), services(), roles(),
                                     role_bindings(), service_accounts(), network_policies()}) {
    for (const auto& shown : cluster.server.shown(kind)) {
      Json object = *shown;
      // A real server's objects say who owns each field, which is a third of them.
      const Json fields = {{"f:spec", object.value("spec", Json::object())}};
      Json& metadata = object["metadata"];
      metadata["managedFields"] =
          Json::array({{{"manager", "dsj-operator"}, {"fieldsV1", fields}}});
      metadata["uid"] = metadata["uid"].get<std::string>() + "-" + kJob;
      if (metadata.contains("ownerReferences")) {
        for (Json& owner : metadata["ownerReferences"]) {
          owner["uid"] = owner["uid"].get<std::string>() + "-" + kJob;
        }
      }
      all[kind.plural].push_back(object.dump());
    }
  }
  std::ofstream(file) << all.dump();
}

/// Tells nothing until it is cancelled.
struct Silence final : kube::LineStream {
  explicit Silence(kube::Cancel cancel) : cancel_(std::move(cancel)) {}
  std::expected<std::optional<std::string>, kube::NetError> next(milliseconds idle) override {
    const bool over = cancel_.wait_for(idle);
    return std::unexpected(kube::NetError{
        over ? kube::NetError::Kind::Cancelled : kube::NetError::Kind::Timeout, "quiet"});
  }
  const kube::Cancel cancel_;
};

class MadeUp final : public kube::Transport {
 public:
  MadeUp(Templates templates, int jobs, int nodes)
      : templates_(std::move(templates)), jobs_(jobs), nodes_(nodes) {
    Json node = {{"metadata", {{"name", kNode}, {"uid", "n"}, {"resourceVersion", "7"}}}};
    node["status"]["conditions"] = Json::array({{{"type", "Ready"}, {"status", "True"}}});
    for (int i = 0; i < 50; ++i) {
      const std::string name = "registry.example/team/image-" + std::to_string(i);
      const Json names = {name + "@sha256:" + std::string(64, 'a'), name + ":v1"};
      node["status"]["images"].push_back({{"names", names}, {"sizeBytes", i}});
    }
    node_ = node.dump();
  }

  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel&) override {
    if (request.method != "GET") {
      ++writes;
      return kube::Response{.status = 500};
    }
    if (!request.path.contains("limit=")) {
      ++reads;
      return kube::Response{.status = 404};
    }
    ++pages;
    const std::string path = request.path.substr(0, request.path.find('?'));
    return kube::Response{
        .status = 200,
        .body = page(path.substr(path.rfind('/') + 1), number(request.path, "limit="),
                     number(request.path, "continue="))};
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request&,
                                                           const kube::Cancel& cancel) override {
    return kube::StreamResponse{.head = {.status = 200},
                                .lines = std::make_unique<Silence>(cancel)};
  }
  std::atomic<int64_t> pages = 0, reads = 0, writes = 0;

 private:
  static int64_t number(const std::string& path, const std::string& name) {
    const size_t at = path.find(name);
    return at == std::string::npos ? 0 : std::atoll(path.c_str() + at + name.size());
  }
  /// `text` with `from`'s last five characters as a number.
  static std::string copy(std::string text, const std::string& from, int64_t of) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%05d", static_cast<int>(of));
    const std::string to = from.substr(0, from.size() - 5) + digits;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
    return text;
  }
  std::string page(const std::string& plural, int64_t limit, int64_t from) const {
    const auto found = templates_.find(plural);
    const bool of_nodes = plural == "nodes";
    if (!of_nodes && found == templates_.end())
      return R"({"metadata":{"resourceVersion":"9"},"items":[]})";
    const int64_t each = of_nodes ? 1 : static_cast<int64_t>(found->second.size());
    const int64_t all = each * (of_nodes ? nodes_ : jobs_), end = std::min(all, from + limit);
    std::string items;
    for (int64_t i = from; i < end; ++i) {
      items += i > from ? "," : "";
      if (of_nodes) {
        items += i == 0 ? node_ : copy(node_, kNode, i);
      } else {
        items += copy(found->second[static_cast<size_t>(i % each)], kJob, i / each);
      }
    }
    const std::string more = end < all ? ",\"continue\":\"" + std::to_string(end) + "\"" : "";
    return "{\"metadata\":{\"resourceVersion\":\"900000\"" + more + "},\"items\":[" + items + "]}";
  }
  const Templates templates_;
  const int jobs_, nodes_;
  std::string node_;
};

double memory_mib(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field)) return std::atof(line.c_str() + field.size()) / 1024;
  }
  return 0;
}

/// In a process of its own: what a measurement leaves in memory is not the next one's.
template <typename Measure>
void apart(const Measure& measure) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    measure();
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

void measure_memory(const std::string& file, int jobs, int workers, int nodes) {
  Templates templates = Json::parse(std::ifstream(file)).get<Templates>();
  mallopt(M_ARENA_MAX, 2);  // as the operator's main() does
  MadeUp server(std::move(templates), jobs, nodes);
  malloc_trim(0);
  const double before = memory_mib("VmRSS:");
  const Running running(server, kNs);
  // Every job gets one pass; after five quiet seconds the operator gives back what it does not use.
  double last = 0;
  for (int quiet = 0; quiet < 12;) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const double now = memory_mib("VmRSS:");
    quiet = now == last ? quiet + 1 : 0;
    last = now;
  }
  std::printf("| %d x %d, %d nodes | %.1f | %.1f | %.1f | %lld | %lld | %lld |\n", jobs, workers,
              nodes, before, last, memory_mib("VmHWM:"), static_cast<long long>(server.pages),
              static_cast<long long>(server.reads), static_cast<long long>(server.writes));
}

}  // namespace
}  // namespace dsj::op

int main(int argc, char** argv) {
  using namespace dsj::op;
  const auto number = [&](int at, int otherwise) {
    return argc > at ? std::atoi(argv[at]) : otherwise;
  };
  const int jobs = number(1, 1000), workers = number(2, 10), nodes = number(3, 2500);
  const std::string file = std::filesystem::temp_directory_path() /
                           ("operator-scale-" + std::to_string(getpid()) + ".json");
  std::printf(
      "| jobs x workers | RSS before, MiB | RSS | peak | pages | reads | writes |\n"
      "|---|---|---|---|---|---|---|\n");
  apart([&] { write_templates(file, workers); });
  apart([&] { measure_memory(file, jobs, workers, nodes); });
  std::filesystem::remove(file);
}
