#include "cli/import/interpolation.h"

#include <gtest/gtest.h>

namespace dsj::jobimport {
namespace {

using nlohmann::json;

json at(const json& root, const std::string& path) {
  Interpolator references(root, "f");
  const auto value = references.at(path);
  EXPECT_TRUE(value) << value.error().to_string();
  return value ? *value : json();
}

std::string error_at(const json& root, const std::string& path) {
  Interpolator references(root, "f");
  const auto value = references.at(path);
  return value ? "no error" : value.error().to_string();
}

TEST(Interpolation, FollowsReferences) {
  const json root = {{"n", 3},
                     {"text", "${n} of ${a.list[1]}"},
                     {"a", {{"list", {1, 2.5}}, {"near", "${.list}"}, {"up", "${..n}"}}},
                     {"key", "n"},
                     {"nested", "${${key}}"},
                     {"whole", "${a}"},
                     {"through", "${whole.near}"},
                     {"plain", "\\${n}"}};
  EXPECT_EQ(at(root, "text"), "3 of 2.5");
  EXPECT_EQ(at(root, "a.near"), (json{1, 2.5}));
  EXPECT_EQ(at(root, "a.up"), 3);
  EXPECT_EQ(at(root, "nested"), 3);
  EXPECT_EQ(at(root, "whole.near"), (json{1, 2.5}));
  EXPECT_EQ(at(root, "through"), (json{1, 2.5}));
  EXPECT_EQ(at(root, "plain"), "${n}");
  EXPECT_EQ(at(root, "absent"), nullptr);
}

TEST(Interpolation, RefusesCirclesAndReferencesToNothing) {
  const json root = {{"a", "${b}"}, {"b", "x${a}"}, {"c", "${gone.away}"}, {"d", "${open"}};
  EXPECT_NE(error_at(root, "a").find("a -> b -> a"), std::string::npos) << error_at(root, "a");
  EXPECT_NE(error_at(root, "c").find("${gone.away} refers to nothing"), std::string::npos);
  EXPECT_NE(error_at(root, "d").find("not closed"), std::string::npos);
}

TEST(Interpolation, GrowthIsLimited) {
  json root = {{"l0", "aaaaaaaaaaaaaaaa"}};
  for (int i = 1; i < 40; ++i) {
    const std::string before = "${l" + std::to_string(i - 1) + "}";
    root["l" + std::to_string(i)] = json(std::vector<std::string>(8, before));
  }
  EXPECT_NE(error_at(root, "l9").find("grow"), std::string::npos) << error_at(root, "l9");
  EXPECT_NE(error_at(root, "l39").find("too deep"), std::string::npos) << error_at(root, "l39");
}

TEST(Interpolation, ResolversAreNotCalled) {
  const json root = {{"a", "${oc.env:HOME}/x"}};
  Interpolator references(root, "f");
  const auto value = references.at("a");
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, "${oc.env:HOME}/x");
  EXPECT_EQ(references.left_open(), std::vector<std::string>{"a: ${oc.env:HOME}"});
}

}  // namespace
}  // namespace dsj::jobimport
