// dsj merge against PEFT's merge_and_unload (tests/fixtures/lora).
#include "engine/weights/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/weight_source.h"
#include "tests/engine/support/fixtures.h"

namespace dsj::weights {
namespace {

using testing_support::fixture;

/// Copies files of the disk into `files`.
void copy(Files& files, const std::string& from, const std::string& to) {
  PosixFiles disk;
  ASSERT_TRUE(files.make_dirs(to));
  const auto entries = disk.list_dir(from);
  ASSERT_TRUE(entries) << entries.error().to_string();
  for (const auto& entry : *entries) {
    if (entry.kind != EntryKind::File) continue;
    ASSERT_TRUE(files.write_atomically(path_join(to, entry.name),
                                       *disk.read_all(path_join(from, entry.name))));
  }
}

std::vector<float> values_of(const WeightSource& source, const std::string& name) {
  std::vector<float> values(source.find(name)->elements);
  EXPECT_TRUE(source.read(name, 0, values));
  return values;
}

class Merge : public testing::Test {
 protected:
  void prepare(const std::string& base, const std::string& name) {
    copy(files_, fixture(base), "/base");
    copy(files_, fixture("lora/" + name + "/final"), "/adapter");
    ASSERT_TRUE(files_.make_dirs("/out"));
  }
  Result<Merged> merge(int64_t shard = kShardBytesMax) {
    return merge_adapter(files_, {"/base", "/adapter", "/out/merged", shard});
  }
  MemoryFiles files_;
};

TEST_F(Merge, EqualsMergeAndUnload) {
  for (const auto& [base, name] : {std::pair{"tiny-qwen2", "plain"},
                                   {"tiny-qwen2-tied", "linear"},
                                   {"tiny-qwen2", "saved"},
                                   {"tiny-qwen2-tied", "tied"},
                                   {"lora/gpt2-base", "gpt2"},
                                   {"tiny-gpt-neox", "groups"},
                                   {"tiny-gemma3-vision", "vision"},
                                   {"tiny-gemma4", "shapes"},
                                   {"tiny-qwen2", "dora"},
                                   {"tiny-qwen2-tied", "patterns"},
                                   {"tiny-qwen2", "layers"}}) {
    files_ = MemoryFiles();
    prepare(base, name);
    const auto merged = merge();
    ASSERT_TRUE(merged) << name << ": " << merged.error().to_string();
    PosixFiles disk;
    const auto want =
        WeightSource::open_file(disk, fixture("lora/") + name + "/merged.safetensors");
    const auto before = WeightSource::open(files_, "/base");
    const auto got = WeightSource::open(files_, "/out/merged");
    ASSERT_TRUE(want && before && got);
    EXPECT_EQ(merged->updated + merged->replaced, static_cast<int64_t>(want->tensors().size()));
    ASSERT_EQ(got->tensors().size(), before->tensors().size());
    for (const auto& tensor : got->tensors()) {
      const bool changed = want->find(tensor.name) != nullptr;
      const auto expected = values_of(changed ? *want : *before, tensor.name);
      const auto found = values_of(*got, tensor.name);
      ASSERT_EQ(tensor.shape, before->find(tensor.name)->shape);
      for (size_t i = 0; i < expected.size(); ++i) {
        if (changed)
          ASSERT_NEAR(found[i], expected[i], 1e-6) << name << " " << tensor.name << " " << i;
        else
          ASSERT_EQ(found[i], expected[i]) << name << " " << tensor.name << " " << i;
      }
    }
  }
}

TEST_F(Merge, KeepsTheBasesTypesAndShards) {
  prepare("tiny-qwen2", "plain");
  // The base again in bf16, in shards of 40 kB.
  const auto source = WeightSource::open(files_, "/base");
  std::vector<TensorDeclaration> declared;
  for (const auto& tensor : source->tensors())
    declared.push_back({tensor.name, DType::BF16, tensor.shape});
  ASSERT_TRUE(files_.make_dirs("/half"));
  auto writer = ModelWriter::create(files_, "/half", declared, 40'000);
  for (const auto& tensor : source->tensors())
    ASSERT_TRUE(writer->append(tensor.name, values_of(*source, tensor.name)));
  ASSERT_TRUE(writer->finish());
  ASSERT_TRUE(files_.write_atomically("/half/config.json", R"({"model_type": "qwen2"})"));
  const auto merged = merge_adapter(files_, {"/half", "/adapter", "/out/merged", 40'000});
  ASSERT_TRUE(merged) << merged.error().to_string();
  const auto got = WeightSource::open(files_, "/out/merged");
  ASSERT_TRUE(got);
  EXPECT_GT(got->paths().size(), 1u);
  EXPECT_EQ(got->dtype(), DType::BF16);
  PosixFiles disk;
  const auto fp32 = WeightSource::open_file(disk, fixture("lora/plain/merged.safetensors"));
  for (const auto& tensor : fp32->tensors()) {
    const auto want = values_of(*fp32, tensor.name), found = values_of(*got, tensor.name);
    for (size_t i = 0; i < want.size(); ++i)  // the base and the sum, each rounded once
      ASSERT_NEAR(found[i], want[i], std::abs(want[i]) / 256 + 0.01) << tensor.name << " " << i;
  }
}

TEST_F(Merge, RefusesWhatDoesNotFit) {
  prepare("tiny-qwen1.5", "plain");
  const auto other = merge();
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("has shape"), std::string::npos)
      << other.error().to_string();
  EXPECT_FALSE(*files_.exists("/out/merged"));

  files_ = MemoryFiles();
  prepare("lora/gpt2-base", "plain");
  const auto foreign = merge();
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("has no place in"), std::string::npos);

  files_ = MemoryFiles();
  prepare("tiny-qwen2-tied", "saved");
  EXPECT_FALSE(merge());

  files_ = MemoryFiles();
  prepare("tiny-qwen2", "plain");
  ASSERT_TRUE(files_.make_dirs("/out/merged"));
  const auto occupied = merge();
  ASSERT_FALSE(occupied);
  EXPECT_NE(occupied.error().message.find("already exists"), std::string::npos);
}

}  // namespace
}  // namespace dsj::weights
