#include "cli/import/compose.h"

#include "tests/cli/import/support.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

TEST(Compose, PackagesAndOrder) {
  Folder folder;
  folder.add("conf/db/small.yaml", "size: 1\nkind: db\n")
      .add("conf/db/large.yaml", "size: 2\n")
      .add("conf/plain.yaml", "# @package deep.er\nx: 1\n")
      .add("conf/a.yaml",
           "defaults:\n  - db: small\n  - db@other: [small, large]\n  - plain@_here_\n"
           "  - db/small@_global_\n  - optional db: none\n  - db: null\n  - hydra/launcher: ray\n"
           "kind: own\nmerged: {a: 1}\n");
  const auto composed = compose(folder.files, "conf/a.yaml", {});
  ASSERT_TRUE(composed) << composed.error().to_string();
  const json expected = {{"db", {{"size", 1}, {"kind", "db"}}},
                         {"other", {{"size", 2}, {"kind", "db"}}},
                         {"deep", {{"er", {{"x", 1}}}}},
                         {"size", 1},
                         {"kind", "own"},  // the file itself comes last
                         {"merged", {{"a", 1}}}};
  EXPECT_EQ(composed->value, expected) << composed->value.dump(1);
  EXPECT_EQ(composed->sources.size(), 6u);
  EXPECT_EQ(composed->notes.size(), 2u);
}

TEST(Compose, APackageHasALimitedDepth) {
  Folder folder;
  std::string package = "a";
  for (int i = 0; i < 10'000; ++i) package += ".a";
  folder.add("a.yaml", "# @package " + package + "\nx: 1\n");
  const auto composed = compose(folder.files, "a.yaml", {});
  ASSERT_FALSE(composed);
  EXPECT_NE(composed.error().message.find("more than 32 names"), std::string::npos);
}

/// An existing file takes precedence over a predefined one. Optional entries are unchanged.
TEST(Compose, PredefinedFilesStandInForThoseThatAreNotThere) {
  const PredefinedFiles predefined = {{"zero2", "zero2: {stage: 2, from: dsj}\n"},
                                      {"zero3", "zero3: {stage: 3}\n"}};
  Folder folder;
  folder.add("run/a.yaml",
             "defaults:\n  - ../config/zero2@_here_\n  - /conf/zero3.yaml@deep\n"
             "  - optional ../config: zero3\nzero2: {own: 1}\n");
  const auto without = compose(folder.files, "run/a.yaml", {}, predefined);
  ASSERT_TRUE(without) << without.error().to_string();
  EXPECT_EQ(without->value, (json{{"zero2", {{"stage", 2}, {"from", "dsj"}, {"own", 1}}},
                                  {"deep", {{"zero3", {{"stage", 3}}}}}}))
      << without->value.dump(1);
  ASSERT_EQ(without->substitutes.size(), 2u);
  EXPECT_EQ(without->substitutes[0].name, "zero2");
  EXPECT_EQ(without->substitutes[0].missing, "config/zero2.yaml");
  EXPECT_EQ(without->substitutes[0].place, "run/a.yaml: defaults[0]");
  EXPECT_EQ(without->substitutes[1].missing, "run/conf/zero3.yaml");
  EXPECT_EQ(without->notes.size(), 1u);
  folder.add("config/zero2.yaml", "zero2: {stage: 1}\n").add("lib/conf/zero3.yaml", "x: 1\n");
  const auto with = compose(folder.files, "run/a.yaml", {"lib"}, predefined);
  ASSERT_TRUE(with) << with.error().to_string();
  EXPECT_EQ(with->value, (json{{"zero2", {{"stage", 1}, {"own", 1}}}, {"deep", {{"x", 1}}}}))
      << with->value.dump(1);
  EXPECT_TRUE(with->substitutes.empty());
}

TEST(Compose, SelfFirstLetsTheOthersWin) {
  Folder folder;
  folder.add("b.yaml", "x: 2\n").add("a.yaml", "defaults: [_self_, b@_here_]\nx: 1\ny: 1\n");
  const auto composed = compose(folder.files, "a.yaml", {});
  ASSERT_TRUE(composed) << composed.error().to_string();
  EXPECT_EQ(composed->value, (json{{"x", 2}, {"y", 1}}));
}

TEST(Compose, SearchPathsCirclesAndFilesThatAreNotThere) {
  Folder folder;
  folder.add("lib/far.yaml", "x: 1\n").add("a.yaml", "defaults: [far@_here_]\n");
  const auto missing = compose(folder.files, "a.yaml", {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().to_string().find("far.yaml"), std::string::npos);
  EXPECT_NE(missing.error().where.find("defaults[0]"), std::string::npos);
  EXPECT_TRUE(compose(folder.files, "a.yaml", {"lib"}));
  folder.add("b.yaml", "defaults: [c@_here_]\n").add("c.yaml", "defaults: [b@_here_]\n");
  const auto circle = compose(folder.files, "b.yaml", {});
  ASSERT_FALSE(circle);
  EXPECT_NE(circle.error().message.find("b.yaml -> c.yaml -> b.yaml"), std::string::npos)
      << circle.error().message;
}

}  // namespace
}  // namespace dsj::jobimport
