// One contract for every implementation of the block file: io_uring, threads with O_DIRECT, threads
// through the page cache, and the file in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>

#include "engine/aio/memory_raw.h"
#include "engine/aio/open.h"

namespace dsj::aio {
namespace {

constexpr int64_t kContractSize = 64 * kAlign;

/// Aligned bytes.
class Bytes {
 public:
  explicit Bytes(int64_t size, int fill = 0)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kAlign, size))), size_(size) {
    std::memset(data_, fill, size);
  }
  ~Bytes() { std::free(data_); }
  Bytes(const Bytes&) = delete;
  std::span<std::byte> span() { return {data_, static_cast<size_t>(size_)}; }
  std::span<std::byte> part(int64_t offset, int64_t bytes) { return span().subspan(offset, bytes); }
  bool operator==(const Bytes& other) const { return !std::memcmp(data_, other.data_, size_); }

 private:
  std::byte* data_;
  int64_t size_;
};

struct Kind {
  std::string name;
  Options options;
};

class BlockFileContract : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "dsj_aio_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
    path_ = directory_ + "/file";
    std::filesystem::remove(path_);
    if (GetParam().name == "memory") {
      file_ = std::make_unique<ThreadedFile>(raw_memory(kContractSize), path_, kContractSize,
                                             GetParam().options, "memory");
      return;
    }
    auto created = create_block_file(path_, kContractSize, GetParam().options, GetParam().name);
    if (!created) GTEST_SKIP() << "not here: " << created.error().to_string();
    file_ = std::move(created->file);
    EXPECT_EQ(file_->implementation(), GetParam().name);
  }
  void TearDown() override {
    file_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string directory_, path_;
  std::unique_ptr<BlockFile> file_;
};

TEST_P(BlockFileContract, NewFileIsZero) {
  Bytes out(kContractSize, 7);
  ASSERT_TRUE(file_->wait(file_->read(0, out.span())));
  EXPECT_TRUE(out == Bytes(kContractSize, 0));
  EXPECT_EQ(file_->size(), kContractSize);
  EXPECT_EQ(file_->path(), path_);
}

TEST_P(BlockFileContract, ReadsWhatWasWrittenInAnyPieces) {
  std::mt19937 random(1);
  Bytes model(kContractSize), data(kContractSize), out(kContractSize);
  for (int round = 0; round < 20; ++round) {
    for (auto& byte : data.span()) byte = static_cast<std::byte>(random());
    // Disjoint writes under way together, in no order, of 1 to 20 units.
    std::vector<Ticket> tickets;
    for (int64_t at = 0; at < kContractSize;) {
      const int64_t units = 1 + random() % 20, bytes = std::min(units * kAlign, kContractSize - at);
      if (random() % 3) {
        tickets.push_back(file_->write(at, data.part(at, bytes)));
        std::memcpy(model.part(at, bytes).data(), data.part(at, bytes).data(), bytes);
      }
      at += bytes;
    }
    std::shuffle(tickets.begin(), tickets.end(), random);
    for (const Ticket ticket : tickets) ASSERT_TRUE(file_->wait(ticket));
    ASSERT_TRUE(file_->wait(file_->read(0, out.span())));
    ASSERT_TRUE(out == model) << "round " << round;
  }
}

TEST_P(BlockFileContract, ReadsAndWritesOfOtherRangesGoOnTogether) {
  Bytes ones(kContractSize / 2, 1), twos(kContractSize / 2, 2), out(kContractSize / 2);
  ASSERT_TRUE(file_->wait(file_->write(0, ones.span())));
  const Ticket write = file_->write(kContractSize / 2, twos.span());
  const Ticket read = file_->read(0, out.span());
  EXPECT_TRUE(file_->wait(read));
  EXPECT_TRUE(file_->wait(write));
  EXPECT_TRUE(out == ones);
}

TEST_P(BlockFileContract, AnEmptyRequestIsDone) {
  EXPECT_TRUE(file_->wait(file_->read(0, {})));
}

/// What a file in memory has no path for; its device faults are in faults_test.cc.
class BlockFileOnDisk : public BlockFileContract {};

TEST_P(BlockFileOnDisk, AShortenedFileIsNamedWithItsPlace) {
  std::filesystem::resize_file(path_, 10 * kAlign);
  Bytes out(kContractSize);
  const Status status = file_->wait(file_->read(0, out.span()));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::Environment);
  EXPECT_EQ(status.error().where, path_);
  EXPECT_NE(status.error().message.find("the file ends at " + std::to_string(10 * kAlign)),
            std::string::npos)
      << status.error().message;
  EXPECT_TRUE(file_->wait(file_->read(0, out.part(0, kAlign)))) << "the file stays usable";
}

TEST_P(BlockFileOnDisk, ClosingWaitsForWhatIsUnderWay) {
  Bytes data(kContractSize, 9), out(kContractSize);
  file_->write(0, data.span());
  file_.reset();
  std::FILE* file = std::fopen(path_.c_str(), "rb");
  ASSERT_TRUE(file);
  EXPECT_EQ(std::fread(out.span().data(), 1, kContractSize, file),
            static_cast<size_t>(kContractSize));
  std::fclose(file);
  EXPECT_TRUE(out == data);
}

std::vector<Kind> kinds(const std::vector<std::string>& names) {
  std::vector<Kind> all;
  for (const auto& name : names) {
    all.push_back({name, {}});
    all.push_back({name, {.block_size = kAlign, .queue_depth = 3, .thread_count = 2}});
    all.push_back({name,
                   {.block_size = 3 * kAlign + 5,
                    .queue_depth = 2,
                    .single_submit = true,
                    .overlap_events = false}});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  std::string name = info.param.name + "_" + std::to_string(info.index);
  std::ranges::replace(name, ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    All, BlockFileContract,
    testing::ValuesIn(kinds({"memory", "threads", "O_DIRECT threads", "io_uring"})), name_of);
INSTANTIATE_TEST_SUITE_P(All, BlockFileOnDisk,
                         testing::ValuesIn(kinds({"threads", "O_DIRECT threads", "io_uring"})),
                         name_of);

TEST(CreateBlockFile, NeverFailsForWantOfIoUring) {
  const std::string path = testing::TempDir() + "dsj_aio_any";
  std::filesystem::remove(path);
  const auto created = create_block_file(path, kContractSize, {});
  ASSERT_TRUE(created) << created.error().to_string();
  // Each implementation that was passed over says why.
  const std::string name = created->file->implementation();
  const size_t before = name == "io_uring" ? 0 : name == "O_DIRECT threads" ? 1 : 2;
  EXPECT_EQ(created->passed_over.size(), before);
  std::filesystem::remove(path);
}

TEST(CreateBlockFile, ADiskThatIsTooSmallIsNamedWithTheBytesAndNothingStays) {
  const std::string path = testing::TempDir() + "dsj_aio_full";
  std::filesystem::remove(path);
  const int64_t needed = int64_t{1} << 55;
  const auto created = create_block_file(path, needed, {});
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().kind, ErrorKind::Environment);
  EXPECT_EQ(created.error().where, path);
  EXPECT_NE(created.error().message.find(std::to_string(needed) + " bytes are needed"),
            std::string::npos)
      << created.error().message;
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace dsj::aio
