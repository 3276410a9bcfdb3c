// This test's own program is the file.
#include "agent/stacks/program_file.h"

#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dsj::agent {
namespace {

constexpr char kOwn[] = "/proc/self/exe";

/// Where this program was loaded, from the addresses in its file.
uint64_t bias() {
  uint64_t found = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* result) {
        *static_cast<uint64_t*>(result) = object->dlpi_addr;
        return 1;  // the program itself is the first
      },
      &found);
  return found;
}

extern "C" [[gnu::noinline, gnu::used]] int a_function_of_program_file_test(int number) {
  return number + 1;
}

TEST(ProgramFile, NamesTheFunctionsThatHoldAnAddress) {
  const auto file = ProgramFile::open(kOwn);
  ASSERT_TRUE(file) << file.error().to_string();
  const uint64_t own = reinterpret_cast<uint64_t>(&a_function_of_program_file_test) - bias();
  const auto names = file->functions({own, own + 1, 3});
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names.at(own), "a_function_of_program_file_test");
  EXPECT_EQ(names.at(own + 1), "a_function_of_program_file_test");
}

TEST(ProgramFile, ReadsWhatIsLoadedAtAnAddress) {
  const auto file = ProgramFile::open(kOwn);
  ASSERT_TRUE(file);
  const auto* code = reinterpret_cast<const char*>(&a_function_of_program_file_test);
  EXPECT_EQ(file->read(reinterpret_cast<uint64_t>(code) - bias(), 4), std::string(code, 4));
  EXPECT_EQ(file->read(~uint64_t{0}, 4), "");
  ASSERT_TRUE(file->address_of(0));
  EXPECT_EQ(file->read(*file->address_of(0), 4),
            "\x7f"
            "ELF");
  EXPECT_FALSE(file->address_of(uint64_t{1} << 60));
  EXPECT_NE(file->frame_table(), 0u);
}

TEST(ProgramFile, RefusesWhatIsNoProgramAndBearsOneThatIsCutOff) {
  EXPECT_EQ(ProgramFile::open("/nonexistent").error().message, "No such file or directory");
  EXPECT_EQ(ProgramFile::open("/dev/null").error().message, "not a program of x86-64");
  const std::string path = testing::TempDir() + "cut-" + std::to_string(getpid());
  std::filesystem::copy_file(std::filesystem::read_symlink(kOwn), path);
  for (const uintmax_t size : {uintmax_t{4096}, uintmax_t{64}, uintmax_t{63}}) {
    std::filesystem::resize_file(path, size);
    const auto file = ProgramFile::open(path);
    EXPECT_EQ(file.has_value(), size > 63);
    EXPECT_TRUE(!file || file->functions({1, 2, 3}).empty());
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace dsj::agent
