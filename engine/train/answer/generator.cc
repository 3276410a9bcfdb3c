#include "engine/train/answer/generator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "engine/device/device.h"
#include "engine/weights/tensor_check.h"

namespace dsj::train {
namespace {

/// The last position of a completion: learned positions limit it.
int64_t end_of(const layout::ModelConfig& model, int64_t wanted) {
  return model.learned_positions ? std::min(wanted, model.max_position) : wanted;
}

bool is_one_of(int32_t id, std::span<const int32_t> ids) {
  return std::ranges::find(ids, id) != ids.end();
}

std::span<const float> row_of(const at::Tensor& logits, size_t row) {
  const auto width = static_cast<size_t>(logits.size(1));
  return {logits.const_data_ptr<float>() + row * width, width};
}

}  // namespace

Generator::Generator(const layout::ModelConfig& model, comm::Collectives& collectives,
                     const std::optional<LoraArgs>& lora, at::Device place)
    : model_(model),
      place_(place),
      state_(model, config_, place, collectives, lora),
      layer_(models::make_layer(model)),
      ropes_(model, at::TensorOptions(place).dtype(at::kFloat)) {}

Status Generator::load(const weights::WeightSource& source, const weights::WeightSource* adapter) {
  DSJ_TRY_STATUS(weights::check_tied_head(source, model_, 0, 1));
  return state_.load(source, {.saved = adapter});
}

bool Generator::takes_one_length(const layout::ModelConfig& model) {
  using Scaling = layout::RopeConfig::Scaling;
  const auto by_length = [](const layout::RopeConfig& rope) {
    return rope.scaling == Scaling::Dynamic || rope.scaling == Scaling::LongRope;
  };
  return !model.learned_positions &&
         (by_length(model.rope) || (model.local_rope && by_length(*model.local_rope)));
}

Generator::Cache Generator::make_cache(int64_t rows, int64_t length) const {
  Cache cache;
  for (int64_t i = 0; i < model_.num_layers; ++i)
    cache.push_back(model_.key_layer(i) == i ? models::make_cache(model_, i, rows, length, place_)
                                             : cache[static_cast<size_t>(model_.key_layer(i))]);
  return cache;
}

void Generator::reserve(int64_t length, int64_t kept) {
  if (length <= room_) return;
  room_ = std::max(length, 2 * room_);
  const Cache old = std::exchange(conversation_, make_cache(1, room_));
  for (size_t i = 0; kept > 0 && i < old.size(); ++i) {
    if (model_.mixer(static_cast<int64_t>(i)) != layout::Mixer::Attention) {
      conversation_[i] = old[i];
      continue;
    }
    conversation_[i].keys.narrow(2, 0, kept).copy_(old[i].keys.narrow(2, 0, kept));
    conversation_[i].values.narrow(2, 0, kept).copy_(old[i].values.narrow(2, 0, kept));
  }
}

at::Tensor Generator::next(const at::Tensor& here, const models::RowBounds& rows, Cache& cache) {
  const at::Tensor ids = device::upload(here, place_);
  at::Tensor x = models::embedding_forward(state_.unit(0), model_, ids, {.rows = &rows});
  const int head = static_cast<int>(model_.num_layers) + 1;
  models::Carried carried;
  if (model_.layer_input > 0)
    models::carry_inputs(state_.unit(head + 1), state_.unit(head + 2), model_, ids, x, carried);
  for (int i = 0; i < model_.num_layers; ++i) {
    const models::LayerCall call{
        .layer = i, .rows = &rows, .rope = ropes_.of(i, rows.positions_end()), .carried = &carried};
    x = layer_->forward_cached(state_.unit(i + 1), x, call, cache[i].keys, cache[i].values);
  }
  std::vector<int64_t> last;  // last token of each row
  for (int64_t row = 0; row < rows.rows(); ++row) last.push_back(rows.starts()[row + 1] - 1);
  const at::Tensor picked = x.index_select(0, device::upload(at::tensor(last), place_));
  return models::head_logits(state_.unit(head), model_, picked)
      .to(at::kCPU, at::kFloat)
      .contiguous();
}

int32_t Generator::best(size_t, std::span<const float> logits, std::span<const int32_t>) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

std::vector<std::vector<int32_t>> Generator::complete(std::span<const std::vector<int32_t>> prompts,
                                                      int64_t fresh, std::span<const int32_t> stops,
                                                      const Choose& choose) {
  const size_t count = prompts.size();
  std::vector<int64_t> lengths, ids;
  for (const auto& prompt : prompts) {
    lengths.push_back(std::ssize(prompt));
    ids.insert(ids.end(), prompt.begin(), prompt.end());
  }
  const auto [shortest, longest] = std::ranges::minmax(lengths);
  DSJ_CHECK(shortest == longest || !takes_one_length(model_));
  const int64_t end = end_of(model_, longest + fresh);
  Cache cache = make_cache(std::ssize(prompts), end);
  std::vector<std::vector<int32_t>> out(count);
  std::vector<bool> done(count, fresh == 0);
  at::Tensor tokens = at::tensor(ids);
  models::RowBounds rows(lengths, place_);
  while (std::ranges::count(done, false) > 0) {
    const at::Tensor logits = next(tokens, rows, cache);
    // A finished row still takes part; its output is ignored.
    std::vector<int64_t> chosen(count, 0), firsts;
    for (size_t row = 0; row < count; ++row) {
      if (done[row]) continue;
      const int32_t id = choose(row, row_of(logits, row), out[row]);
      chosen[row] = id;
      done[row] = is_one_of(id, stops);
      if (!done[row]) out[row].push_back(id);
      done[row] = done[row] || std::ssize(out[row]) == fresh || lengths[row] == end;
    }
    for (int64_t& length : lengths) {
      length = std::min(length + 1, end);
      firsts.push_back(length - 1);
    }
    tokens = at::tensor(chosen);
    rows = models::RowBounds(std::vector<int64_t>(count, 1), place_, firsts);
  }
  return out;
}

std::vector<int32_t> Generator::go_on(const std::vector<int32_t>& prompt, int64_t fresh,
                                      std::span<const int32_t> stops, const Choose& choose,
                                      const std::function<bool(std::span<const int32_t>)>& heard) {
  // The last token of the prompt is always computed, because its logits are needed.
  const auto most = std::min(known_.size(), prompt.size() - 1);
  const auto same =
      std::mismatch(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(most), known_.begin());
  int64_t kept = takes_one_length(model_) ? 0 : same.first - prompt.begin();
  // A state cannot be truncated to fewer tokens.
  if (model_.has_states() && kept < std::ssize(known_)) kept = 0;
  const int64_t end = end_of(model_, std::ssize(prompt) + fresh);
  reserve(end, kept);
  known_.resize(static_cast<size_t>(kept));
  std::vector<int32_t> out, given(prompt.begin() + kept, prompt.end());
  while (std::ssize(out) < fresh) {
    const std::vector<int64_t> lengths{std::ssize(given)}, firsts{std::ssize(known_)};
    const at::Tensor logits = next(at::tensor(given).to(at::kLong),
                                   models::RowBounds(lengths, place_, firsts), conversation_);
    known_.insert(known_.end(), given.begin(), given.end());
    const int32_t id = choose(0, row_of(logits, 0), out);
    if (is_one_of(id, stops)) break;
    out.push_back(id);
    if (!heard(out) || std::ssize(known_) == end) break;
    given = {id};
  }
  return out;
}

}  // namespace dsj::train
