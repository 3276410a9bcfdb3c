#include "cli/import/hostfile.h"

#include <gtest/gtest.h>

namespace dsj::jobimport {
namespace {

std::string hostfile_error(const std::string& text) {
  const auto hosts = parse_hostfile(text, "h");
  return hosts ? "no error" : hosts.error().to_string();
}

TEST(Hostfile, ReadsHostsInOrder) {
  const auto hosts = parse_hostfile("# c\nb slots=2\r\n\n  a slots=1 # x\n", "h");
  ASSERT_TRUE(hosts) << hosts.error().to_string();
  EXPECT_EQ(*hosts, (std::vector<Host>{{"b", {0, 1}}, {"a", {0}}}));
}

TEST(Hostfile, RefusesWithTheLine) {
  EXPECT_NE(hostfile_error("a slots=1\na slots=2\n")
                .find("h:2: host \"a\" is given twice, first at line 1"),
            std::string::npos);
  for (const char* bad : {"a\n", "a slots=\n", "a slots=x\n", "a slots=0\n", "a slots=-1\n",
                          "a slots=99999999\n", "a slots=70000\n", "a slots=1 max=2\n"})
    EXPECT_NE(hostfile_error(bad).find("h:1: "), std::string::npos) << bad << hostfile_error(bad);
  EXPECT_NE(hostfile_error("# nothing\n").find("no host"), std::string::npos);
}

TEST(Hostfile, FiltersAsTheLauncherDoes) {
  const std::vector<Host> hosts = {{"a", {0, 1, 2}}, {"b", {0, 1, 2}}};
  EXPECT_EQ(*filter(hosts, "b@a:0,2", ""), (std::vector<Host>{{"a", {0, 2}}, {"b", {0, 1, 2}}}));
  EXPECT_EQ(*filter(hosts, "", "a@b:1"), (std::vector<Host>{{"b", {0, 2}}}));
  EXPECT_FALSE(filter(hosts, "a", "b"));
  EXPECT_FALSE(filter(hosts, "c", ""));
  EXPECT_FALSE(filter(hosts, "a:7", ""));
  EXPECT_FALSE(filter(hosts, "a:", ""));
  EXPECT_FALSE(filter(hosts, "a@a", ""));
  EXPECT_FALSE(filter(hosts, "", "a@b"));
}

}  // namespace
}  // namespace dsj::jobimport
