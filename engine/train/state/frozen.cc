#include "engine/train/state/frozen.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/checkpoint/checksum.h"
#include "engine/checkpoint/reader.h"
#include "engine/comm/agree.h"
#include "engine/deepspeed/checkpoint.h"
#include "engine/train/state/named_checkpoint.h"
#include "engine/train/step/run_state.h"
#include "engine/zero/storage/scalar_type.h"
#include "job/layout/trained_part.h"

namespace dsj::train {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr int64_t kPieceElements = 1 << 20;

Names names_in(const json& run_state) {
  const json frozen = run_state.value("frozen", json::array());
  return frozen.is_array() ? frozen.get<Names>() : Names();
}

/// `folder`: set if the checkpoint is DeepSpeed's.
Result<Names> frozen_in(Files& files, const std::string& path,
                        const std::optional<deepspeed::Folder>& folder) {
  if (folder) {
    DSJ_TRY(const auto theirs, deepspeed::Checkpoint::open(files, *folder));
    return names_in(theirs.run_state());
  }
  DSJ_TRY(const auto ours, checkpoint::Reader::open(files, path));
  return names_in(ours.run_state());
}

/// `values` rounded to `type`.
at::Tensor rounded(std::vector<float>& values, at::ScalarType type) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kFloat).to(type);
}

/// Returns `mine` if all ranks have the same names. Else every rank gets the error of the lowest
/// rank that failed or has other names than rank 0. Collective.
Result<Names> agreed(comm::Collectives& collectives, at::Device device, const Result<Names>& mine,
                     const std::string& where) {
  std::string text;
  for (const std::string& name : mine.value_or(Names())) text += name + "\n";
  const double count = mine ? static_cast<double>(mine->size()) : 0;
  const double digest = static_cast<uint32_t>(checkpoint::checksum(text));
  const bool tells = mine && collectives.rank() == 0;
  const auto first = comm::max_over_ranks(
      collectives, device, {tells ? 1.0 : 0.0, tells ? count : 0.0, tells ? digest : 0.0});
  std::optional<Error> problem;
  if (!mine) {
    problem = mine.error();
  } else if (first[0] > 0 && (count != first[1] || digest != first[2])) {
    problem = Error{ErrorKind::Environment,
                    std::to_string(mine->size()) + " parameters were frozen in the checkpoint, " +
                        std::to_string(static_cast<int64_t>(first[1])) + " in that of rank 0" +
                        (count == first[1] ? ", and they are others" : ""),
                    where, "the checkpoint must be on storage that all ranks share"};
  }
  if (problem)
    problem->message = "on rank " + std::to_string(collectives.rank()) + ": " + problem->message;
  const auto told = comm::first_error(collectives, device, problem);
  if (!told) return mine;
  // A Transient error is reported by its own rank; the others get a Transient one of their own.
  if (told->kind != ErrorKind::Transient) return std::unexpected(*told);
  if (problem) return std::unexpected(*problem);
  return fail(ErrorKind::Transient, told->where + ": " + told->message);
}

}  // namespace

Result<Names> frozen_in_checkpoint(Files& files, AgreedSearch& search, const JobFile& job,
                                   const dsconfig::ResolvedConfig& config,
                                   comm::Collectives& collectives, at::Device device) {
  if (search.any_readable()) {
    DSJ_TRY(const int newest, search.open(0));
    if (newest == search.count()) return Names();  // loading reports why
    return agreed(collectives, device, names_in(search.reader().run_state()),
                  search.reader().path());
  }
  if (begun(job).is_null() || *job.training.resume_from_checkpoint == "false") return Names();
  const std::string& named = *job.training.resume_from_checkpoint;
  const auto folder = deepspeed_folder(files, named, config.load_universal, collectives, device);
  const Result<Names> mine =
      folder ? frozen_in(files, named, *folder) : std::unexpected(folder.error());
  return agreed(collectives, device, mine, named);
}

