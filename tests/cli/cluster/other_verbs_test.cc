#include "cli/cluster/other_verbs.h"

#include <gmock/gmock.h>

namespace dsj::cli {
namespace {

using testing::HasSubstr;

TEST(VerbOfOthers, NamesTheEquivalentVerb) {
  EXPECT_THAT(verb_of_others("stop"), HasSubstr("dsj suspend NAME"));
  EXPECT_EQ(verb_of_others("delete"), "kubectl delete dsj NAME");
  EXPECT_THAT(verb_of_others("list"), HasSubstr("dsj get"));
  EXPECT_THAT(verb_of_others("events"), HasSubstr("dsj describe"));
  EXPECT_EQ(verb_of_others("submitt"), "");
}

}  // namespace
}  // namespace dsj::cli
