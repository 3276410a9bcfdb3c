// A rank's environment: each variable that is out of range is refused by name, none is passed over.
#include "engine/train/inputs/rank_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace dsj::train {
namespace {

using testing::HasSubstr;

/// Sets a variable, and puts back on leaving what was there.
class SetVariable {
 public:
  SetVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* now = std::getenv(name_.c_str())) before_ = now;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~SetVariable() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const std::string name_;
  std::optional<std::string> before_;
};

std::string refusal(const std::string& name, const std::string& value) {
  const SetVariable job("DSJ_JOB_FILE", "job.json"), tried(name, value);
  const auto env = rank_env();
  return env ? "accepted" : env.error().to_string();
}

TEST(RankEnv, CollectiveTimeout) {
  constexpr char kName[] = "DSJ_COLLECTIVE_TIMEOUT_SECONDS";
  for (const char* bad : {"", "abc", "0", "-5", "30abc", "inf", "nan", "86401"}) {
    EXPECT_THAT(refusal(kName, bad), HasSubstr(std::string(kName) + " is \"" + bad + "\"")) << bad;
  }
  const SetVariable job("DSJ_JOB_FILE", "job.json");
  EXPECT_EQ(rank_env()->collective_timeout, std::chrono::minutes(10));
  const SetVariable quarter(kName, "0.25");
  EXPECT_EQ(rank_env()->collective_timeout, std::chrono::milliseconds(250));
}

TEST(RankEnv, FlightLog) {
  EXPECT_THAT(refusal("DSJ_FLIGHT_FD", "memory"), HasSubstr("DSJ_FLIGHT_FD is \"memory\""));
  const SetVariable job("DSJ_JOB_FILE", "job.json");
  EXPECT_EQ(rank_env()->flight_fd, -1);
  const SetVariable memory("DSJ_FLIGHT_FD", "12");
  EXPECT_EQ(rank_env()->flight_fd, 12);
}

TEST(RankEnv, KernelSwitches) {
  EXPECT_THAT(refusal("DSJ_ISA", "avx9"), HasSubstr("DSJ_ISA is \"avx9\"; this processor has"));
  EXPECT_THAT(refusal("DSJ_ISA", "avx9"), HasSubstr("baseline"));
  EXPECT_EQ(refusal("DSJ_ISA", "baseline"), "accepted");
  EXPECT_THAT(refusal("DSJ_NATIVE_BF16", "no"), HasSubstr("expected 0 or 1"));
  EXPECT_EQ(refusal("DSJ_NATIVE_BF16", "0"), "accepted");
  EXPECT_THAT(refusal("DSJ_PRODUCTS", "mine"), HasSubstr("expected own or library"));
  EXPECT_EQ(refusal("DSJ_PRODUCTS", "own"), "accepted");
}

TEST(RankEnv, RankBelowWorldSize) {
  const SetVariable world("WORLD_SIZE", "2");
  EXPECT_THAT(refusal("RANK", "2"), HasSubstr("RANK 2 is not below WORLD_SIZE 2"));
  EXPECT_THAT(refusal("RANK", "one"), HasSubstr("RANK is \"one\", expected a number"));
}

}  // namespace
}  // namespace dsj::train
