// A real API server that has the real CRD, and a namespace of this test's own. $KUBECONFIG names
// the server; without one the tests fail.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "job/contract.h"
#include "job/spec/yaml.h"
#include "kube/api_transport.h"
#include "kube/client.h"
#include "kube/kubeconfig.h"
#include "test_paths.h"
#include "tests/support/soon.h"

namespace dsj::kube::testing {

class RealCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    auto access = access_from_kubeconfig_file();
    ASSERT_TRUE(access) << access.error().to_string() << ": start one with tests/cluster";
    auto transport = make_api_transport(*access);
    ASSERT_TRUE(transport) << transport.error().to_string();
    transport_ = std::move(*transport);
    client_ = std::make_unique<Client>(*transport_, system_clock());
    const auto crd = jobspec::read_yaml(std::string(DSJ_SOURCE_DIR) + "/crds/deepspeedjobs.yaml");
    ASSERT_TRUE(crd) << crd.error().to_string();
    const auto applied = client_->apply(resources::custom_resource_definitions(), "", crd->value,
                                        {.manager = "test"});
    ASSERT_TRUE(applied) << applied.error().to_string();
    static int spaces = 0;
    ns_ = "test-" + std::to_string(getpid()) + "-" + std::to_string(++spaces);
    ASSERT_TRUE(client_->create(
        resources::namespaces(), "",
        {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns_}}}}));
    const Resource jobs{contract::kGroup, contract::kVersion, contract::kPlural, contract::kKind,
                        true};
    ASSERT_TRUE(soon([&] {  // a new kind is served some moments later
      return client_->list(jobs, ns_, {}, [](const Json&) {}).has_value();
    }));
  }
  void TearDown() override {
    if (client_) (void)client_->remove(resources::namespaces(), "", ns_);
  }

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Client> client_;
  std::string ns_;
};

}  // namespace dsj::kube::testing
