// The checkpoints that DeepSpeed 0.19.8 wrote (golden/ds_checkpoints): the fp32 values are its own, bit by bit.
// train/resume_test.cc goes on training from them.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/reader.h"
#include "engine/deepspeed/checkpoint.h"
#include "engine/deepspeed/convert.h"
#include "engine/weights/weight_source.h"
#include "test_paths.h"
#include "tests/engine/support/golden_runs.h"

namespace dsj::deepspeed {
namespace {

using nlohmann::json;

/// SHA-256 (FIPS 180-4).
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      block_[size_t(length_++ % 64)] = static_cast<uint8_t>(byte);
      if (length_ % 64 == 0) close_block();
    }
  }
  std::string hex() {
    const uint64_t bits = length_ * 8;
    const std::byte end{0x80}, zero{0};
    add({&end, 1});
    while (length_ % 64 != 56) add({&zero, 1});
    for (int i = 7; i >= 0; --i) {
      const auto byte = static_cast<std::byte>(bits >> (8 * i));
      add({&byte, 1});
    }
    std::string text;
    for (const uint32_t word : state_) {
      std::array<char, 9> digits;
      std::snprintf(digits.data(), digits.size(), "%08x", word);
      text += digits.data();
    }
    return text;
  }

 private:
  /// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
  static const std::array<uint32_t, 64>& constants() {
    static const auto table = [] {
      std::array<uint32_t, 64> values{};
      size_t count = 0;
      for (uint32_t prime = 2; count < 64; ++prime) {
        bool divides = false;
        for (uint32_t i = 2; i * i <= prime; ++i) divides = divides || prime % i == 0;
        if (divides) continue;
        const long double root = std::cbrt(static_cast<long double>(prime));
        values[count++] = static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
      }
      return values;
    }();
    return table;
  }
  void close_block() {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i)
      w[i] = uint32_t(block_[4 * i]) << 24 | uint32_t(block_[4 * i + 1]) << 16 |
             uint32_t(block_[4 * i + 2]) << 8 | block_[4 * i + 3];
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto s = state_;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t e = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
      const uint32_t one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants()[i] + w[i];
      const uint32_t a = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
      const uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) state_[i] += s[i];
  }
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t length_ = 0;
};

std::filesystem::path golden() {
  return dsj::testing_support::golden_directory() / "ds_checkpoints";
}

/// Of the masters' bytes in ascending order of names, as the record has it.
std::string hash_of(checkpoint::SavedRun& saved, const std::vector<Parameter>& parameters) {
  std::map<std::string, int64_t> sizes;
  for (const Parameter& parameter : parameters) sizes[parameter.name] = parameter.elements;
  Sha256 hash;
  for (const auto& [name, elements] : sizes) {
    std::vector<float> values(static_cast<size_t>(elements));
    const Status read = saved.read("master", name, 0, values);
    EXPECT_TRUE(read) << read.error().to_string();
    hash.add(std::as_bytes(std::span(values)));
  }
  return hash.hex();
}

TEST(DeepSpeedGolden, TheHashIsSha256) {
  Sha256 hash;
  hash.add(as_bytes("abc"));
  EXPECT_EQ(hash.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DeepSpeedGolden, EveryRecordedCheckpointHasItsValues) {
  if (!std::filesystem::exists(golden()))
    GTEST_SKIP() << "skipped: " << golden() << " is not there";
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden())) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path();
    std::ifstream file(folder + "/record.json");
    const json record = json::parse(file);
    for (const bool universal : {false, true}) {
      if (universal && !std::filesystem::exists(folder + "/latest_universal")) continue;
      SCOPED_TRACE(folder + (universal ? ", universal" : ""));
      PosixFiles files;
      auto saved = Checkpoint::open(files, folder, {.universal = universal});
      ASSERT_TRUE(saved) << saved.error().to_string();
      ++read;
      EXPECT_EQ(saved->universal(), universal);
      EXPECT_EQ(saved->step(), 3);
      EXPECT_EQ(saved->run_state()["updates"], 3);
      EXPECT_EQ(saved->run_state()["skipped"], 0);
      EXPECT_EQ(saved->stage(), record["ds_config"]["zero_optimization"]["stage"]);
      EXPECT_EQ(saved->version(), "0.19.8");
      EXPECT_EQ(saved->parameters().size(), record["weights_at_save"].size());
      EXPECT_EQ(saved->frozen_count(), record["frozen"].is_null() ? 0u : 1u);
      EXPECT_EQ(record["sha256_fp32_at_save"], hash_of(*saved, saved->parameters()));
      const Status sound = saved->verify();
      EXPECT_TRUE(sound) << sound.error().to_string();
    }
  }
  EXPECT_EQ(read, 11);
}

TEST(DeepSpeedGolden, ExportedWeightsAreZeroToFp32s) {
  if (!std::filesystem::exists(golden()))
    GTEST_SKIP() << "skipped: " << golden() << " is not there";
  for (const char* name : {"qwen2_fp32_z2_w3", "qwen2_fp32_z3_w2_groups2_frozen_sub"}) {
    PosixFiles disk;
    auto saved = Checkpoint::open(disk, golden() / name);
    ASSERT_TRUE(saved) << saved.error().to_string();
    MemoryFiles files;
    ASSERT_TRUE(export_fp32(files, *saved, saved->parameters(), "/out"));
    const auto source = weights::WeightSource::open(files, "/out");
    ASSERT_TRUE(source) << source.error().to_string();
    std::map<std::string, int64_t> sizes;
    for (const auto& tensor : source->tensors()) sizes[tensor.name] = tensor.elements;
    Sha256 hash;
    for (const auto& [tensor, elements] : sizes) {
      std::vector<float> values(static_cast<size_t>(elements));
      ASSERT_TRUE(source->read(tensor, 0, values));
      hash.add(std::as_bytes(std::span(values)));
    }
    std::ifstream file(golden() / name / "record.json");
    EXPECT_EQ(json::parse(file)["sha256_fp32_at_save"], hash.hex()) << name;
  }
}

}  // namespace
}  // namespace dsj::deepspeed
