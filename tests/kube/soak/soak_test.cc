// Hours of a client's life on a real API server, in minutes: watches, cancels, a server that is
// killed, creates all at once, certificates that change. What counts is that nothing is left over:
// open files and threads as before, memory within kGrowthMax. $DSJ_SOAK=full for the whole of it.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "kube/api_transport.h"
#include "kube/kubeconfig.h"
#include "kube/reflector.h"
#include "tests/kube/real/cluster.h"
#include "tests/support/soon.h"

namespace dsj::kube::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kWatches = 8, kCreates = 50;
constexpr int64_t kGrowthMaxKib = 8 * 1024;
const char* const kNamespace = "soak";
const Resource kMaps = resources::config_maps();

bool full() {
  const char* word = std::getenv("DSJ_SOAK");
  return word && std::string(word) == "full";
}

/// What this process holds.
struct Held {
  int files = 0, threads = 0;
  int64_t resident_kib = 0;

  static Held now() {
    Held held;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      ++held.files;
    }
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      if (word == "Threads:") status >> held.threads;
      if (word == "VmRSS:") status >> held.resident_kib;
    }
    return held;
  }
  bool same_counts(const Held& other) const {
    return files == other.files && threads == other.threads;
  }
  std::string text() const {
    return std::to_string(files) + " files, " + std::to_string(threads) + " threads, " +
           std::to_string(resident_kib) + " KiB";
  }
};

/// Counts the names that a reflector says are there.
class Names final : public Sink {
 public:
  void list_begin() override { listing_.clear(); }
  void listed(const Json& object) override { listing_.insert(object["metadata"]["name"]); }
  void list_done() override {
    const std::lock_guard lock(mutex_);
    names_.swap(listing_);
    changed_.notify_all();
  }
  void list_aborted() override {}
  void upserted(const Json& object) override {
    const std::lock_guard lock(mutex_);
    names_.insert(object["metadata"]["name"]);
    changed_.notify_all();
  }
  void deleted(const Json& object) override {
    const std::lock_guard lock(mutex_);
    names_.erase(object["metadata"]["name"].get<std::string>());
    changed_.notify_all();
  }
  bool wait_for(const std::string& name, bool there) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return names_.contains(name) == there; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> names_, listing_;
};

class Soak : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* state = std::getenv("DSJ_CLUSTER_STATE");
    ASSERT_TRUE(state) << "run by tests/cluster/cluster.py run";
    auto access = access_from_kubeconfig_file(std::string(state) + "/files.kubeconfig");
    ASSERT_TRUE(access) << access.error().to_string();
    auto transport = make_api_transport(*access);
    ASSERT_TRUE(transport) << transport.error().to_string();
    transport_ = std::move(*transport);
    client_ = std::make_unique<Client>(*transport_, system_clock());
    const auto made = client_->create(
        resources::namespaces(), "",
        {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", kNamespace}}}});
    ASSERT_TRUE(made) << made.error().to_string();
    for (int i = 0; i < kWatches; ++i) {
      names_.push_back(std::make_unique<Names>());
      reflectors_.push_back(std::make_unique<Reflector>(
          *client_, system_clock(), kMaps,
          ReflectorOptions{.ns = kNamespace,
                           .on_failure = [this](const ApiError&) { ++failures_; }},
          *names_.back()));
      threads_.emplace_back([this, i] { reflectors_[i]->run(stop_); });
    }
  }
  void TearDown() override {
    const auto start = steady_clock::now();
    stop_.cancel();
    for (auto& thread : threads_) thread.join();
    EXPECT_LT(steady_clock::now() - start, kLong) << "the watches hold on to a cancelled wait";
  }

  ApiResult<Json> create(const std::string& name) {
    return client_->create(kMaps, kNamespace,
                           {{"apiVersion", "v1"},
                            {"kind", "ConfigMap"},
                            {"metadata", {{"name", name}}},
                            {"data", {{"text", std::string(2000, 'x')}}}});
  }
  /// Made and removed again, both seen by every watch.
  void seen_by_all(const std::string& name) {
    ASSERT_TRUE(soon([&] {
      const auto made = create(name);
      return made || made.error().kind == ApiError::Kind::AlreadyExists;
    })) << name;
    for (auto& names : names_) ASSERT_TRUE(names->wait_for(name, true)) << name;
    ASSERT_TRUE(client_->remove(kMaps, kNamespace, name));
    for (auto& names : names_) ASSERT_TRUE(names->wait_for(name, false)) << name;
  }
  void create_all_at_once();
  void cancel_one(int number);
  std::string credential();
  Held settled();
  void rotate_certificates();
  void round(int cancels, int kills);

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Client> client_;
  std::vector<std::unique_ptr<Names>> names_;
  std::vector<std::unique_ptr<Reflector>> reflectors_;
  Cancel stop_;
  std::vector<std::thread> threads_;
  std::atomic<int> failures_ = 0;
  int rounds_ = 0;
};

