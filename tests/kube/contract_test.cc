#include <gtest/gtest.h>

#include "tests/kube/contract_cases.h"
#include "tests/kube/fake_api_server.h"

namespace dsj::kube::testing {
namespace {

class FakeContract : public ::testing::TestWithParam<ContractCase> {};

TEST_P(FakeContract, Holds) {
  FakeApiServer server;
  Client client(server, system_clock());
  ContractWorld world{server, client, "contract", [&] { server.compact(); }};
  GetParam().run(world);
}

TEST(FakeContractCount, IsPrinted) {
  EXPECT_GE(contract_cases().size(), 30u);
  std::printf("result: contract: %zu cases against the fake\n", contract_cases().size());
}

INSTANTIATE_TEST_SUITE_P(Cases, FakeContract, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dsj::kube::testing
