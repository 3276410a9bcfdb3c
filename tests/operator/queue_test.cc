#include "operator/serve/queue.h"

#include <gtest/gtest.h>

namespace dsj::op {
namespace {

using Ms = Milliseconds;

TEST(Queue, AKeyIsThereOnceAndAtItsEarliestTime) {
  Queue queue;
  queue.add("a", Ms(50));
  queue.add("a", Ms(20));
  queue.add("a", Ms(90));
  EXPECT_EQ(queue.depth(), 1u);
  EXPECT_FALSE(queue.take(Ms(19)));
  EXPECT_EQ(queue.next(), Ms(20));
  Ms waited{0};
  EXPECT_EQ(queue.take(Ms(25), &waited), "a");
  EXPECT_EQ(waited, Ms(5));
  queue.finish("a");
  EXPECT_FALSE(queue.take(Ms(1000)));
}

TEST(Queue, AKeyInWorkIsNotHandedOutTwice) {
  Queue queue;
  queue.add("a", Ms(0));
  ASSERT_TRUE(queue.take(Ms(0)));
  queue.add("a", Ms(0));
  EXPECT_FALSE(queue.take(Ms(10)));
  queue.finish("a");
  EXPECT_EQ(queue.take(Ms(10)), "a");
}

TEST(Queue, AKeyRestsAfterItsPass) {
  Queue queue(Ms(100));
  queue.add("a", Ms(0));
  EXPECT_EQ(queue.take(Ms(0)), "a") << "a new key does not wait";
  queue.add("a", Ms(5));
  queue.finish("a", Ms(10));
  EXPECT_EQ(queue.next(), Ms(110)) << "what came during the pass waits, too";
  queue.add("a", Ms(50));
  queue.add("b", Ms(50));
  EXPECT_EQ(queue.take(Ms(60)), "b") << "others do not";
  queue.finish("b", Ms(60));
  EXPECT_FALSE(queue.take(Ms(109)));
  EXPECT_EQ(queue.take(Ms(110)), "a");
  queue.finish("a", Ms(111));
  queue.add("a", Ms(500));
  EXPECT_EQ(queue.next(), Ms(500)) << "later than its rest";
}

TEST(Queue, AKeyFailsUntilAPassOfItIsGood) {
  Queue queue;
  queue.add("a", Ms(0));
  ASSERT_TRUE(queue.take(Ms(0)));
  queue.retry("a", Ms(0), Ms(0));
  EXPECT_EQ(queue.failing(), 1u);
  ASSERT_TRUE(queue.take(Ms(100)));
  EXPECT_EQ(queue.failing(), 1u) << "nobody knows yet";
  queue.finish("a");
  EXPECT_EQ(queue.failing(), 0u);
}

TEST(Queue, TheOneThatIsDueLongestComesFirst) {
  Queue queue;
  queue.add("late", Ms(30));
  queue.add("early", Ms(10));
  EXPECT_EQ(queue.take(Ms(40)), "early");
  EXPECT_EQ(queue.take(Ms(40)), "late");
}

TEST(Queue, FailuresSlowAKeyDownAndSuccessForgetsThem) {
  Queue queue;
  Ms now{0};
  Ms pause{0};
  for (int i = 0; i < 15; ++i) {
    queue.add("a", now);
    ASSERT_TRUE(queue.take(now));
    queue.add("a", now);  // an event meanwhile does not shorten the pause
    queue.retry("a", now, Ms(0));
    const Ms next = *queue.next() - now;
    EXPECT_GE(next, pause);
    pause = next;
    now = *queue.next();
  }
  EXPECT_EQ(pause, Ms(51'200));
  ASSERT_TRUE(queue.take(now));
  queue.finish("a");
  queue.add("a", now);
  ASSERT_TRUE(queue.take(now));
  queue.retry("a", now, Ms(3'000));
  EXPECT_EQ(*queue.next() - now, Ms(3'000));  // at least what the server asked for
}

}  // namespace
}  // namespace dsj::op
