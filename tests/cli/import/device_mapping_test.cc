#include "cli/import/device_mapping.h"

#include <gtest/gtest.h>

namespace dsj::jobimport {
namespace {

using Devices = std::vector<int>;

TEST(DeviceMapping, ReadsRangesAndLists) {
  const auto read = [](const nlohmann::json& value) {
    const auto devices = parse_device_mapping(value, "f");
    EXPECT_TRUE(devices) << devices.error().to_string();
    return devices.value_or(Devices{});
  };
  EXPECT_EQ(read("list(range(0,4))"), (Devices{0, 1, 2, 3}));
  EXPECT_EQ(read(" list ( range( 2 ) ) "), (Devices{0, 1}));
  EXPECT_EQ(read("list(range(6, 0, -2)) + [9,]"), (Devices{6, 4, 2, 9}));
  EXPECT_EQ(read("[3, 1]"), (Devices{3, 1}));
  EXPECT_EQ(read(nlohmann::json{0, 5}), (Devices{0, 5}));
}

TEST(DeviceMapping, RefusesEverythingElse) {
  for (const char* text :
       {"", "list(range(0,8)", "[i for i in range(8)]", "__import__('os').system('id')",
        "list(range(0,8)) * 2", "[0, 0]", "[-1]", "range(0,10,0)", "range(0,99999999999)",
        "range(70000)", "[]", "list(range(3,3))", "[99999999999999999999]"}) {
    const auto devices = parse_device_mapping(text, "f: role.device_mapping");
    ASSERT_FALSE(devices) << text;
    EXPECT_EQ(devices.error().where, "f: role.device_mapping") << text;
  }
  EXPECT_FALSE(parse_device_mapping(3, "f"));
}

TEST(DeviceMapping, NodesOfEqualSize) {
  const auto nodes = nodes_of({8, 9, 10, 11, 16, 17, 18, 19}, 8, "f");
  ASSERT_TRUE(nodes);
  EXPECT_EQ(nodes->replicas, 2);
  EXPECT_EQ(nodes->slots, 4);
  const auto uneven = nodes_of({0, 1, 8}, 8, "f");
  ASSERT_FALSE(uneven);
  EXPECT_NE(uneven.error().message.find("node 0: 2, node 1: 1"), std::string::npos);
}

}  // namespace
}  // namespace dsj::jobimport
