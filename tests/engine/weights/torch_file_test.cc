// pytorch_model.bin as torch.save writes it (fixtures made by torch), what is refused, and hostile
// bytes.
#include "engine/weights/formats/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "common/files/counting_files.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "engine/weights/formats/state_dict_pickle.h"
#include "engine/weights/formats/zip_directory.h"
#include "engine/weights/weight_source.h"
#include "test_paths.h"

namespace dsj::weights {
namespace {

using nlohmann::json;

std::string torch_fixture(const std::string& name) {
  return std::string(DSJ_SOURCE_DIR) + "/tests/engine/weights/fixtures/torch/" + name;
}

std::string bytes_of(const std::string& name) {
  std::ifstream file(torch_fixture(name), std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class TorchFile : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.make_dir("/m")); }
  Result<WeightSource> open(const std::string& bytes) {
    EXPECT_TRUE(files_.write_synced("/m/pytorch_model.bin", bytes));
    return WeightSource::open(files_, "/m");
  }
  std::string refusal(const std::string& bytes) {
    const auto source = open(bytes);
    EXPECT_FALSE(source);
    if (source) return {};
    EXPECT_EQ(source.error().kind, ErrorKind::BadInput);
    return source.error().to_string();
  }
  MemoryFiles files_;
};

TEST_F(TorchFile, EveryTensorIsTorchs) {
  const auto source = open(bytes_of("state.bin"));
  ASSERT_TRUE(source) << source.error().to_string();
  const json expected = json::parse(std::ifstream(torch_fixture("state.json")));
  EXPECT_EQ(source->tensors().size(), expected["tensors"].size() + 2) << "the mask, the integers";
  EXPECT_EQ(source->find("mask")->dtype, DType::Bool);
  EXPECT_EQ(source->find("integers")->dtype, DType::I64);
  for (const auto& [name, tensor] : expected["tensors"].items()) {
    const TensorInfo* info = source->find(name);
    ASSERT_TRUE(info) << name;
    EXPECT_EQ(info->shape, tensor["shape"].get<std::vector<int64_t>>()) << name;
    const auto want = tensor["values"].get<std::vector<float>>();
    std::vector<float> got(want.size(), NAN);
    ASSERT_TRUE(source->read(name, 0, got));
    EXPECT_EQ(got, want) << name;
  }
}

TEST_F(TorchFile, ReadsTheDirectoryThenOnlyTheAskedElements) {
  ASSERT_TRUE(files_.write_synced("/m/pytorch_model.bin", bytes_of("state.bin")));
  CountingFiles counting(files_);
  const auto source = WeightSource::open(counting, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  counting.reset();
  std::vector<float> out(5);
  ASSERT_TRUE(source->read("big", 100, out));
  EXPECT_EQ(out, (std::vector<float>{100, 101, 102, 103, 104}));
  EXPECT_EQ(counting.total().bytes_read, 20);
}

TEST_F(TorchFile, APlainDictIsAStateDictToo) {
  const auto source = open(bytes_of("plain_dict.bin"));
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_EQ(source->find("b")->shape, (std::vector<int64_t>{1, 2}));
}

TEST_F(TorchFile, ShardsAndTheirIndex) {
  ASSERT_TRUE(
      files_.write_synced("/m/pytorch_model-00001-of-00002.bin", bytes_of("plain_dict.bin")));
  ASSERT_TRUE(files_.write_synced("/m/pytorch_model-00002-of-00002.bin", bytes_of("state.bin")));
  ASSERT_TRUE(files_.write_synced("/m/pytorch_model.bin.index.json", R"({"weight_map": {
      "a": "pytorch_model-00001-of-00002.bin", "whole": "pytorch_model-00002-of-00002.bin"}})"));
  const auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_TRUE(source->find("b") && source->find("rows"));
  EXPECT_EQ(source->paths().size(), 2u);
  ASSERT_TRUE(files_.remove("/m/pytorch_model-00002-of-00002.bin"));
  EXPECT_FALSE(WeightSource::open(files_, "/m"));
}

TEST_F(TorchFile, SafetensorsAreTakenWhereBothAreThere) {
  ASSERT_TRUE(files_.write_synced("/m/pytorch_model.bin", "not looked at"));
  auto writer = SafetensorsWriter::create(files_, "/m/model.safetensors", {{"x", DType::F32, {1}}});
  ASSERT_TRUE(writer->append("x", std::vector<float>{1}));
  ASSERT_TRUE(writer->finish());
  const auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_TRUE(source->find("x"));
}

TEST_F(TorchFile, WhatTorchSavesBesidesIsRefusedByName) {
  for (const auto& [name, reason] : {std::pair("legacy.bin", "before PyTorch 1.6"),
                                     {"protocol4.bin", "protocol 4"},
                                     {"transposed.bin", "\"a\": its elements are not row-major"},
                                     {"parameter.bin", "torch._utils._rebuild_parameter"},
                                     {"training.bin", "\"epoch\" is not a tensor"},
                                     {"list.bin", "a dict of tensors is expected"},
                                     {"compressed.bin", "is compressed"}}) {
    const std::string text = refusal(bytes_of(name));
    EXPECT_NE(text.find(reason), std::string::npos) << name << ": " << text;
  }
}

TEST_F(TorchFile, AnEncryptedEntryIsRefused) {
  std::string bytes = bytes_of("plain_dict.bin");
  const size_t central = bytes.find("PK\1\2");
  ASSERT_NE(central, std::string::npos);
  bytes[central + 8] |= 1;
  EXPECT_NE(refusal(bytes).find("is encrypted"), std::string::npos);
}

TEST_F(TorchFile, AStorageOfAnotherSizeIsRefused) {
  std::string bytes = bytes_of("plain_dict.bin");
  // The pickle announces the storage of "a" with BININT1 2 before its tuple ends ('t'), after the
  // device's text.
  const size_t cpu = bytes.find("cpu");
  const size_t count = bytes.find(std::string("K\2"), cpu);
  ASSERT_NE(count, std::string::npos);
  bytes[count + 1] = 9;
  EXPECT_NE(refusal(bytes).find("announced with 9 elements"), std::string::npos);
}

TEST_F(TorchFile, EveryTruncationIsRefused) {
  const std::string whole = bytes_of("plain_dict.bin");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(open(whole.substr(0, length))) << length;
  }
}

