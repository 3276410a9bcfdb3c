// What the client and an API server promise each other, one case per promise. Run against the fake
// (contract_test.cc) and against a real server (tests/cluster); both print how many cases ran.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kube/client.h"

namespace dsj::kube::testing {

struct ContractWorld {
  Transport& transport;
  Client& client;
  std::string ns;  ///< exists, is empty
};

struct ContractCase {
  std::string name;
  std::function<void(ContractWorld&)> run;  ///< by GoogleTest's expectations
};

const std::vector<ContractCase>& contract_cases();

}  // namespace dsj::kube::testing
