#include "engine/weights/formats/torch_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "common/files/faulty_files.h"
#include "common/files/memory_files.h"
#include "engine/weights/formats/torch_file.h"

namespace dsj::weights {
namespace {

using namespace pickled;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

std::vector<Tensor> tensors() {
  std::vector<Tensor> all = {
      {"a", {3, 5}, {}}, {"empty", {0, 4}, {}}, {"b", {}, {}}, {"last", {7}, {}}};
  float next = 0;
  for (Tensor& tensor : all) {
    int64_t count = 1;
    for (const int64_t extent : tensor.shape) count *= extent;
    tensor.values.resize(size_t(count));
    for (float& value : tensor.values) value = next += 0.5f;
  }
  return all;
}

/// In pieces of two.
Status write(Files& files, const std::string& path, const std::vector<Tensor>& all) {
  DSJ_TRY(auto writer, TorchWriter::create(files, path));
  std::vector<std::pair<std::string, Value>> entries;
  for (const Tensor& tensor : all) entries.emplace_back(tensor.name, writer.tensor(tensor.shape));
  DSJ_TRY_STATUS(writer.begin(ordered_dict(named(entries))));
  for (const Tensor& tensor : all) {
    for (size_t i = 0; i < tensor.values.size(); i += 2)
      DSJ_TRY_STATUS(writer.append(
          std::span(tensor.values).subspan(i, std::min<size_t>(2, tensor.values.size() - i))));
  }
  return writer.finish();
}

TEST(TorchWriterTest, OurReaderReadsItBackAligned) {
  MemoryFiles files;
  const Status written = write(files, "/x.bin", tensors());
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_FALSE(*files.exists("/x.bin.partial"));
  const auto file = files.open_read("/x.bin");
  const auto read = read_torch_file(**file, "/x.bin");
  ASSERT_TRUE(read) << read.error().to_string();
  ASSERT_EQ(read->size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Tensor expected = tensors()[i];
    const TensorInfo& info = (*read)[i];
    SCOPED_TRACE(expected.name);
    EXPECT_EQ(info.name, expected.name);
    EXPECT_EQ(info.shape, expected.shape);
    EXPECT_EQ(info.dtype, DType::F32);
    EXPECT_EQ(info.begin % ZipWriter::kAlignment, 0);
    std::vector<float> values(expected.values.size());
    ASSERT_TRUE((*file)->read(info.begin, std::as_writable_bytes(std::span(values))));
    EXPECT_EQ(values, expected.values);
  }
}

TEST(TorchWriterTest, TheSameValuesGiveTheSameBytes) {
  MemoryFiles files;
  ASSERT_TRUE(write(files, "/x", tensors()) && write(files, "/y", tensors()));
  EXPECT_EQ(*files.read_all("/x"), *files.read_all("/y"));
}

TEST(TorchWriterTest, ValuesOfEveryKindAreReadBack) {
  MemoryFiles files;
  const Value root =
      dict({{str("numbers"),
             list({integer(0), integer(-1), integer(1LL << 40), integer(-(1LL << 40)), real(0.1)})},
            {str("rest"), tuple({none(), boolean(true), boolean(false), str("ü")})},
            {integer(7), dict({})}});
  auto writer = TorchWriter::create(files, "/x");
  ASSERT_TRUE(writer && writer->begin(root) && writer->finish()) << "without a tensor";
  const auto file = files.open_read("/x");
  const auto archive = TorchArchive::open(**file, "/x");
  ASSERT_TRUE(archive) << archive.error().to_string();
  EXPECT_EQ(archive->pickle(), "\x80\x02" + root + ".");
}

/// Wherever a write fails, the file does not get its name.
TEST(TorchWriterTest, AFullDiskLeavesNoFile) {
  MemoryFiles counted;
  FaultyFiles all(counted, {});
  ASSERT_TRUE(write(all, "/x", tensors()));
  const auto operations = int64_t(all.operations().size());
  ASSERT_GT(operations, 10);
  for (int64_t at = 0; at < operations; ++at) {
    MemoryFiles memory;
    FaultyFiles files(memory, {.at = at, .dies = false});
    const Status written = write(files, "/x", tensors());
    ASSERT_FALSE(written) << at;
    EXPECT_EQ(written.error().message, "no space left (injected)") << at;
    EXPECT_FALSE(*memory.exists("/x")) << at;
  }
}

}  // namespace
}  // namespace dsj::weights
