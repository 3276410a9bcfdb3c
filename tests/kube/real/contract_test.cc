// The contract cases against a real API server, over the real transport. $KUBECONFIG names it;
// without one this program fails: the fake alone proves nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include "kube/api_transport.h"
#include "kube/kubeconfig.h"
#include "tests/kube/contract_cases.h"
#include "tests/kube/real/cluster.h"

namespace dsj::kube::testing {
namespace {

/// A namespace of its own for each case, deleted afterwards.
class RealContract : public ::testing::TestWithParam<ContractCase> {
 protected:
  static void SetUpTestSuite() {
    auto access = access_from_kubeconfig_file();
    ASSERT_TRUE(access) << access.error().to_string() << ": start one with tests/cluster";
    auto transport = make_api_transport(*access);
    ASSERT_TRUE(transport) << transport.error().to_string();
    transport_ = transport->release();
  }
  static void TearDownTestSuite() {
    std::printf("result: contract: %zu cases against the fake, %d against a real API server\n",
                contract_cases().size(), run_);
    delete transport_;
    transport_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(transport_, nullptr);
    static int number = 0;
    ns_ = "contract-" + std::to_string(getpid()) + "-" + std::to_string(number++);
    client_ = std::make_unique<Client>(*transport_, system_clock());
    const auto made = client_->create(
        resources::namespaces(), "",
        {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns_}}}});
    ASSERT_TRUE(made) << made.error().to_string();
  }
  void TearDown() override {
    if (client_) (void)client_->remove(resources::namespaces(), "", ns_);
  }
  static Transport* transport_;
  static int run_;
  std::unique_ptr<Client> client_;
  std::string ns_;
};
Transport* RealContract::transport_ = nullptr;
int RealContract::run_ = 0;

TEST_P(RealContract, Holds) {
  ContractWorld world{*transport_, *client_, ns_, [] { cluster("restart apiserver"); }};
  GetParam().run(world);
  ++run_;
}

INSTANTIATE_TEST_SUITE_P(Cases, RealContract, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dsj::kube::testing
