#include "engine/data/files/columns.h"

#include <dlfcn.h>

#include <filesystem>

namespace dsj::data {
namespace {

constexpr char kElsewhere[] =
    "or write its rows as JSONL where pyarrow is: pandas.read_parquet(FILE), or "
    "datasets.Dataset.from_file(FILE), and its to_json(\"rows.jsonl\", orient=\"records\", "
    "lines=True)";

std::string beside_program() {
  std::error_code ignored;
  return (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / kColumnsFile)
      .string();
}

Result<const ColumnsPlugin*> open_plugin(const std::string& file, const std::string& path) {
  const auto lacking = [&](const std::string& what) {
    return fail(ErrorKind::Environment, "is a Parquet or Arrow file, and " + what, path,
                kElsewhere);
  };
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return lacking(
        "its reader " + file +
        " is missing: scripts/setup.sh fetches Arrow, and the next build makes the reader");
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return lacking(std::string("its reader cannot be loaded: ") + dlerror());
  const auto entry = reinterpret_cast<const ColumnsPlugin* (*)()>(dlsym(library, kColumnsEntry));
  const ColumnsPlugin* const plugin = entry != nullptr ? entry() : nullptr;
  if (plugin == nullptr || plugin->interface != kColumnsInterface)
    return lacking("its reader " + file + " is from another build: build all programs again");
  return plugin;
}

}  // namespace

std::optional<ColumnForm> column_form(std::string_view head) {
  if (head.starts_with("PAR1")) return ColumnForm::Parquet;
  if (head.starts_with("ARROW1")) return ColumnForm::ArrowFile;
  if (head.starts_with("\xFF\xFF\xFF\xFF")) return ColumnForm::ArrowStream;
  return std::nullopt;
}

Status columns_to_lines(const ReadFile& file, const std::string& path, ColumnForm form,
                        const TextSink& sink, const std::string& plugin) {
  DSJ_TRY(const ColumnsPlugin* const reader,
          open_plugin(plugin.empty() ? beside_program() : plugin, path));
  return reader->to_lines(file, path, form, sink);
}

}  // namespace dsj::data
