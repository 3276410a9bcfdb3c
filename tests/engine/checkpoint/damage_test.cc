#include "engine/checkpoint/damage.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/files/file_error.h"

namespace dsj::checkpoint {
namespace {

TEST(Damage, IsWhatIsMissingOrCannotBeReadBack) {
  for (const int number : {ENOENT, ENOTDIR, EIO, EUCLEAN, EBADMSG, ENODATA}) {
    const Error error = judged(file_error("reading 5 bytes at 0", "/c/rank-00001.bin", number));
    EXPECT_TRUE(error.cause == Error::Cause::Damage) << error.to_string();
    EXPECT_EQ(error.kind, ErrorKind::Environment);
    EXPECT_EQ(error.where, "/c/rank-00001.bin");
  }
  EXPECT_TRUE(damaged("half of it", "/c/manifest.json").error().cause == Error::Cause::Damage);
}

TEST(Damage, IsNotWhatMayPassNorWhatIsForbidden) {
  for (const int number :
       {EMFILE, ENFILE, EINTR, ESTALE, ETIMEDOUT, ENOMEM, EACCES, EPERM, ENOSPC}) {
    const Error error = file_error("opening for reading", "/c/rank-00001.bin", number);
    EXPECT_FALSE(judged(error).cause == Error::Cause::Damage) << error.to_string();
    EXPECT_EQ(judged(error).to_string(), error.to_string());
    EXPECT_EQ(judged(error).kind, error.kind);
  }
}

}  // namespace
}  // namespace dsj::checkpoint
