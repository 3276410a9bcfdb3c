// What a pass wants done, in the order in which apply.h does it: objects made, the status written,
// pods made, objects deleted. Whatever is cut off in between, the next pass plans the rest: a
// restart is accounted for before its pods are made, names follow from what was seen, and what a
// deletion would make forgotten is in the status by then.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/conditions.h"
#include "operator/times.h"

namespace dsj::op {

struct Create {
  std::string kind, name;
  nlohmann::json object;
  bool refers = false;  ///< to another object of the plan, which the server looks up when it is made
};

struct Delete {
  std::string kind, name;
  std::string uid;     ///< precondition: this very object
  bool force = false;  ///< grace 0: the kubelet's word is not waited for
};

struct Plan {
  std::vector<Create> creates;
  nlohmann::json status;  ///< the operator's whole part; null: as it is
  std::vector<Create> pods;
  std::vector<Delete> deletes;
  std::vector<Event> events;  ///< told after the status is written
  std::optional<Time> again;  ///< a pass is due then even if nothing is seen
};

}  // namespace dsj::op
