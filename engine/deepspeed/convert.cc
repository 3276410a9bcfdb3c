#include "engine/deepspeed/convert.h"

#include <algorithm>
#include <functional>
#include <set>

#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/writer.h"
#include "engine/deepspeed/pieces.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "engine/weights/formats/torch_writer.h"

namespace dsj::deepspeed {
namespace {

/// Declares the parameters as tensors to write. Error: `from` lacks one or has it in another size.
Result<std::vector<weights::TensorDeclaration>> declared(const checkpoint::SavedRun& from,
                                                         const std::vector<Parameter>& parameters) {
  std::vector<weights::TensorDeclaration> tensors;
  const auto frozen = from.run_state().value("frozen", nlohmann::json::array());
  for (const Parameter& parameter : parameters) {
    const auto elements = from.elements("master", parameter.name);
    if (!elements && std::find(frozen.begin(), frozen.end(), parameter.name) != frozen.end())
      return bad_input(
          "\"" + parameter.name + "\" was frozen: a checkpoint of ours does not hold it",
          from.path(), "the run's model/ has all weights");
    if (elements != parameter.elements)
      return bad_input("\"" + parameter.name + "\" has " + std::to_string(elements.value_or(0)) +
                           " elements in the checkpoint, the model " +
                           std::to_string(parameter.elements),
                       from.path(), "name the model that it was made from");
    tensors.push_back({.name = parameter.name, .shape = parameter.shape});
  }
  return tensors;
}

}  // namespace

Result<Imported> import_checkpoint(Files& files, Checkpoint& from,
                                   const std::string& checkpoints_dir) {
  const std::string target = path_join(checkpoints_dir, checkpoint::step_name(from.step()));
  DSJ_TRY(const bool there, files.exists(target));
  if (there)
    return bad_input("there is a checkpoint of this step already", target,
                     "name another output directory");
  DSJ_TRY_STATUS(from.check_parts());
  std::vector<checkpoint::Extent> extents;
  for (const auto& [name, dealt] : from.tensors())
    extents.push_back({name.first, name.second, dealt.elements});
  // A run may own the directory already, or may have owned its content.
  DSJ_TRY(const int64_t attempt, checkpoint::newest_attempt(files, checkpoints_dir));
  const checkpoint::WriteOptions options{.checkpoints_dir = checkpoints_dir,
                                         .step = from.step(),
                                         .attempt = std::max<int64_t>(attempt, 1)};
  const auto produce = [&](const checkpoint::EmitPiece& emit) -> Status {
    for (const auto& extent : extents) {
      DSJ_TRY_STATUS(for_pieces(from, extent.state, extent.param, extent.elements,
                                [&](int64_t offset, std::span<const float> values) {
                                  return emit({extent.state, extent.param, offset, values});
                                }));
    }
    return {};
  };
  const auto written = checkpoint::write_rank_from(files, options, produce);
  if (!written) return std::unexpected(written.error());
  DSJ_TRY(const auto published,
          checkpoint::publish(files, options, {.extents = extents, .run_state = from.run_state()}));
  return Imported{published.path, published.bytes};
}

Status export_fp32(Files& files, checkpoint::SavedRun& from,
                   const std::vector<Parameter>& parameters, const std::string& directory) {
  DSJ_TRY(const auto tensors, declared(from, parameters));
  DSJ_TRY_STATUS(files.make_dirs(directory));
  DSJ_TRY(auto writer, weights::ModelWriter::create(files, directory, tensors));
  for (const Parameter& parameter : parameters) {
    DSJ_TRY_STATUS(for_pieces(from, "master", parameter.name, parameter.elements,
                              [&](int64_t, std::span<const float> values) {
                                return writer.append(parameter.name, values);
                              }));
  }
  DSJ_TRY_STATUS(writer.finish());
  return files.sync_dir(directory);
}

Status export_torch(Files& files, checkpoint::SavedRun& from,
                    const std::vector<Parameter>& parameters, const std::string& directory) {
  if (const auto checked = declared(from, parameters); !checked)
    return std::unexpected(checked.error());
  DSJ_TRY_STATUS(files.make_dirs(directory));
  DSJ_TRY(auto writer,
          weights::TorchWriter::create(files, path_join(directory, "pytorch_model.bin")));
  std::vector<std::pair<std::string, weights::pickled::Value>> tensors;
  for (const Parameter& parameter : parameters)
    tensors.emplace_back(parameter.name, writer.tensor(parameter.shape));
  DSJ_TRY_STATUS(writer.begin(weights::pickled::ordered_dict(weights::pickled::named(tensors))));
  for (const Parameter& parameter : parameters) {
    DSJ_TRY_STATUS(
        for_pieces(from, "master", parameter.name, parameter.elements,
                   [&](int64_t, std::span<const float> values) { return writer.append(values); }));
  }
  DSJ_TRY_STATUS(writer.finish());
  return files.sync_dir(directory);
}

}  // namespace dsj::deepspeed