void Soak::create_all_at_once() {
  std::vector<std::thread> threads;
  std::atomic<int> made = 0;
  for (int i = 0; i < kCreates; ++i) {
    threads.emplace_back([&, i] { made += create("many-" + std::to_string(i)).has_value(); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, kCreates);
  for (int i = 0; i < kCreates; ++i) {
    const std::string name = "many-" + std::to_string(i);
    for (auto& names : names_) ASSERT_TRUE(names->wait_for(name, true)) << name;
    ASSERT_TRUE(client_->remove(kMaps, kNamespace, name));
  }
}

/// A watch or a call that is given up: while it waits, while it opens, or without a word.
void Soak::cancel_one(int number) {
  Cancel cancel;
  std::thread other([&, delay = Milliseconds(number % 7)] {
    std::this_thread::sleep_for(delay);
    cancel.cancel();
  });
  if (number % 4 == 3) {
    const auto answer = client_->list(
        kMaps, kNamespace, {}, [](const Json&) {}, cancel);
    EXPECT_TRUE(answer || answer.error().cancelled()) << answer.error().to_string();
  } else {
    auto lines = client_->watch(kMaps, kNamespace, {}, seconds(300), cancel);
    if (!lines) {
      EXPECT_TRUE(lines.error().cancelled()) << lines.error().to_string();
    } else if (number % 4 != 2) {
      for (;;) {
        const auto line = (*lines)->next(kLong);
        if (line && *line) continue;
        EXPECT_FALSE(line);
        if (!line) {
          EXPECT_EQ(line.error().kind, NetError::Kind::Cancelled);
        }
        break;
      }
    }
  }
  other.join();
}

/// By what the server knows this client: the fingerprint of its certificate.
std::string Soak::credential() {
  const Resource reviews{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview",
                         false};
  const auto review =
      client_->create(reviews, "", {{"apiVersion", reviews.api_version()}, {"kind", reviews.kind}});
  if (!review) return review.error().to_string();
  return (*review)["status"]["userInfo"]["extra"]["authentication.kubernetes.io/credential-id"]
      .dump();
}

/// What is held when only the watches and one call in a while are left: kept connections are closed
/// half a minute after their last use.
Held Soak::settled() {
  Held last = Held::now();
  for (int quiet = 0, i = 0; quiet < 15 && i < 300; ++i) {
    std::this_thread::sleep_for(seconds(1));
    EXPECT_FALSE(credential().empty());
    const Held next = Held::now();
    quiet = i > kIdleTime.count() && next.same_counts(last) ? quiet + 1 : 0;
    last = next;
  }
  return last;
}

void Soak::rotate_certificates() {
  const std::string before = credential();
  ASSERT_NE(before.find("X509SHA256"), std::string::npos) << before;
  cluster("rotate admin");
  cluster("rotate apiserver");
  std::string after;
  EXPECT_TRUE(soon([&] { return (after = credential()) != before; }))
      << "the client goes on with the old certificate";
  EXPECT_NE(after.find("X509SHA256"), std::string::npos) << after;
}

void Soak::round(int cancels, int kills) {
  const std::string prefix = "round-" + std::to_string(rounds_++) + "-";
  ASSERT_NO_FATAL_FAILURE(seen_by_all(prefix + "begin"));
  for (int i = 0; i < cancels; ++i) ASSERT_NO_FATAL_FAILURE(cancel_one(i));
  ASSERT_NO_FATAL_FAILURE(create_all_at_once());
  for (int i = 0; i < kills; ++i) {
    ASSERT_NO_FATAL_FAILURE(cluster("restart apiserver"));
    ASSERT_NO_FATAL_FAILURE(seen_by_all(prefix + "kill-" + std::to_string(i)));
  }
  ASSERT_NO_FATAL_FAILURE(rotate_certificates());
  ASSERT_NO_FATAL_FAILURE(seen_by_all(prefix + "end"));
}

TEST_F(Soak, LeavesNothingBehind) {
  const int cancels = full() ? 1000 : 100, kills = full() ? 20 : 3;
  ASSERT_NO_FATAL_FAILURE(round(20, 1));  // everything once: pools, caches, thread pools
  const Held before = settled();
  failures_ = 0;
  ASSERT_NO_FATAL_FAILURE(round(cancels, kills));
  const Held after = settled();
  std::printf(
      "result: soak: %d watches, %d cancels, server killed %d times, %d creates at once, both "
      "certificates rotated; %d failures of watches got over\n",
      kWatches, cancels, kills, kCreates, failures_.load());
  std::printf("result: soak: before %s; after %s\n", before.text().c_str(), after.text().c_str());
  EXPECT_EQ(after.files, before.files);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_LE(after.resident_kib - before.resident_kib, kGrowthMaxKib);
}

}  // namespace
}  // namespace dsj::kube::testing
