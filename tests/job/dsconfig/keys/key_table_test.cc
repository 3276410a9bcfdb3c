#include "job/dsconfig/keys/key_table.h"
#include "test_paths.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace dsj::dsconfig {
namespace {

TEST(KeyTable, NothingWorksWithoutATest) {
  EXPECT_TRUE(problems_of(all_keys()).empty());
  const std::vector<Key> claims = {{.path = "gradient_clipping", .type = Type::Float}};
  ASSERT_EQ(problems_of(claims).size(), 1u);
  EXPECT_NE(problems_of(claims)[0].find("names no test"), std::string::npos);
  const auto page = key_table_markdown(claims);
  ASSERT_FALSE(page);
  EXPECT_NE(page.error().message.find("gradient_clipping"), std::string::npos);
  EXPECT_FALSE(key_table_json(claims));
  EXPECT_EQ(problems_of({{.path = "a", .state = State::Moot}}).size(), 1u) << "no reason";
  EXPECT_EQ(problems_of({{.path = "a", .test = "Suite.Test"}}).size(), 1u) << "no program";
  EXPECT_EQ(problems_of({{.path = "a", .test = "p:Suite"}}).size(), 1u) << "no test";
  EXPECT_TRUE(problems_of({{.path = "a", .test = "p:Suite.Test golden"}}).empty());
  EXPECT_TRUE(problems_of({{.path = "a", .type = Type::Section}}).empty()) << "holds keys only";
}

TEST(KeyTable, ThePageIsTheTable) {
  const auto page = key_table_markdown();
  ASSERT_TRUE(page) << page.error().to_string();
  std::ifstream file(DSJ_SOURCE_DIR "/docs/ds_config.md");
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_TRUE(committed.str() == *page) << "docs/ds_config.md is not the table: run `make docs`";
}

/// A default stands in one place: in the field. The few rows that print it otherwise have it again.
TEST(KeyTable, AFieldHasTheDefaultOfItsRow) {
  ResolvedConfig config;
  int fields = 0;
  for (const Key& key : all_keys()) {
    if (key.field == nullptr) continue;
    ++fields;
    std::visit([&](const auto* field) { EXPECT_EQ(key.fallback, nlohmann::json(*field)); },
               key.field(config));
  }
  EXPECT_GT(fields, 60);
}

TEST(KeyTable, TheJsonHasEveryKeyAndItsCount) {
  const auto table = key_table_json();
  ASSERT_TRUE(table);
  int counted = 0;
  for (const auto& [state, count] : (*table)["counts"].items()) counted += count.get<int>();
  EXPECT_EQ(counted, static_cast<int>((*table)["keys"].size()));
  EXPECT_GT(counted, 200);
  for (const auto& key : (*table)["keys"])
    EXPECT_EQ(key["state"] == "works", !key["tests"].empty()) << key["path"];
}

}  // namespace
}  // namespace dsj::dsconfig
