#include "engine/comm/agree.h"

#include <gtest/gtest.h>

#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using testing_support::kNever;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

TEST(SaidByFirst, OneRankAsksAndAllKnow) {
  const std::string said = std::string(70'000, 'x') + '\0' + "\xff and the end";
  for (const std::string& text : run_ranks(3, [&](const Seat& seat) {
         const auto group = seat.join("auto", kNever);
         int asked = 0;
         for (const std::string& one : {said, std::string()}) {
           const auto heard = said_by_first(*group, at::kCPU, [&]() -> Result<std::string> {
             ++asked;
             return one;
           });
           require(heard && *heard == one, "another text");
         }
         require(asked == (seat.rank == 0 ? 2 : 0), "asked " + std::to_string(asked) + " times");
         group->shutdown();
       }))
    EXPECT_EQ(text, "");
}

TEST(SaidByFirst, ItsErrorEndsAllAndItAloneSaysWhy) {
  for (const std::string& text : run_ranks(3, [&](const Seat& seat) {
         const auto group = seat.join("auto", kNever);
         const auto heard = said_by_first(*group, at::kCPU, [&]() -> Result<std::string> {
           return bad_input("it is no directory", "/ds");
         });
         require(!heard, "heard");
         const bool first = seat.rank == 0;
         require(heard.error().kind == (first ? ErrorKind::BadInput : ErrorKind::Transient),
                 "another kind");
         require((heard.error().where == "/ds") == first, heard.error().to_string());
         group->shutdown();
       }))
    EXPECT_EQ(text, "");
}

/// A file in a deep directory is still named, and no character is cut in two.
TEST(FirstError, ALongPathKeepsItsEnd) {
  std::string what;
  while (what.size() < 1200) what += "\xe2\x82\xac";
  const std::string path = "/" + std::string(3000, 'd') + "/step-6/rank-00001.bin";
  for (const std::string& text : run_ranks(2, [&](const Seat& seat) {
         const auto group = seat.join("auto", kNever);
         std::optional<Error> mine;
         if (seat.rank == 1) {
           mine = Error{ErrorKind::Environment, what, path, "hint", Error::Cause::Damage};
         }
         const auto heard = first_error(*group, at::kCPU, mine);
         require(heard && heard->kind == ErrorKind::Environment, "another error");
         require(heard->where == path.substr(path.size() - 1000), heard->where);
         require(heard->message == what.substr(0, 999), heard->message);
         require(heard->hint == "hint", heard->hint);
         require(heard->cause == Error::Cause::Damage, "another cause");
         require(!first_error(*group, at::kCPU, std::nullopt), "no rank has one");
         group->shutdown();
       }))
    EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace dsj::comm
