#include "tests/operator/sim/platform.h"

namespace dsj::op::sim {

using kube::resources::nodes;

Platform::Platform(kube::testing::FakeApiServer& server, SimClock& clock, Chance& chance)
    : server_(server), clock_(clock), chance_(chance) {
  kube::Client client(server, clock);
  for (int i = 0; i < kNodes; ++i) {
    const std::string name = "n" + std::to_string(i);
    const kube::Json ready = {
        {"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", to_text(clock_.at())}};
    (void)client.create(nodes(), "",
                        {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}}}});
    server_.edit(nodes(), "", name, [&](kube::Json& node) {
      node["status"]["conditions"] = kube::Json::array({ready});
    });
  }
}

void Platform::mark(const std::string& name, bool ready) {
  server_.edit(nodes(), "", name, [&](kube::Json& node) {
    node["status"]["conditions"][0]["status"] = ready ? "True" : "Unknown";
    node["status"]["conditions"][0]["lastTransitionTime"] = to_text(clock_.at());
  });
}

void Platform::turn(double node_loss) {
  if (away_.empty() && chance_.happens(node_loss)) {
    const std::string node = any_node();
    ever_.insert(node);
    away_[node] = {.since = clock_.at(),
                   .marked_after = Seconds(1 + chance_.below(8)),
                   .for_ever = chance_.happens(0.5)};
  }
  for (auto at = away_.begin(); at != away_.end();) {
    const auto& [name, away] = *at;
    if (clock_.at() >= away.since + away.marked_after && marked_.insert(name).second) {
      mark(name, false);
    }
    if (!away.for_ever && clock_.at() >= away.since + Seconds(150)) {
      mark(name, true);
      marked_.erase(name);
      at = away_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace dsj::op::sim
