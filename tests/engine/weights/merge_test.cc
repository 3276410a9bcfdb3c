// dsj merge against PEFT's merge_and_unload (tests/fixtures/lora).
#include "engine/weights/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "engine/weights/formats/torch_writer.h"
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
                                   {"tiny-gemma4-e2b", "edge"},
                                   {"tiny-qwen2", "dora"},
                                   {"tiny-qwen2-tied", "patterns"},
                                   {"tiny-qwen2", "layers"},
                                   {"tiny-qwen2", "embeddings"},
                                   {"tiny-qwen3-moe", "experts"},
                                   {"tiny-mixtral", "experts-router"},
                                   {"tiny-gpt-oss", "experts-turned"}}) {
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

/// The tensors of an adapter as values, to change and write again.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

Tensors tensors_of(Files& files, const std::string& path) {
  const auto source = WeightSource::open_file(files, path);
  EXPECT_TRUE(source);
  Tensors tensors;
  for (const TensorInfo& info : source->tensors())
    tensors[info.name] = {info.shape, values_of(*source, info.name)};
  return tensors;
}

void write(Files& files, const std::string& path, const Tensors& tensors) {
  std::vector<TensorDeclaration> declared;
  for (const auto& [name, tensor] : tensors) declared.push_back({name, DType::F32, tensor.shape});
  auto writer = SafetensorsWriter::create(files, path, declared);
  ASSERT_TRUE(writer);
  for (const auto& [name, tensor] : tensors) ASSERT_TRUE(writer->append(name, tensor.values));
  ASSERT_TRUE(writer->finish());
}

TEST_F(Merge, ReadsTheFileOfOlderPeft) {
  prepare("tiny-qwen2", "plain");
  const std::string path = "/adapter/adapter_model.safetensors";
  const Tensors tensors = tensors_of(files_, path);
  auto writer = TorchWriter::create(files_, "/adapter/adapter_model.bin");
  ASSERT_TRUE(writer);
  pickled::Entries entries;
  for (const auto& [name, tensor] : tensors)
    entries.emplace_back(pickled::str(name), writer->tensor(tensor.shape));
  ASSERT_TRUE(writer->begin(pickled::dict(entries)));
  for (const auto& [name, tensor] : tensors) ASSERT_TRUE(writer->append(tensor.values));
  ASSERT_TRUE(writer->finish());
  ASSERT_TRUE(files_.remove(path));
  const auto merged = merge();
  ASSERT_TRUE(merged) << merged.error().to_string();
  EXPECT_EQ(merged->updated, 6);
  ASSERT_TRUE(files_.remove("/adapter/adapter_model.bin"));
  EXPECT_FALSE(merge_adapter(files_, {"/base", "/adapter", "/out/other", kShardBytesMax}));
}

/// Rule: a merge adds what adapter_config.json and the file say together, or is refused.
TEST_F(Merge, ADrawnFaultInAnAdapterIsRefused) {
  std::mt19937 draw(20);
  const auto any = [&](auto& tensors) {
    return std::next(tensors.begin(), static_cast<ptrdiff_t>(draw() % tensors.size()));
  };
  const struct {
    const char* says;
    std::function<void(Tensors&, nlohmann::json&)> damage;
  } faults[] = {
      {"adapter_config.json says ",
       [&](Tensors&, nlohmann::json& config) { config["r"] = 5 + draw() % 9; }},
      {"adapter_config.json says ",
       [&](Tensors&, nlohmann::json& config) {
         config["rank_pattern"] = {{"q_proj", 2}};
       }},
      {"nan or infinity",
       [&](Tensors& tensors, nlohmann::json&) {
         auto& values = any(tensors)->second.values;
         values[draw() % values.size()] = draw() % 2 ? std::nanf("") : -INFINITY;
       }},
      {"has no tensors", [&](Tensors& tensors, nlohmann::json&) { tensors.clear(); }},
      {"has no values",
       [&](Tensors& tensors, nlohmann::json&) {
         any(tensors)->second = {{0}, {}};
       }},
      {"not both", [&](Tensors& tensors, nlohmann::json&) { tensors.erase(any(tensors)); }},
      {"another name than PEFT's",
       [&](Tensors& tensors, nlohmann::json&) {
         const auto one = any(tensors);
         const std::string name = one->first;
         const auto at = name.rfind(".weight");
         tensors[draw() % 2 ? name.substr(0, at) + ".default.weight" : "module." + name] =
             one->second;
         tensors.erase(name);
       }},
      {"lacks \"lm_head\"", [&](Tensors&, nlohmann::json& config) {
         config["modules_to_save"] = {"lm_head", "no_such_module"};
       }}};
  for (int round = 0; round < 20; ++round) {
    for (const auto& fault : faults) {
      files_ = MemoryFiles();
      prepare("tiny-qwen2", "plain");
      const std::string weights = "/adapter/adapter_model.safetensors",
                        settings = "/adapter/adapter_config.json";
      Tensors tensors = tensors_of(files_, weights);
      auto config = nlohmann::json::parse(*files_.read_all(settings));
      fault.damage(tensors, config);
      write(files_, weights, tensors);
      ASSERT_TRUE(files_.write_atomically(settings, config.dump()));
      const auto merged = merge();
      ASSERT_FALSE(merged) << fault.says;
      EXPECT_NE(merged.error().to_string().find(fault.says), std::string::npos)
          << merged.error().to_string();
      EXPECT_FALSE(*files_.exists("/out/merged"));
    }
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

  for (const char* name : {"saved", "embeddings"}) {
    files_ = MemoryFiles();
    prepare("tiny-qwen2-tied", name);
    EXPECT_FALSE(merge()) << name;
  }

  files_ = MemoryFiles();
  prepare("tiny-qwen2", "plain");
  copy(files_, fixture("lora/plain/final"), "/parent/checkpoint-10");
  const auto parent = merge_adapter(files_, {"/base", "/parent", "/out/merged", kShardBytesMax});
  ASSERT_FALSE(parent);
  EXPECT_NE(parent.error().to_string().find("name the adapter: /parent/checkpoint-10"),
            std::string::npos)
      << parent.error().to_string();

  files_ = MemoryFiles();
  prepare("tiny-qwen2", "plain");
  ASSERT_TRUE(files_.make_dirs("/out/merged"));
  const auto occupied = merge();
  ASSERT_FALSE(occupied);
  EXPECT_NE(occupied.error().message.find("already exists"), std::string::npos);
}

}  // namespace
}  // namespace dsj::weights
