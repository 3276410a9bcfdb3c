// Launch scripts, hostfiles and device mappings. The first byte says which.
#include "cli/import/device_mapping.h"
#include "cli/import/hostfile.h"
#include "cli/import/launcher.h"
#include "common/files/memory_files.h"
#include "tests/fuzz/fuzz.h"

namespace jobimport = dsj::jobimport;

namespace {

void script(const std::string& text) {
  const auto script = jobimport::read_script(text, "fuzz");
  if (!script) return;
  dsj::MemoryFiles files;
  files.write_synced("hosts", "w0 slots=2\nw1 slots=2\n");
  for (const auto launcher : {jobimport::Launcher::Torchrun, jobimport::Launcher::DeepSpeed,
                              jobimport::Launcher::Accelerate, jobimport::Launcher::Trl}) {
    auto imported = jobimport::import_script(files, *script, launcher, "fuzz");
    if (imported && jobimport::finish(*imported, {})) jobimport::to_text(*imported);
  }
}

void hosts(const std::string& text) {
  const size_t zero = std::min(text.find('\0'), text.size());
  const auto hosts = jobimport::parse_hostfile(text.substr(0, zero), "fuzz");
  if (!hosts) return;
  const std::string filter = text.substr(std::min(zero + 1, text.size()));
  const auto left = jobimport::filter(*hosts, filter, "");
  if (left) dsj::fuzz::require(!left->empty());
  jobimport::filter(*hosts, "", filter);
  jobimport::workers_of(*hosts, "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text = dsj::fuzz::text_of(data + 1, size - 1);
  switch (data[0]) {
    case 'h':
      hosts(text);
      break;
    case 'd':
      if (const auto devices = jobimport::parse_device_mapping(text, "fuzz"))
        jobimport::nodes_of(*devices, 8, "fuzz");
      break;
    default:
      script(text);
  }
  return 0;
}