TEST_F(TorchFile, DamagedBytesAreReadOrRefusedNeverWorse) {
  const std::string whole = bytes_of("state.bin");
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 1 + round % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto source = open(bytes);
    if (!source) {
      EXPECT_EQ(source.error().kind, ErrorKind::BadInput);
      ++refused;
      continue;
    }
    for (const TensorInfo& tensor : source->tensors()) {
      if (!is_weight_dtype(tensor.dtype)) continue;
      std::vector<float> out(static_cast<size_t>(tensor.elements));
      EXPECT_TRUE(source->read(tensor.name, 0, out)) << tensor.name;
    }
  }
  EXPECT_GT(refused, 100);
}

// ---- the pickle alone

std::string pickle_refusal(const std::string& bytes) {
  const auto read = read_state_dict_pickle(bytes, "x.bin");
  EXPECT_FALSE(read) << bytes;
  return read ? "" : read.error().message;
}

std::string text(const std::string& value) {
  return std::string("X") + static_cast<char>(value.size()) + std::string(3, '\0') + value;
}

TEST(StateDictPickle, NamesThatAreCalledAreRefused) {
  EXPECT_NE(pickle_refusal("\x80\2cos\nsystem\n" + text("true") + "\x85R.").find("\"os.system\""),
            std::string::npos);
  EXPECT_NE(pickle_refusal("\x80\2c__builtin__\neval\n)R.").find("__builtin__.eval"),
            std::string::npos);
  EXPECT_NE(pickle_refusal("\x80\2ccollections\nOrderedDict\n" + text("x") + "\x85R.")
                .find("a call that a state dict does not make"),
            std::string::npos);
}

TEST(StateDictPickle, MalformedProgramsAreRefused) {
  for (const std::string& bytes : {std::string(),
                                   std::string("\x80"),
                                   std::string("\x80\2"),
                                   std::string("\x80\2."),
                                   std::string("\x80\2}"),
                                   std::string("\x80\2}}."),
                                   std::string("\x80\2\x85."),
                                   std::string("\x80\2t."),
                                   std::string("\x80\2u."),
                                   std::string("\x80\2(u."),
                                   std::string("\x80\2}("  // the dict lies below the mark
                                               "s."),
                                   std::string("\x80\2q\0.", 5),
                                   std::string("\x80\2h\7."),
                                   std::string("\x80\2R."),
                                   std::string("\x80\2Q."),
                                   std::string("\x80\2b."),
                                   std::string("\x80\2X\xff\xff\xff\x7f."),
                                   std::string("\x80\2}(K\1u."),
                                   std::string("\x80\2}K\1K\2s."),
                                   std::string("\x80\2}X\1\0\0\0aNs.", 12),
                                   std::string("\x80\2\x8a\x09") + std::string(9, 'x'),
                                   std::string("\x80\2c\n"),
                                   std::string("\x80\2)Q."),
                                   std::string("\x80\2K\1.")}) {
    EXPECT_NE(pickle_refusal(bytes), "");
  }
  const auto empty = read_state_dict_pickle("\x80\2}.", "x.bin");
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->empty());
}

TEST(StateDictPickle, DepthAndNumberAreBounded) {
  // Nesting costs no stack, and values are counted.
  const std::string deep = "\x80\2)" + std::string(500'000, '\x85') + ".";
  EXPECT_NE(pickle_refusal(deep).find("a dict of tensors is expected"), std::string::npos);
  EXPECT_NE(pickle_refusal("\x80\2" + std::string(2'000'000, ')') + ".").find("too many values"),
            std::string::npos);
  EXPECT_NE(pickle_refusal("\x80\2" + std::string(2'000'000, '(') + ".").find("too many marks"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::weights
