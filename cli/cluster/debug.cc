// dsj debug NAME: collects a support bundle of a job, secrets removed.
#include <cstdio>
#include <deque>

#include "cli/cluster/description.h"
#include "cli/cluster/diagnosis.h"
#include "cli/cluster/redact.h"
#include "cli/cluster/stacks.h"
#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

constexpr size_t kPodsShown = 8, kLinesShown = 60;

class Debug {
 public:
  Debug(Session& session, Description what, int64_t now, bool stacks)
      : session_(session), what_(std::move(what)), now_(now), stacks_(stacks) {}

  std::string text() {
    const std::string name = word(what_.job, "metadata.name");
    text_ = "DeepSpeedJob " + session_.ns + "/" + name + "\n" + versions();
    title("Findings");
    const auto findings = diagnose(what_.job, what_.pods, now_);
    for (const Advice& advice : findings) text_ += "- " + advice.what + "\n  " + advice.todo + "\n";
    if (findings.empty()) text_ += "no problem found\n";
    title("Description");
    text_ += to_text(what_, now_);
    if (stacks_) {
      title("Stacks of all threads");
      const auto stacks = take_stacks(session_, what_.job, what_.pods);
      text_ += stacks ? *stacks : "not taken: " + stacks.error().to_string() + "\n";
    }
    title("Events of its objects");
    text_ += other_events(name);
    title("Job");
    text_ += jobspec::to_yaml(redacted(what_.job));
    pods();
    return redacted_text(text_);
  }

 private:
  void title(const std::string& name) { text_ += "\n==== " + name + "\n"; }

  std::string versions() {
    std::string text;
    const auto answer =
        session_.transport().call({.path = "/version", .timeout = kube::Milliseconds(5000)}, {});
    const Json version = answer && answer->status == 200 ? Json::parse(answer->body, nullptr, false)
                                                         : Json::object();
    text += "Kubernetes " + word(version, "gitVersion") + "\n";
    return text;
  }

  /// Events of pods, and of other objects named after the job.
  std::string other_events(const std::string& job) {
    std::vector<Json> events;
    const auto listed =
        session_.client.list(kube::resources::events(), session_.ns, {}, [&](const Json& event) {
          if (word(event, "regarding.kind") != "DeepSpeedJob" &&
              word(event, "regarding.name").starts_with(job + "-"))
            events.push_back(event);
        });
    if (!listed) return "not readable: " + listed.error().to_string() + "\n";
    return events_text(events, now_);
  }

  /// Pods that do not run come first.
  void pods() {
    std::vector<const PodRef*> order;
    for (const PodRef& pod : what_.pods) order.push_back(&pod);
    std::ranges::stable_sort(order, {}, [](const PodRef* pod) {
      return word(pod->object, "status.phase") == "Running";
    });
    for (size_t i = 0; i < order.size() && i < kPodsShown; ++i) {
      const PodRef& pod = *order[i];
      title("Pod " + pod.name);
      Json slim = redacted(pod.object);
      if (i > 0) slim.erase("spec");  // the specs of all pods are alike
      text_ += jobspec::to_yaml(slim);
      title("Log of " + pod.name + ", the end");
      text_ += log_of(pod);
    }
    if (order.size() > kPodsShown)
      text_ += "\n" + std::to_string(order.size() - kPodsShown) + " more pods are left out\n";
  }

  std::string log_of(const PodRef& pod) {
    if (!has_log(pod)) return "not started\n";
    std::string text;
    const auto done =
        read_log(session_, pod.name, {.tail_lines = kLinesShown}, [&](const std::string& line) {
          text += line + "\n";
          return true;
        });
    return done ? text : text + "not readable: " + done.error().to_string() + "\n";
  }

  Session& session_;
  const Description what_;
  const int64_t now_;
  const bool stacks_;
  std::string text_;
};

}  // namespace

int run_debug(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Collects a support bundle, secrets removed: findings with advice, the description, the job, "
      "its pods and the ends of their logs. Secret objects are not read; the values of variables "
      "and strings that look like credentials are removed. Read it before you send it.",
      "dsj debug"};
  ClusterFlags flags;
  std::string name, output;
  bool stacks = false;
  parser.option("NAME", name, "the job").required();
  add_cluster_flags(parser, flags);
  parser.option("--output", output, "a file instead of standard output");
  parser.flag(
      "--stacks", stacks,
      "also the stack of every thread of every rank, by the names of its functions. It sets "
      "an annotation of the job; the ranks keep running");
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(flags);
  if (!session) return report("debug", session.error());
  auto what = look_at_job(**session, name);
  if (!what) return report_api("debug", **session, "job " + name, what.error());
  const std::string text =
      Debug(**session, std::move(*what), now_seconds((*session)->clock), stacks).text();
  if (output.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  PosixFiles files;
  if (const auto written = files.write_atomically(output, text); !written)
    return report("debug", written.error());
  std::printf("%s\n", output.c_str());
  return 0;
}

}  // namespace dsj::cli
