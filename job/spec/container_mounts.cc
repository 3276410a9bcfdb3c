#include "job/spec/container_mounts.h"

#include <algorithm>
#include <filesystem>

#include "common/json.h"
#include "job/spec/field_reader.h"
#include "job/spec/user_program.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using Severity = FieldReader::Severity;

constexpr char kContainerPath[] = "spec.workers.template.spec.containers[worker]";
constexpr char kOutputPath[] = "spec.training.outputDir";
constexpr char kSharedHint[] =
    "put outputDir on a volume that outlives the pods and that all workers can write, such as a "
    "claim with ReadWriteMany";

/// Volumes of one pod or one node. An inline csi volume has its pod's lifetime.
constexpr const char* kOfPodOrNode[] = {"emptyDir", "ephemeral", "hostPath", "csi"};
/// Those that are always empty in a new pod. A path of a host may be a shared file system, and so
/// may be the mount of an inline csi driver.
constexpr const char* kGoneWithPod[] = {"emptyDir", "ephemeral"};
constexpr const char* kNeverWritten[] = {"configMap", "secret", "downwardAPI", "projected",
                                         "image"};
/// Where the operator mounts a volume of the pod, unless the template does.
constexpr const char* kOperatorsOwn[] = {"/tmp", "/dev/shm"};

const char* kind_among(const json& volume, const auto& kinds) {
  const auto found =
      std::ranges::find_if(kinds, [&](const char* kind) { return volume.contains(kind); });
  return found == std::end(kinds) ? nullptr : *found;
}

/// Whether `path` is `directory` or below it.
bool is_below(const std::string& path, std::string directory) {
  while (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
  return path == directory || path.starts_with(directory == "/" ? directory : directory + "/");
}

void warn_that_it_goes(const std::string& output, const std::string& on, int workers,
                       FieldReader& reader) {
  const std::string found = output + " is on " + on;
  if (workers > 1)
    return reader.report(
        Severity::Warning, kOutputPath,
        found + ": each of the " + std::to_string(workers) +
            " workers has its own, checkpoints are deleted with the pods, and ranks that do "
            "not see one directory end before the first step",
        kSharedHint);
  reader.report(Severity::Warning, kOutputPath,
                found + ": checkpoints are deleted with the pod, and a new pod starts at step 0",
                "put outputDir on a volume that outlives the pod, such as a claim");
}

}  // namespace

std::string normal_path(const std::string& path) {
  std::string text = std::filesystem::path(path).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

Mounted mounted(const json& worker_template, const std::string& path) {
  Mounted found;
  size_t longest = 0;
  const json& mounts = json_child(worker_container(worker_template), "volumeMounts");
  for (size_t i = 0; mounts.is_array() && i < mounts.size(); ++i) {
    const std::string at = json_text(mounts[i], "mountPath");
    if (at.empty() || at.size() < longest || !is_below(path, at)) continue;
    found = {&mounts[i], i, nullptr};
    longest = at.size();
  }
  if (!found.mount) return found;
  for (const json& volume : json_child(json_child(worker_template, "spec"), "volumes")) {
    if (json_text(volume, "name") == json_text(*found.mount, "name") && !found.volume)
      found.volume = &volume;
  }
  return found;
}

std::string unwritable(const json& volume) {
  if (!volume.is_object()) return {};
  if (const char* kind = kind_among(volume, kNeverWritten)) return std::string("a ") + kind;
  // Claims, nfs, inline csi volumes and all others that can be read-only have it in the same field.
  for (const auto& [kind, source] : volume.items()) {
    if (json_child(source, "readOnly") == true) return "a " + kind + " with readOnly: true";
  }
  return {};
}

bool is_of_pod_or_node(const json& volume) {
  return volume.is_object() && kind_among(volume, kOfPodOrNode);
}

void check_output_dir(const json& worker_template, const TrainingArgs& training, int workers,
                      std::optional<bool> read_only_root, FieldReader& reader) {
  const std::string output = normal_path(training.output_dir);
  if (!output.starts_with('/') || reader.is_wrong(kOutputPath)) return;
  const Mounted on = mounted(worker_template, output);
  if (!on.mount) {
    const json& context = json_child(worker_container(worker_template), "securityContext");
    const json& own = json_child(context, "readOnlyRootFilesystem");
    if (own.is_boolean()) read_only_root = own.get<bool>();
    const auto holds = [&](const char* own) { return is_below(output, own); };
    const bool in_pod_volume = std::ranges::any_of(kOperatorsOwn, holds);
    if (read_only_root.value_or(false) && !in_pod_volume)
      return reader.report(Severity::Error, kOutputPath,
                           output +
                               " is on no volume of the container \"worker\", whose own file "
                               "system is read-only: found no mount above it, expected one that "
                               "can be written",
                           kSharedHint);
    std::string on_what = "the pod's own volume";
    if (!in_pod_volume) {
      on_what = "no volume of the container \"worker\" but its own file system";
      if (!read_only_root) on_what += ", which is read-only by default";
    }
    return warn_that_it_goes(output, on_what, workers, reader);
  }
  const std::string at =
      std::string(kContainerPath) + ".volumeMounts[" + std::to_string(on.index) + "]";
  const std::string name = "\"" + json_text(*on.mount, "name") + "\"";
  const std::string cannot = std::string(kOutputPath) + " " + output + " cannot be written: found ";
  if (json_flag(*on.mount, "readOnly"))
    return reader.report(Severity::Error, at + ".readOnly",
                         cannot + "true, expected false or nothing",
                         std::string("remove it, or ") + kSharedHint);
  if (!on.volume) return;
  if (const std::string kind = unwritable(*on.volume); !kind.empty())
    return reader.report(
        Severity::Error, at,
        cannot + "the volume " + name + ", " + kind + ", expected a volume that can be written",
        kSharedHint);
  if (const char* kind = kind_among(*on.volume, kGoneWithPod))
    warn_that_it_goes(output, "the volume " + name + ", an " + kind + " of the pod", workers,
                      reader);
}

}  // namespace dsj::jobspec
