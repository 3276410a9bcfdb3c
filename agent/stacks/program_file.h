// An ELF file of x86-64 (System V gABI, chapters 4 and 5), as far as stacks need it: where its bytes lie
// in memory, its frame information, and the names of its functions. Reads what is asked for, so that a
// library of half a gigabyte costs nothing; never maps the file, which may be cut off under the reader.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

class ProgramFile {
 public:
  /// Environment: it cannot be opened, or is no such file.
  static Result<ProgramFile> open(const std::string& path);
  ~ProgramFile();
  ProgramFile(ProgramFile&& other) noexcept;
  ProgramFile& operator=(ProgramFile&&) = delete;

  /// The address that the file itself gives to its byte `offset`; nullopt: it is not loaded.
  std::optional<uint64_t> address_of(uint64_t offset) const;
  /// Up to `most` bytes at such an address, of one part of the file.
  std::string read(uint64_t address, size_t most) const;
  /// The address of .eh_frame_hdr; 0: the file has none.
  uint64_t frame_table() const { return frame_table_; }
  /// The functions that hold these addresses, as the file names them. Those that no symbol holds are
  /// left out. One pass over the symbols, however many addresses.
  std::map<uint64_t, std::string> functions(const std::set<uint64_t>& addresses) const;

 private:
  struct Part {
    uint64_t offset, address, size;
  };
  explicit ProgramFile(int fd) : fd_(fd) {}
  Status read_parts(const std::string& path);
  std::string bytes(uint64_t offset, size_t most) const;
  struct Symbols;
  Symbols find_symbols() const;

  int fd_;
  std::vector<Part> parts_;
  uint64_t frame_table_ = 0;
};

}  // namespace dsj::agent
