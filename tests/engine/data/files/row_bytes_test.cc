#include "engine/data/files/row_bytes.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <map>
#include <string>
#include <vector>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(compressBound(text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string sample(size_t bytes) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) text += "row " + std::to_string(i * i) + "\n";
  text.resize(bytes);
  return text;
}

std::string bytes_text(const ReadFile& file) {
  std::string text(static_cast<size_t>(file.size()), '\0');
  EXPECT_TRUE(file.read(0, std::as_writable_bytes(std::span(text))));
  char past;
  EXPECT_FALSE(file.read(file.size(), std::as_writable_bytes(std::span(&past, 1))));
  return text;
}

struct Read {
  std::string text, error;
  size_t left = 0;  ///< files in the directory while it is open
};

Read read(const std::string& packed, int64_t memory_bytes_max = 8 << 20) {
  MemoryFiles files;
  EXPECT_TRUE(files.write_synced("rows.jsonl", packed));
  const auto file = open_row_bytes(files, "rows.jsonl",
                                   {.directory = "u/v", .memory_bytes_max = memory_bytes_max});
  if (!file) return {.text = {}, .error = file.error().to_string()};
  const std::string text = bytes_text(*file->file);
  const auto entries = files.list_dir("u/v");
  return {text, "", entries ? entries->size() : 0};
}

TEST(RowBytes, PackedFilesOfAnySizeAreUnpackedByContent) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1 << 20}, size_t{(5 << 20) + 17}}) {
    const std::string text = sample(bytes);
    for (const std::string& packed :
         {text, gzip(text), zstd(text),
          gzip(text.substr(0, bytes / 2)) + gzip(text.substr(bytes / 2)),
          zstd(text.substr(0, bytes / 2)) + zstd(text.substr(bytes / 2)),
          gzip(text) + std::string(512, '\0')}) {
      for (const int64_t memory : {int64_t{1000}, int64_t{8} << 20}) {
        const Read found = read(packed, memory);
        EXPECT_EQ(found.error, "");
        EXPECT_EQ(found.text == text, true) << bytes;
        EXPECT_EQ(found.left, 0u) << "nothing is left behind";
      }
    }
  }
}

TEST(RowBytes, DamageIsReported) {
  const std::string text = sample(100'000);
  for (const auto& packed : {gzip(text), zstd(text)}) {
    EXPECT_NE(read(packed.substr(0, packed.size() / 2)).error.find("rows.jsonl: ends inside"),
              std::string::npos);
    EXPECT_NE(read(packed.substr(0, packed.size() - 1)).error.find("ends inside"),
              std::string::npos);
    std::string damaged = packed;
    for (size_t i = packed.size() / 3; i < packed.size() / 3 + 40; ++i) damaged[i] ^= 0x5A;
    EXPECT_NE(read(damaged).error, "");
    EXPECT_NE(read(packed + "more").error, "") << "text behind it is no member of it";
  }
}

class RowBytesKept : public testing::Test {
 protected:
  RowBytesKept() { EXPECT_TRUE(files_.write_synced("rows.json.gz", gzip(sample_))); }
  std::string open(int64_t now = 1000) {
    const auto rows = open_row_bytes(
        files_, "rows.json.gz",
        {.directory = "/u", .memory_bytes_max = 1000, .keep = true, .now = now, .process = 3});
    EXPECT_TRUE(rows) << rows.error().to_string();
    key_ = rows->content;
    return bytes_text(*rows->file);
  }
  std::vector<std::string> kept() {
    std::vector<std::string> names;
    const auto entries = files_.list_dir("/u");
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  MemoryFiles files_;
  const std::string sample_ = sample(200'000);
  std::string key_;
};

TEST_F(RowBytesKept, TheNextProcessReusesIt) {
  EXPECT_EQ(open() == sample_, true);
  EXPECT_EQ(kept(), std::vector<std::string>{"000000001000-" + key_ + ".text"});
  // The cached text is used: another text under the key shows that nothing is unpacked again.
  const std::string path = "/u/" + kept()[0];
  std::string other = files_.read_all(path).value();
  other[0] = '!';
  EXPECT_TRUE(files_.write_synced(path, other));
  EXPECT_EQ(open(2000)[0], '!');
  EXPECT_EQ(kept().size(), 1u);
  // Other content has another key.
  EXPECT_TRUE(files_.write_synced("rows.json.gz", gzip("x" + sample_)));
  EXPECT_EQ(open(2000) == "x" + sample_, true);
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(RowBytesKept, ATruncatedEntryIsUnpackedAgain) {
  EXPECT_EQ(open() == sample_, true);
  const std::string path = "/u/" + kept()[0];
  const std::string whole = files_.read_all(path).value();
  for (const size_t bytes : {size_t{0}, size_t{5}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_TRUE(files_.write_synced(path, whole.substr(0, bytes)));
    EXPECT_EQ(open() == sample_, true) << bytes;
    EXPECT_EQ(files_.read_all(path).value() == whole, true) << bytes;
  }
}

TEST_F(RowBytesKept, SmallTextStaysInMemory) {
  EXPECT_TRUE(files_.write_synced("rows.json.gz", gzip("few")));
  EXPECT_EQ(open(), "few");
  EXPECT_TRUE(kept().empty());
}

TEST_F(RowBytesKept, ADamagedFileLeavesNothing) {
  const std::string packed = gzip(sample_);
  EXPECT_TRUE(files_.write_synced("rows.json.gz", packed.substr(0, packed.size() / 2)));
  EXPECT_FALSE(open_row_bytes(files_, "rows.json.gz",
                              {.directory = "/u", .memory_bytes_max = 1000, .keep = true}));
  EXPECT_TRUE(kept().empty());
}

TEST(RowBytes, FindsTheDirectoryForUnpackedText) {
  std::map<std::string, std::string> set;
  const auto variable = [&set](const char* name) {
    return set.contains(name) ? set[name].c_str() : nullptr;
  };
  EXPECT_EQ(unpack_directory(variable), "/tmp");
  set["TMPDIR"] = "/scratch";
  EXPECT_EQ(unpack_directory(variable), "/scratch");
  set["HOME"] = "/home/a";
  EXPECT_EQ(unpack_directory(variable), "/home/a/.cache/dsj/unpacked");
}

}  // namespace
}  // namespace dsj::data
