// What the client and an API server promise each other, one case per promise. Run against the fake
// (contract_test.cc) and against a real server (real/contract_test.cc); both print how many ran.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "kube/client.h"

namespace dsj::kube::testing {

struct ContractWorld {
  Transport& transport;
  Client& client;
  std::string ns;  ///< exists, is empty
  /// Makes the server forget its history: watches cannot begin before now; continue tokens end
  /// within a minute.
  std::function<void()> forget;
};

struct ContractCase {
  std::string name;
  std::function<void(ContractWorld&)> run;  ///< by GoogleTest's expectations
};

inline void PrintTo(const ContractCase& contract_case, std::ostream* out) {
  *out << contract_case.name;
}

const std::vector<ContractCase>& contract_cases();
/// On objects, and on streams: the two parts of the list, each in a file of its own.
std::vector<ContractCase> object_cases();
std::vector<ContractCase> stream_cases();

}  // namespace dsj::kube::testing
