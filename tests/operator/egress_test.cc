#include "operator/render/egress.h"

#include <gtest/gtest.h>

#include "operator/render/render_config.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

Json policy_with(const std::string& egress) {
  World world;
  const auto rules = egress_from_text(egress);
  EXPECT_TRUE(rules) << rules.error().to_string();
  world.o.settings.egress = *rules;
  for (const Create& create : render_config(world.o, *world.o.wanted.accepted)) {
    if (create.kind == "NetworkPolicy") return create.object["spec"];
  }
  return {};
}

TEST(Egress, IsOpenUnlessItIsLimited) {
  const Json open = policy_with("");
  EXPECT_EQ(open["policyTypes"], Json({"Ingress"}));
  EXPECT_FALSE(open.contains("egress"));
}

TEST(Egress, ThePodsStillReachEachOtherAndDns) {
  const Json limited = policy_with(R"([{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
                                        "ports": [{"port": 443}]}, {"to": []}])");
  EXPECT_EQ(limited["policyTypes"], Json({"Ingress", "Egress"}));
  ASSERT_EQ(limited["egress"].size(), 4u);
  EXPECT_EQ(limited["egress"][0]["to"][0]["podSelector"]["matchLabels"][contract::kLabelJobName],
            "j");
  std::set<std::pair<int, std::string>> dns;
  for (const Json& port : limited["egress"][1]["ports"])
    dns.emplace(port["port"].get<int>(), port["protocol"].get<std::string>());
  EXPECT_EQ(dns, (std::set<std::pair<int, std::string>>{
                     {53, "TCP"}, {53, "UDP"}, {5353, "TCP"}, {5353, "UDP"}}));
  // As the API server shows it, or the operator would mend it again and again.
  EXPECT_EQ(limited["egress"][2]["ports"][0]["protocol"], "TCP");
  EXPECT_EQ(limited["egress"][2]["to"][0]["ipBlock"]["cidr"], "10.0.0.0/8");
  EXPECT_EQ(limited["egress"][3], Json::object());
  EXPECT_EQ(policy_with("[]")["egress"].size(), 2u);
}

TEST(Egress, AnythingElseIsRefused) {
  for (const char* text :
       {"open", "{}", "[1]", R"([{"from": []}])", R"([{"to": {}}])", R"([{"ports": [443]}])"}) {
    EXPECT_FALSE(egress_from_text(text)) << text;
  }
}

}  // namespace
}  // namespace dsj::op::testing