Result<std::optional<LoraArgs>> trained_part(const Inputs& in, const Names& frozen) {
  if (in.trained || frozen.empty()) return in.trained;
  auto trained = layout::all_but(in.model, frozen);
  if (!trained)
    return bad_input("of the checkpoint's parameters: " + trained.error().message,
                     "training.resumeFromCheckpoint",
                     "name the model that the run was made with, or start a run from its weights: "
                     "dsj checkpoint export --to fp32");
  return std::optional(std::move(*trained));
}

Names frozen_of(const Inputs& in, const zero::ModelState& state) {
  Names names;
  if (in.lora) return names;
  for (const auto& flat : state.plan().flats)
    for (const auto& slot : flat.slots())
      if (flat.frozen()) names.push_back(slot.name);
  std::ranges::sort(names);
  return names;
}

namespace {

Status check_names(const Names& before, const Names& now, const std::string& path) {
  const auto only = [](const Names& a, const Names& b) {
    Names rest;
    std::ranges::set_difference(a, b, std::back_inserter(rest));
    return rest;
  };
  const std::string advice = "name the output directory and the checkpoint that the run began with";
  if (const Names lost = only(before, now); !lost.empty())
    return bad_input("\"" + lost.front() +
                         "\" was frozen, and the run trains it: the checkpoint has no optimizer "
                         "states for it",
                     path, advice);
  if (const Names fresh = only(now, before); !fresh.empty())
    return bad_input("\"" + fresh.front() + "\" was trained, and the run has it frozen", path,
                     advice);
  return {};
}

/// Whether the checkpoint's values equal the model directory's in this rank's share of the
/// elements. (DeepSpeed's stage 3 cuts each parameter into equal shares, in one file per rank; a
/// rank opens one.)
Result<bool> same_values(checkpoint::SavedRun& saved, const weights::WeightSource& source,
                         const std::string& name, at::ScalarType type,
                         const comm::Collectives& ranks) {
  const auto elements = saved.elements("master", name);
  if (!elements) return true;
  if (*elements != source.find(name)->elements) return false;
  const int64_t each = (*elements + ranks.world() - 1) / ranks.world();
  const int64_t end = std::min(*elements, (ranks.rank() + 1) * each);
  for (int64_t at = ranks.rank() * each; at < end; at += kPieceElements) {
    const auto count = static_cast<size_t>(std::min(kPieceElements, end - at));
    std::vector<float> theirs(count), ours(count);
    DSJ_TRY_STATUS(saved.read("master", name, at, theirs));
    DSJ_TRY_STATUS(source.read(name, at, ours));
    if (!rounded(theirs, type).equal(rounded(ours, type))) return false;
  }
  return true;
}

}  // namespace

Status check_frozen(Files& files, const Inputs& in, checkpoint::SavedRun& saved,
                    zero::ModelState& state) {
  const Names before = names_in(saved.run_state()), now = frozen_of(in, state);
  if (in.lora && !before.empty())
    return bad_input("\"" + before.front() +
                         "\" was frozen: adapters and their base are not taken over from "
                         "DeepSpeed's checkpoints",
                     saved.path(), "start a run from its weights: dsj checkpoint export --to fp32");
  DSJ_TRY_STATUS(check_names(before, now, saved.path()));
  if (now.empty()) return {};
  const std::string& model = in.job.training.model_name_or_path;
  DSJ_TRY(const auto source, weights::WeightSource::open(files, model));
  const auto type = zero::scalar_type(in.config().precision);
  for (const std::string& name : now) {
    DSJ_TRY(const bool same, same_values(saved, source, name, type, state.collectives()));
    if (!same)
      return bad_input("\"" + name + "\" was frozen, and its values are not those of " + model,
                       saved.path(),
                       "name the model that the run began with; dsj checkpoint export --to fp32 "
                       "writes the checkpoint's own values");
  }
  return {};
}

}  // namespace dsj::train
