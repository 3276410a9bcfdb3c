// The nodes of a simulation: power failures and cut networks, which the API server notices later.
// All jobs share them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/chance.h"
#include "tests/operator/sim/clock.h"

namespace dsj::op::sim {

class Platform {
 public:
  Platform(kube::testing::FakeApiServer& server, SimClock& clock, Chance& chance);

  /// `node_loss`: the chance of a loss in this turn.
  void turn(double node_loss);
  bool away(const std::string& node) const { return away_.contains(node); }
  /// The API server says so.
  bool marked_away(const std::string& node) const { return marked_.contains(node); }
  bool was_ever_away(const std::string& node) const { return ever_.contains(node); }
  bool any_was_away() const { return !ever_.empty(); }
  std::string any_node() { return "n" + std::to_string(chance_.below(kNodes)); }

 private:
  static constexpr int kNodes = 4;
  void mark(const std::string& name, bool ready);

  kube::testing::FakeApiServer& server_;
  SimClock& clock_;
  Chance& chance_;
  struct Away {
    Time since;
    Seconds marked_after{10};
    bool for_ever = false;
  };
  std::map<std::string, Away> away_;
  std::set<std::string> marked_, ever_;
};

}  // namespace dsj::op::sim
