#include "engine/memory/shortage.h"

#include <gtest/gtest.h>

namespace dsj::memory {
namespace {

TEST(Shortage, KnowsTheClassOfTheScopeInWhichItHappened) {
  EXPECT_FALSE(last_shortage());
  note_shortage(1, 3, 0);
  EXPECT_EQ(last_shortage()->klass, Class::Activations);
  {
    const MemoryScope scope(Class::Optimizer);
    note_shortage(64, 1024, 32);
  }
  ASSERT_TRUE(last_shortage());
  EXPECT_EQ(last_shortage()->klass, Class::Optimizer) << "the scope has ended, the note has not";
  EXPECT_EQ(last_shortage()->wanted, 64);
  EXPECT_EQ(last_shortage()->all, 1024);
  EXPECT_EQ(last_shortage()->left, 32);
}

}  // namespace
}  // namespace dsj::memory
