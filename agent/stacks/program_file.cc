#include "agent/stacks/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dsj::agent {
namespace {

constexpr size_t kHeadersMost = 4096, kNameMost = 1024;
constexpr size_t kSymbolsAtOnce = 4096;

/// The entry `index` of a table of T in `bytes`; zeros: it ends before.
template <typename T>
T entry(const std::string& bytes, size_t index) {
  T value{};
  if ((index + 1) * sizeof(T) <= bytes.size()) {
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  }
  return value;
}

}  // namespace

Result<ProgramFile> ProgramFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fail(ErrorKind::Environment, std::strerror(errno), path);
  ProgramFile file(fd);
  DSJ_TRY_STATUS(file.read_parts(path));
  return file;
}

ProgramFile::~ProgramFile() {
  if (fd_ >= 0) close(fd_);
}

ProgramFile::ProgramFile(ProgramFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      parts_(std::move(other.parts_)),
      frame_table_(other.frame_table_) {}

std::string ProgramFile::bytes(uint64_t offset, size_t most) const {
  std::string result(most, '\0');
  if (offset > INT64_MAX) return {};
  const ssize_t got = pread(fd_, result.data(), most, static_cast<off_t>(offset));
  result.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return result;
}

Status ProgramFile::read_parts(const std::string& path) {
  const std::string head = bytes(0, sizeof(Elf64_Ehdr));
  const auto header = entry<Elf64_Ehdr>(head, 0);
  if (head.size() < sizeof header || !head.starts_with(ELFMAG) ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return fail(ErrorKind::Environment, "not a program of x86-64", path);
  }
  const std::string table = bytes(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const auto part = entry<Elf64_Phdr>(table, i);
    if (part.p_type == PT_LOAD) parts_.push_back({part.p_offset, part.p_vaddr, part.p_filesz});
    if (part.p_type == PT_GNU_EH_FRAME) frame_table_ = part.p_vaddr;
  }
  return {};
}

std::optional<uint64_t> ProgramFile::address_of(uint64_t offset) const {
  for (const Part& part : parts_) {
    if (offset >= part.offset && offset - part.offset < part.size) {
      return offset - part.offset + part.address;
    }
  }
  return std::nullopt;
}

std::string ProgramFile::read(uint64_t address, size_t most) const {
  for (const Part& part : parts_) {
    if (address < part.address || address - part.address >= part.size) continue;
    const uint64_t into = address - part.address;
    return bytes(part.offset + into, std::min<uint64_t>(most, part.size - into));
  }
  return {};
}

/// Where the file's symbols are: all of them, or if it is stripped those that others may use.
struct ProgramFile::Symbols {
  uint64_t offset = 0, count = 0, names = 0, names_size = 0;
};

ProgramFile::Symbols ProgramFile::find_symbols() const {
  Symbols found;
  const auto header = entry<Elf64_Ehdr>(bytes(0, sizeof(Elf64_Ehdr)), 0);
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return found;
  const size_t count = std::min<size_t>(header.e_shnum, kHeadersMost);
  const std::string table = bytes(header.e_shoff, count * sizeof(Elf64_Shdr));
  for (const uint32_t kind : {SHT_SYMTAB, SHT_DYNSYM}) {
    for (size_t i = 0; i < count; ++i) {
      const auto section = entry<Elf64_Shdr>(table, i);
      if (section.sh_type != kind || section.sh_link >= count) continue;
      const auto names = entry<Elf64_Shdr>(table, section.sh_link);
      return {section.sh_offset, section.sh_size / sizeof(Elf64_Sym), names.sh_offset,
              names.sh_size};
    }
  }
  return found;
}

std::map<uint64_t, std::string> ProgramFile::functions(const std::set<uint64_t>& addresses) const {
  const Symbols symbols = find_symbols();
  std::map<uint64_t, std::string> named;
  for (uint64_t at = 0; at < symbols.count && named.size() < addresses.size();) {
    const size_t now = std::min<uint64_t>(kSymbolsAtOnce, symbols.count - at);
    const std::string table =
        bytes(symbols.offset + at * sizeof(Elf64_Sym), now * sizeof(Elf64_Sym));
    if (table.empty()) break;
    for (size_t i = 0; i < table.size() / sizeof(Elf64_Sym); ++i) {
      const auto symbol = entry<Elf64_Sym>(table, i);
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
      for (auto one = addresses.lower_bound(symbol.st_value);
           one != addresses.end() && *one - symbol.st_value < symbol.st_size; ++one) {
        if (symbol.st_name >= symbols.names_size || named.contains(*one)) continue;
        const std::string name = bytes(symbols.names + symbol.st_name, kNameMost);
        named.emplace(*one, name.substr(0, name.find('\0')));
      }
    }
    at += now;
  }
  return named;
}

}  // namespace dsj::agent
