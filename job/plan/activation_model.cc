#include "job/plan/activation_model.h"

#include <algorithm>
#include <numeric>

#include "common/cpu.h"
#include "job/layout/shape/delta_pieces.h"

namespace dsj::plan {
namespace {

/// The run's length; if unknown, more steps than any schedule has.
int64_t steps_of(const MemoryInput& input) {
  return input.config.total_steps > 0 ? input.config.total_steps : INT64_MAX / 2;
}

/// Over all steps: a curriculum may never reach the data's longest rows.
int64_t longest_row(const MemoryInput& input) {
  const auto& length = input.config.data_efficiency.row_length;
  if (!length) return input.tokens_per_row;
  return std::min(input.tokens_per_row, length->schedule.highest(steps_of(input)));
}

/// Tokens after a curriculum has cut the rows.
MicroBatchTokens tokens_of(const MemoryInput& input) {
  const int64_t rows = input.config.micro_batch_size, longest = longest_row(input);
  const MicroBatchTokens most = micro_batch_tokens(input);
  return {std::min(most.tokens, rows * longest), std::min(most.targets, rows * (longest - 1))};
}

/// Whether any layer has a plain MLP.
bool has_plain_mlp(const layout::ModelConfig& model) {
  return model.experts.count == 0 || model.experts.beside_mlp ||
         std::ranges::count(model.experts.dense, true) > 0;
}
/// Elements of a token's activations in a plain MLP or in the shared expert.
int64_t inner_of(const layout::ModelConfig& model) {
  return std::max(model.experts.shared_inner, has_plain_mlp(model) ? model.intermediate_size : 0);
}
/// Elements of the inputs of a token's activations: gate and up, in all experts that it passes.
int64_t mlp_width_of(const layout::ModelConfig& model) {
  const auto& experts = model.experts;
  const int64_t of_experts = 2 * (experts.per_token * experts.inner + experts.shared_inner);
  if (experts.beside_mlp) return of_experts + model.mlp_width();
  return std::max(of_experts, has_plain_mlp(model) ? model.mlp_width() : 0);
}

/// Bytes of the kept routing: probabilities, choices, weights, their order.
int64_t routing(const layout::ModelConfig& model, int64_t tokens) {
  const auto& experts = model.experts;
  return tokens * (4 * experts.count + (4 + 3 * 8) * experts.per_token);
}

/// Elements of a token's keys while heads are exchanged (engine/models/unit/row_cut.h): each rank
/// copies a key head whose query heads are on several ranks.
int64_t exchanged_kv(const layout::ModelConfig& model, int64_t ranks) {
  return std::lcm(model.num_kv_heads, ranks) * model.head_dim;
}

struct StepShape {
  /// `tokens`: of one rank.
  StepShape(const MemoryInput& input, const MicroBatchTokens& tokens, layout::Mixer mixer)
      : mixer(mixer),
        delta(mixer == layout::Mixer::Delta),
        attends(mixer == layout::Mixer::Attention),
        ranks(input.config.sequence_parallel_size),
        seq(std::min(longest_row(input), tokens.tokens * ranks)),
        rows(tokens.tokens),
        targets(std::max<int64_t>(1, tokens.targets)),
        hidden(input.model.hidden_size),
        query(delta     ? input.model.delta.value_size()
              : attends ? input.model.query_size()
                        : hidden),
        qkv(delta     ? input.model.delta.width()
            : attends ? query + 2 * exchanged_kv(input.model, ranks)
                      : 3 * hidden),
        inner(inner_of(input.model)),
        vocab(input.model.head_rows()),
        element(product_type(input.config) == dsconfig::Precision::Fp32 ? 4 : 2),
        wide(input.config.precision == dsconfig::Precision::Fp32 ? 4 : 2),
        heads(input.model.num_heads),
        mlp_width(mlp_width_of(input.model)),
        balanced(input.model.experts.balance > 0),
        shared_heads(input.model.num_kv_heads < input.model.num_heads),
        widened(element == 2 && !input.native_products),
        fp16(product_type(input.config) == dsconfig::Precision::Fp16) {}
  const layout::Mixer mixer;  ///< of the layers that are counted
  const bool delta, attends;
  const int64_t ranks;          ///< ranks that share a micro-batch
  const int64_t seq;            ///< tokens of the longest row
  const int64_t rows, targets;  ///< tokens of a micro-batch, and those with a target
  const int64_t hidden;
  /// Width of the output projection's input, and of the products before it, including the copies of
  /// key heads that ranks share.
  const int64_t query, qkv;
  const int64_t inner, vocab;
  const int64_t element;  ///< bytes of operands and results of products
  const int64_t wide;     ///< bytes of norms' inputs and of boundaries; autocast: more than element
  const int64_t heads;
  const int64_t mlp_width;  ///< gate and up, or the activation's input
  const bool balanced;      ///< the last layer, too, has an auxiliary loss over all tokens
  const bool shared_heads;  ///< query heads share key and value heads, which are copied
  const bool widened;       ///< 16-bit attention runs on fp32 copies
  const bool fp16;          ///< products run in fp16
  bool casts() const { return wide != element; }
  bool casts_to_fp16() const { return casts() && fp16; }
};

/// Norms that round once use fp32 copies of 16-bit tensors (engine/models/unit/norms.h).
bool widens_norms(const StepShape& s, const layout::ModelConfig& model) {
  return s.wide == 2 &&
         (model.norm == layout::NormKind::RmsOnce || model.norm == layout::NormKind::RmsPlusOne);
}

/// Columns with rope or a norm: queries and keys, and values if these have a norm.
int64_t worked_on(const StepShape& s, const layout::ModelConfig& model) {
  if (model.shares_keys) return s.query;
  return s.query + (model.value_norm ? 2 : 1) * model.kv_size();
}
/// torch_autocast, or norms that round once: rope and head norms of queries and keys run in
/// fp32.
int64_t rotated(const StepShape& s, const layout::ModelConfig& model) {
  if (!s.attends || (!s.casts() && !(model.qk_norm && widens_norms(s, model)))) return 0;
  return s.rows * worked_on(s, model) * 4 * (model.qk_norm ? 2 : 1);
}
/// Rope over a part of each head, or over pairs, uses operations with separate results: four halves
/// of the rotated columns, and the cosines and sines of all rows.
int64_t rope_terms(const StepShape& s, const layout::ModelConfig& model) {
  if (!s.attends || model.learned_positions) return 0;
  if (!model.rope_in_pairs && model.rotary_size() == model.head_dim) return 0;
  return 4 * s.rows * (4 * (model.num_heads + model.num_kv_heads) + 2) * model.rotary_size() / 2;
}
/// A copy of queries, keys and values in another order of columns, beside the product's result.
int64_t grouped(const StepShape& s, const layout::ModelConfig& model) {
  if (s.delta) return model.delta.by_group ? s.rows * s.qkv * s.element : 0;
  if (!s.attends) return 0;
  if (model.output_gate) return s.rows * (s.qkv + 2 * s.query) * s.element;
  if (model.shares_keys) return s.rows * s.query * s.element;
  if (model.keys_are_values) return s.rows * (s.qkv - model.kv_size()) * s.element;
  return model.qkv_by_group && model.num_kv_heads > 1 ? s.rows * s.qkv * s.element : 0;
}
/// Tensors that the MLP of a parallel layer does not keep because attention keeps them: its input,
/// and the norm of it if they share one.
int64_t not_kept_twice(const StepShape& s, const layout::ModelConfig& model) {
  if (!model.parallel) return 0;
  return s.rows * s.hidden * (s.wide + (model.shared_norm ? s.element : 0));
}
/// The gradient of the input of a parallel layer's MLP.
int64_t parallel_gradient(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  return model.parallel ? tokens * s.hidden * s.wide : 0;
}
/// A gradient of a norm's output in both types; the copies of a norm that rounds once.
int64_t norm_gradient(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  if (widens_norms(s, model)) return tokens * s.hidden * 3 * 4;
  return s.casts() ? tokens * s.hidden * (s.wide + s.element) : 0;
}
/// The fp32 copies while a norm runs forward.
int64_t norm_copies(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  return widens_norms(s, model) ? tokens * s.hidden * 2 * 4 : 0;
}

/// What the norm after attention keeps: its input and sums.
int64_t attention_branch(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  return model.post_norms ? tokens * (s.hidden * s.wide + 4) : 0;
}
/// The same for the MLP. Experts beside it: both results, and the input of experts and router.
int64_t mlp_branches(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  const int64_t read = tokens * (s.hidden * s.element + 4);
  const int64_t one = attention_branch(s, model, tokens);
  return model.experts.beside_mlp ? 3 * one + 2 * read : one;
}
int64_t branches(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  return attention_branch(s, model, tokens) + mlp_branches(s, model, tokens);
}
/// A product's result, and what is computed from it before it is added to the residual.
int64_t branch_results(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  return model.adds_products() ? 0 : tokens * s.hidden * (s.element + 2 * s.wide);
}

// ---- the layer's own input (ModelConfig::layer_input)

/// The sum after the MLP, and the input's gate.
int64_t input_kept(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  if (model.layer_input == 0) return 0;
  return tokens * (s.hidden * s.wide + model.layer_input * s.element);
}
/// Beyond that: the activated gate, the input of tokens with an output, their product; the result.
int64_t input_forward(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  if (model.layer_input == 0) return 0;
  const int64_t read = s.casts() ? s.hidden * s.element : 0;
  return tokens * (3 * model.layer_input * s.wide + read + s.hidden * s.wide) +
         branch_results(s, model, tokens) + norm_copies(s, model, tokens);
}
int64_t input_backward(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  if (model.layer_input == 0) return 0;
  const int64_t read = s.casts() ? 2 * s.hidden * s.element : 0;
  return tokens * (6 * model.layer_input * s.wide + read + 2 * s.hidden * s.wide) +
         attention_branch(s, model, tokens) + branch_results(s, model, tokens) +
         norm_gradient(s, model, tokens);
}

// Memory of an MLP besides what it keeps (engine/models/layers/experts.cc). One expert may get all
// tokens.

/// The sums of two rows' products: both in fp32, and the products.
int64_t row_products(const StepShape& s, int64_t width) {
  return width * (s.element == 2 ? 12 : 4);
}

/// The fp32 columns of gpt-oss' activation, forward or backward.
int64_t clamped(const layout::ModelConfig& model, int64_t columns) {
  return model.experts.alternates ? columns * model.experts.inner * 4 : 0;
}

int64_t mlp_forward(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  const auto& experts = model.experts;
  const int64_t terms = model.activation == layout::Activation::Xielu ? 4 * 4 + 1 : 0;
  const int64_t plain = tokens * s.inner * (s.element + terms);
  if (experts.count == 0) return plain;
  const int64_t h = s.hidden * s.element, wide = s.hidden * 4;
  const int64_t taken = h + (s.element == 2 ? wide : 0);  // rows of one choice, also in fp32
  const int64_t router = experts.count * (s.element + 4) + (experts.exact_router ? wide : 0);
  const int64_t in = std::max(router, h + 2 * experts.inner * s.element);
  const int64_t out = experts.per_token * h +
                      std::max(experts.inner * s.element + h + clamped(model, 6), wide + taken);
  const int64_t shared = wide + experts.shared_inner * s.element + taken;
  return std::max(plain, tokens * (std::max({in, out, shared}) + s.hidden * s.wide));
}

int64_t mlp_backward(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  const auto& experts = model.experts;
  const int64_t plain = tokens * 2 * s.inner * s.element;
  if (experts.count == 0) return plain;
  const int64_t h = s.hidden * s.element, wide = s.hidden * 4;
  const int64_t rows = experts.per_token * (h + 8);  // gradients; weights and their gradients
  const int64_t one = 2 * experts.inner * s.element + 2 * h +
                      std::max({row_products(s, experts.inner), 2 * h, clamped(model, 11)});
  const int64_t taken = wide + h + (s.element == 2 ? wide : 0);
  const int64_t shared =
      wide + 2 * h + 2 * experts.shared_inner * s.element +
      (experts.shared_scaled ? row_products(s, experts.shared_inner) + wide : 0) -
      2 * experts.per_token * experts.inner * s.element;  // the experts' own are freed
  return std::max(
      plain,
      tokens * (h + std::max({rows + one, rows + taken, wide + 3 * 4 * experts.count, shared})));
}

/// Memory in the backward of an activation that has no kernel of ours.
int64_t activation_terms(const StepShape& s, const layout::ModelConfig& model, int64_t tokens) {
  if (model.block == layout::Block::Gpt2) return 0;
  if (model.gated && model.activation == layout::Activation::Silu) return 0;
  if (model.activation == layout::Activation::Xielu) return tokens * s.inner * (6 * 4 + 2);
  const int64_t plain = 2 * tokens * s.inner * s.element;
  if (!model.experts.beside_mlp) return plain;
  // First the MLP's part, then the experts'.
  const int64_t most = mlp_backward(s, model, tokens);
  return std::max(2 * plain - most, 2 * tokens * model.experts.inner * s.element);
}

/// oneDNN packs blocks of a 16-bit product's operands. Measurements never showed more.
constexpr int64_t kPacking = 256 << 10;

/// Bytes of fp32 for an element of a 16-bit gradient's tile (job/layout/row_pieces.h): its sum, and
/// on a CPU a widened term.
int64_t wide_tile(bool accelerator) {
  return accelerator ? 4 : 2 * 4;
}

/// The head's products in `pieces`. A 16-bit gradient is summed in fp32: on an accelerator whole, on a
/// CPU a tile at a time, with its rounding error beside it; the product too if libtorch multiplies,
/// which rounds it.
int64_t head_products(const StepShape& s, bool accelerator, int64_t piece) {
  if (s.wide == 4 || piece >= s.targets) return 0;
  if (accelerator) return 4 * s.vocab * s.hidden;
  const int64_t tile = layout::sum_tile(false);
  const int64_t sum = std::min(s.vocab, std::max<int64_t>(1, tile / s.hidden)) * s.hidden;
  const bool library = !s.widened && sum * piece >= kLibraryProducts;
  return s.element * s.vocab * s.hidden + (wide_tile(false) + (library ? s.element : 0)) * sum;
}

/// The flash kernels' own buffers per thread: scores of a tile of queries and a tile of keys, and
/// their sums.
int64_t attention_tile(const StepShape& s, int64_t head_dim) {
  if (!s.attends) return 0;
  const int64_t queries = s.seq >= 768 ? 256 : s.seq >= 192 ? 64 : 32;
  const int64_t scores = queries * std::min<int64_t>(512, s.seq);
  // In 16 bits, products read rounded scores and gradients of scores.
  const int64_t rounded = s.element == 2 && !s.widened ? 2 * 2 * scores : 0;
  return 4 * (2 * scores + queries * (2 + head_dim)) + rounded;
}

/// Scores of one block of queries and one head. `seen`: keys per query.
int64_t block_scores(const StepShape& s, int64_t seen, int64_t heads) {
  const int64_t queries = layout::query_block(s.seq, seen, heads);
  return queries * layout::keys_of_block(s.seq, seen, queries);
}

/// A sliding window's mask and its temporaries. With dropout the plain form keeps the scores: four
/// copies in backward. If a long row is cut, its keys' gradients are summed in fp32.
int64_t scores(const StepShape& s, const layout::ModelConfig& model) {
  int64_t bytes = 0;
  for (const int64_t window : model.windows) {
    if (window <= 0 || window >= s.seq) continue;
    const bool cut = layout::query_block(s.seq, window, 1) < s.seq;
    bytes = std::max(bytes, block_scores(s, window, 1) * (s.widened ? 6 : 2 + s.element) +
                                (cut ? s.rows * s.query * (2 * 4 + s.element) : 0));
  }
  if (model.plain_attention())
    bytes += block_scores(s, s.seq, s.heads / s.ranks) * (6 + 4 * 4 * s.heads / s.ranks) +
             3 * s.rows * s.query * 4;
  return bytes;
}

// ---- the delta rule (engine/models/mixers/delta.cc)

/// fp32 bytes of the tensors of a piece.
struct DeltaBytes {
  int64_t keys, values;  ///< of all value heads, a vector per token
  int64_t scores;        ///< of each token with all tokens of its chunk
  int64_t states;        ///< one per chunk
  int64_t columns;       ///< of the convolution
  DeltaBytes(const StepShape& s, const layout::DeltaConfig& c) {
    const int64_t chunk = std::min(s.seq, layout::kDeltaChunk);
    const int64_t chunks = (chunks_of(s) + chunk - 1) / chunk;
    const int64_t tokens = chunks * chunk;
    keys = 4 * tokens * c.value_heads * c.key_dim;
    values = 4 * tokens * c.value_size();
    scores = 4 * tokens * c.value_heads * chunk;
    states = 4 * chunks * c.value_heads * c.key_dim * c.value_dim;
    columns = 4 * tokens * c.conv_size();
  }

 private:
  /// The number of tokens of the largest piece.
  static int64_t chunks_of(const StepShape& s) {
    const int64_t one[] = {s.seq};
    const int64_t chunk = std::min(s.seq, layout::kDeltaChunk);
    if (s.rows <= s.seq) return layout::delta_sizes(one).tokens;
    return std::min(layout::kDeltaChunks * chunk, s.rows / s.seq * (s.seq + chunk - 1) + chunk);
  }
};

/// States between pieces: at most one per four chunks of a row.
int64_t delta_states(const StepShape& s, const layout::ModelConfig& model) {
  if (!s.delta) return 0;
  const int64_t one[] = {s.seq};
  const int64_t states =
      s.rows <= s.seq ? layout::delta_sizes(one).states : s.rows / (4 * layout::kDeltaChunk);
  return 4 * states * model.delta.value_heads * model.delta.key_dim * model.delta.value_dim;
}

int64_t delta_forward(const StepShape& s, const layout::ModelConfig& model) {
  const DeltaBytes b(s, model.delta);
  return 6 * b.keys + 4 * b.values + 4 * b.scores + b.states;
}

int64_t delta_backward(const StepShape& s, const layout::ModelConfig& model) {
  const DeltaBytes b(s, model.delta);
  return s.rows * (s.qkv + s.query) * s.element + 2 * b.columns + 9 * b.keys + 7 * b.values +
         6 * b.scores + 2 * b.states;
}

// ---- the short convolution (engine/models/mixers/short_conv.cc)

/// Tokens of a piece, and what the convolution sees beside them.
int64_t conv_tokens(const StepShape& s, const layout::ModelConfig& model) {
  return std::min(s.rows, layout::kConvTokens + model.conv.kernel - 1);
}
/// A piece's gated input, also in fp32; the sum and its term in fp32; the result.
int64_t conv_forward(const StepShape& s, const layout::ModelConfig& model) {
  return conv_tokens(s, model) * s.hidden * (2 * s.element + 3 * 4);
}
/// The gradient of the products, and a piece's tensors: forward's and their gradients.
int64_t conv_backward(const StepShape& s, const layout::ModelConfig& model) {
  return s.rows * (s.qkv + s.query) * s.element +
         conv_tokens(s, model) * s.hidden * (5 * s.element + 5 * 4);
}

// ---- attention

/// If ranks share rows: attention's result by heads, besides the result by tokens.
int64_t kept_as_heads(const StepShape& s) {
  return s.ranks > 1 ? s.rows * s.query * s.element : 0;
}
/// Send and receive buffers while heads are exchanged, forward or backward.
int64_t exchange(const StepShape& s) {
  return s.ranks > 1 ? 2 * s.rows * s.qkv * s.element : 0;
}

/// The output gate before its sigmoid.
int64_t gates(const StepShape& s, const layout::ModelConfig& model) {
  return model.output_gate && s.attends ? s.rows * s.query * s.element : 0;
}

int64_t attention_forward(const StepShape& s, const layout::ModelConfig& model) {
  if (s.delta) return delta_forward(s, model);
  if (!s.attends) return conv_forward(s, model);
  const int64_t heads = s.shared_heads ? 2 * s.query : 0;  // repeated keys and values
  // Heads are exchanged before and after the kernel runs.
  if (!s.widened) return std::max(s.rows * heads * s.element, exchange(s));
  // widened qkv, and the result before rounding
  return std::max(s.rows * (s.qkv + heads + s.query) * 4, exchange(s));
}

int64_t attention_backward(const StepShape& s, const layout::ModelConfig& model) {
  if (s.delta) return delta_backward(s, model);
  if (!s.attends) return conv_backward(s, model);
  const int64_t type = s.widened ? 4 : s.element;
  const int64_t heads = s.shared_heads ? 2 * s.query : 0;
  const int64_t gradients = 3 * s.query + (s.shared_heads ? s.query : 0);  // one is being summed
  const int64_t widened = s.widened ? s.qkv + 2 * s.query : 0;             // qkv, dout, out
  const int64_t kernel = s.rows * ((heads + gradients + widened) * type + s.query * s.element);
  // The gradient of the result by heads is alive in both cases.
  return std::max(kernel, exchange(s)) + kept_as_heads(s);
}

/// Queries and keys before their head norm, and the norm's sums.
int64_t head_norms(const StepShape& s, const layout::ModelConfig& model) {
  if (!model.qk_norm || !s.attends) return 0;
  // What rope returned is kept in its own type.
  const int64_t type = model.qk_norm_after_rope ? s.wide : s.element;
  return s.rows * worked_on(s, model) * type +
         s.rows * (s.heads + (model.value_norm ? 2 : 1) * model.num_kv_heads) * 4;
}

/// What latent attention keeps: the latents before and after their norms, and the norms' sums.
int64_t latents(const StepShape& s, const layout::ModelConfig& model) {
  const auto& latent = model.latent;
  if (latent.rank == 0) return 0;
  return s.rows * ((latent.query_rank + latent.rank) * (s.wide + s.element) + 2 * 4);
}
/// Its products, besides the queries, keys and values that are built from them.
int64_t latent_products(const StepShape& s, const layout::ModelConfig& model) {
  const auto& latent = model.latent;
  if (latent.rank == 0) return 0;
  return s.rows * s.element *
         (s.query + s.heads * (latent.plain + latent.value) + latent.rank + latent.rotated);
}

/// After its attention, the last layer has only tokens with a target (MicroBatch::last_outputs),
/// unless fewer than a sixteenth have none.
int64_t last_outputs(const StepShape& s) {
  return s.balanced ? s.rows : std::min(s.rows, s.targets + s.targets / 15 + 1);
}

int64_t packing(const StepShape& s) {
  return s.element == 2 && !s.widened ? kPacking : 0;
}

/// 16-bit gradients of a layer's MLP that pieces accumulate: a piece's own, the rounding error of
/// their sum, and an fp32 tile of it (engine/zero/flat/piece_sums.cc).
int64_t piece_sums(const StepShape& s, const MemoryInput& input) {
  if (s.wide == 4) return 0;
  const int64_t of_input = input.model.layer_input;
  int64_t elements = s.hidden * (s.mlp_width + s.inner + 2 + 2 * of_input + (of_input > 0 ? 1 : 0));
  if (const auto& experts = input.model.experts; experts.count > 0)
    elements =
        s.hidden * (3 * (experts.count * experts.inner + experts.shared_inner) + experts.count + 3);
  if (input.lora && input.lora->adapts()) {  // at most one adapter for each of the weights
    elements = input.lora->largest_rank() *
                   ((of_input > 0 ? 5 : 3) * s.hidden + s.mlp_width + s.inner + 2 * of_input) +
               (input.lora->use_dora ? s.hidden + s.mlp_width : 0);
    if (!input.lora->target_parameters.empty())  // experts' two, and a router's
      elements += input.lora->largest_rank() *
                  (input.model.experts.count * (2 * s.hidden + 3 * input.model.experts.inner + 1) +
                   s.hidden);
  }
  return 2 * s.element * elements +
         wide_tile(input.accelerator) * std::min(elements, layout::sum_tile(input.accelerator));
}

/// A layer whose micro-batch is cut into pieces, with recompute: backward recomputes the MLP and
/// its first norm (engine/models/unit/pieces.h).
void cut_layer(const StepShape& s, const MemoryInput& input, ActivationModel& a) {
  const int64_t row = s.rows * s.element, piece = input.pieces.piece * s.element;
  const int64_t outputs = last_outputs(s);
  const int64_t tile = attention_tile(s, input.model.head_dim) + scores(s, input.model);
  const int64_t sums = s.rows * s.heads * 4;     // attention's log-sum-exp
  const int64_t x = s.rows * s.hidden * s.wide;  // the input of the layer or of its second half
  const layout::ModelConfig& model = input.model;
  // The MLP's branch is recomputed with it.
  const int64_t attended_branch = attention_branch(s, model, s.rows);
  const int64_t second = model.parallel ? 0 : x;  // the MLP's input, unless it is the layer's
  a.kept = second + row * (s.qkv + s.query) + sums + head_norms(s, model) + latents(s, model) +
           attended_branch + gates(s, model) + delta_states(s, model) + kept_as_heads(s);
  a.kept_last = a.kept - (model.parallel ? 0 : (s.rows - outputs) * s.hidden * s.wide);

  const int64_t mlp =
      piece * (s.hidden + s.mlp_width) + input.pieces.piece * 2 * 4 +  // its norm's sums
      norm_gradient(s, model, input.pieces.piece) + branch_results(s, model, input.pieces.piece) +
      mlp_branches(s, model, input.pieces.piece) + routing(model, input.pieces.piece) +
      input_kept(s, model, input.pieces.piece);
  const int64_t wide = rotated(s, model);
  const int64_t turned = std::max(wide + rope_terms(s, model), latent_products(s, model));
  const int64_t regrouped = grouped(s, model);
  a.forward = std::max({row * (s.hidden + s.qkv) + s.rows * 4 + head_norms(s, model) + turned,
                        row * (s.hidden + s.qkv) + s.rows * 4 + regrouped,
                        row * (s.qkv + s.query) + sums + attention_forward(s, model) + tile,
                        row * (s.query + (s.casts() ? s.hidden : 0)) + x + sums +
                            branch_results(s, model, s.rows) + norm_copies(s, model, s.rows),
                        2 * x + mlp + input_forward(s, model, input.pieces.piece),
                        2 * x + mlp + mlp_forward(s, model, input.pieces.piece) +
                            input.pieces.piece * s.hidden * s.wide + packing(s)});
  const auto backward = [&](int64_t tokens) {  // `tokens`: after attention
    const int64_t x2 = model.parallel ? 0 : tokens * s.wide * s.hidden;
    // While rope is recomputed, attention's result does not exist yet.
    const int64_t turning = turned - row * s.query - sums - attended_branch;
    const int64_t again =
        row * s.hidden + std::max({attention_forward(s, model) + tile, wide, turning}) - x2;
    const int64_t attended =
        std::max(attention_backward(s, model) + (s.casts() ? std::max(tile, wide) : tile), turned) -
        x2;
    const int64_t freed = x2 + row * s.query + sums;
    const int64_t picked =
        tokens < s.rows ? tokens * (s.element * (s.query + s.hidden) + s.wide * s.hidden) : 0;
    return parallel_gradient(s, model, tokens) +
           std::max({mlp + mlp_backward(s, model, input.pieces.piece) + packing(s) +
                         activation_terms(s, model, input.pieces.piece),
                     mlp + input_backward(s, model, input.pieces.piece), again, attended,
                     x + row * 2 * s.hidden + picked + regrouped + norm_gradient(s, model, s.rows) -
                         freed});
  };
  a.backward = backward(s.rows);
  a.backward_last = backward(outputs);
  a.piece_sums = piece_sums(s, input);
  a.sums_mlp = s.casts_to_fp16();
}

void whole_layer(const StepShape& s, const MemoryInput& input, ActivationModel& a) {
  const int64_t row = s.rows * s.element;                         // bytes per column of activations
  const int64_t sums = s.rows * (2 + input.model.num_heads) * 4;  // norms, attention's log-sum-exp
  // h1, x2, h2; qkv; the attention's output; gate and up
  const int64_t x2 = s.rows * s.hidden * s.wide;
  const layout::ModelConfig& model = input.model;
  a.kept = x2 + row * (2 * s.hidden + s.qkv + s.query + s.mlp_width) + sums + head_norms(s, model) +
           branches(s, model, s.rows) + routing(model, s.rows) + latents(s, model) +
           gates(s, model) + delta_states(s, model) + kept_as_heads(s) - not_kept_twice(s, model) +
           input_kept(s, model, s.rows);
  const int64_t outputs = last_outputs(s);
  // A last layer with selected tokens also keeps the inputs of both halves of a parallel layer.
  a.kept_last =
      a.kept - (s.rows - outputs) * ((s.hidden + s.mlp_width) * s.element + s.hidden * s.wide + 4) -
      branches(s, model, s.rows - outputs) - routing(model, s.rows - outputs) +
      not_kept_twice(s, model) - input_kept(s, model, s.rows - outputs);

  const int64_t tile = attention_tile(s, model.head_dim) + scores(s, model);
  const int64_t branch = branch_results(s, model, s.rows) + norm_copies(s, model, s.rows);
  const int64_t result = a.boundary + branch;              // the layer's output
  const int64_t product = s.casts() ? row * s.hidden : 0;  // before the addition to x2
  const int64_t wide = rotated(s, model);
  const int64_t turned = std::max(wide + rope_terms(s, model), latent_products(s, model));
  const int64_t at_mlp = mlp_forward(s, model, s.rows) + result + product;
  if (!input.recompute) {
    a.forward = std::max({at_mlp + (model.parallel ? x2 : 0), attention_forward(s, model) + tile,
                          turned, grouped(s, model), input_forward(s, model, s.rows)});
  } else {  // nothing is kept: h1 and qkv are freed before the MLP, the rest after it
    const int64_t first =
        x2 + row * (s.hidden + s.qkv + s.query) + sums +
        std::max({attention_forward(s, model) + tile, wide, turned - row * s.query - sums,
                  grouped(s, model) - row * s.query - sums});
    const int64_t second = x2 + row * (s.hidden + s.mlp_width) + mlp_forward(s, model, s.rows) +
                           product + result + sums + routing(model, s.rows);
    const int64_t third = model.layer_input > 0 ? 2 * x2 + input_forward(s, model, s.rows) +
                                                      s.rows * model.layer_input * s.element
                                                : 0;
    a.forward = std::max({first, second, third});
  }

  // da and the recomputed silu(gate) * up; then dh, or the attention's gradients after the MLP's
  // tensors are freed.
  const auto backward = [&](int64_t tokens) {  // `tokens`: after attention
    const int64_t column = tokens * s.element;
    const int64_t dy = s.casts() ? column * s.hidden : 0;  // in the product's type
    const int64_t mlp = mlp_backward(s, model, tokens) + dy + packing(s) +
                        activation_terms(s, model, tokens) + branch_results(s, model, tokens) -
                        input_kept(s, model, tokens);
    const int64_t mlp_freed =  // x2, h2, gate_up, and what experts beside an MLP keep
        tokens * s.hidden * s.wide + column * (s.hidden + s.mlp_width) - not_kept_twice(s, model) +
        mlp_branches(s, model, tokens) - attention_branch(s, model, tokens) +
        input_kept(s, model, tokens);
    const int64_t attended =
        std::max(attention_backward(s, model) + (s.casts() ? std::max(tile, wide) : tile), turned) -
        mlp_freed;
    const int64_t again = input.recompute ? attention_forward(s, model) + tile - mlp_freed : 0;
    return parallel_gradient(s, model, tokens) +
           std::max({mlp, a.boundary + grouped(s, model), norm_gradient(s, model, s.rows) + branch,
                     attended, again, input_backward(s, model, tokens)});
  };
  a.backward = backward(s.rows);
  a.backward_last = backward(outputs);
}

/// Adapters with magnitudes: a piece of W + s B A and its factors in fp32, with dropout the base's product
/// once more; in backward the scaled gradient of the base, that of the adapter, and the column's own value
/// (engine/models/unit/adapters.cc).
void add_dora(const StepShape& s, const MemoryInput& input, ActivationModel& a) {
  if (!input.lora || !input.lora->use_dora) return;
  const bool cut = input.recompute && input.pieces.cuts(s.rows);
  const int64_t mlp_rows = cut ? std::min(input.pieces.piece, s.rows) : s.rows;
  const int64_t inner = std::max(s.mlp_width, s.hidden);
  const int64_t results =
      s.element * std::max(s.rows * std::max(s.qkv, s.hidden), mlp_rows * inner);
  const int64_t widest = std::max({s.hidden, s.qkv, s.query, inner});
  const int64_t piece = std::min(layout::kDoraPiece + widest, widest * widest);
  const int64_t lengths = 4 * (3 * piece + (6 + input.lora->largest_rank()) * widest);
  a.forward += lengths + 2 * results;
  a.backward += lengths + 4 * results;
  a.backward_last += lengths + 4 * results;
}

/// Adapters of all experts: B by expert, of one projection in forward and of both in backward, there
/// with its gradient, at most fp32; and the updates of all routed tokens
/// (engine/models/unit/expert_adapter.h).
void add_expert_adapters(const StepShape& s, const MemoryInput& input, ActivationModel& a) {
  if (!input.lora || input.lora->target_parameters.empty()) return;
  const auto& experts = input.model.experts;
  const int64_t rank = input.lora->largest_rank(), count = experts.count * rank;
  const int64_t up = 2 * experts.inner, routed = s.rows * experts.per_token;
  const int64_t updates = s.element * routed * (std::max(up, s.hidden) + rank);
  a.forward += s.element * count * std::max(up, s.hidden) + updates;
  const int64_t backward = (s.element + 4) * count * (up + s.hidden) + updates;
  a.backward += backward;
  a.backward_last += backward;
}

void head(const StepShape& s, const MemoryInput& input, ActivationModel& a) {
  const bool cut = !input.model.scored && input.pieces.cuts(s.targets);
  const int64_t piece =
      input.model.scored
          ? s.targets
          : layout::logit_rows(s.targets, s.vocab, layout::logit_elements(input.accelerator),
                               input.pieces);
  // A row with a target, normed, dh; then the row's gradient, with autocast besides dh's.
  const int64_t row = s.hidden * (s.wide + 2 * s.element);
  const int64_t columns = s.hidden * s.wide;
  const int64_t gradients = (s.casts() ? 2 * columns : columns) + norm_gradient(s, input.model, 1);
  // With a cap: the logits, its slope, and a temporary.
  const int64_t logits = input.model.logits_cap > 0 ? 3 : 1;
  if (cut)  // dx; a piece's rows, normed, dh, then their gradient instead of the logits
    a.head = last_outputs(s) * columns + piece * (row + 2 * 4) +
             std::max(logits * piece * s.vocab * s.element + packing(s), piece * gradients);
  else  // the rows with a target, normed, dh; sums; logits, then their rows' gradient
    a.head = s.targets * (row + 2 * 4) +
             std::max(logits * piece * s.vocab * s.element + packing(s), s.targets * gradients);
  if (input.model.head_bias) a.head += s.vocab * (4 + 2 * s.element);  // the sum of its gradient
  a.head_products = head_products(s, input.accelerator, piece);
  a.sums_head = s.casts_to_fp16() && piece < s.targets;
}

/// What layers share (engine/models/layers/carried_inputs.cc).
void carried(const StepShape& s, const MemoryInput& input, ActivationModel& a) {
  const layout::ModelConfig& model = input.model;
  if (!model.key_layers.empty()) {
    a.keys = s.rows * 2 * model.kv_size() * s.element;
    a.dkeys = s.rows * 2 * model.kv_size() * 4;
  }
  if (model.layer_input == 0) return;
  const int64_t columns = model.num_layers * model.layer_input;
  a.inputs = s.rows * columns * s.wide;
  a.table_forward = s.casts() ? s.rows * columns * s.element : 0;
  a.table_backward = s.wide == 2 ? 2 * a.inputs : a.inputs;
  const int64_t tokens = std::min(s.rows, input.pieces.piece);
  const int64_t product = columns * (s.element + (s.casts() ? s.wide : 0));
  const int64_t sums = 2 * 4 * model.num_layers;
  const int64_t copies = widens_norms(s, model) ? columns * 4 : 0;
  const int64_t scaled = input.lora && input.lora->use_dora ? 4 * columns * s.element : 0;
  a.inputs_forward =
      tokens * (product + columns * s.wide + 2 * copies + s.hidden * s.element + sums + scaled);
  a.inputs_backward = tokens * (product + 3 * columns * s.wide + 4 * copies +
                                s.hidden * (2 * s.element + s.wide) + sums + scaled) +
                      packing(s);
  if (!input.pieces.cuts(s.rows)) return;
  a.sums_inputs = s.casts_to_fp16();
  if (s.wide == 4) return;
  int64_t elements = columns * s.hidden + model.layer_input;
  if (input.lora && input.lora->adapts())
    elements =
        input.lora->largest_rank() * (columns + s.hidden) + (input.lora->use_dora ? columns : 0);
  a.inputs_sums =
      2 * s.element * elements +
      wide_tile(input.accelerator) * std::min(elements, layout::sum_tile(input.accelerator));
}

ActivationModel of_micro_batch(const MemoryInput& input, const MicroBatchTokens& tokens,
                               layout::Mixer mixer) {
  const StepShape s(input, tokens, mixer);
  const dsconfig::ResolvedConfig& config = input.config;
  ActivationModel a;
  // ids, labels and positions of every micro-step; a mask and the indices of tokens with a target;
  // the rope table; the sum of the losses (a double)
  const int64_t whole = s.ranks > 1 ? s.rows * s.ranks : 0;  // positions of all parts
  a.step = config.gradient_accumulation_steps * (s.rows * 3 + s.targets * 2 + whole) * 8 +
           s.seq * input.model.head_dim * 4 + 8;
  a.boundary = s.rows * s.wide * s.hidden;
  a.embedding = s.wide == 2 ? 2 * a.boundary : a.boundary;  // dx, and its sum over rows
  if (input.recompute && input.pieces.cuts(s.rows))
    cut_layer(s, input, a);
  else
    whole_layer(s, input, a);
  add_dora(s, input, a);
  add_expert_adapters(s, input, a);
  carried(s, input, a);
  head(s, input, a);
  if (s.casts() && (input.accelerator || !s.widened || s.casts_to_fp16()))
    a.gradient_piece = layout::sum_tile(input.accelerator);
  return a;
}

}  // namespace

ActivationModel activation_model(const MemoryInput& input, layout::Mixer mixer) {
  const MicroBatchTokens most = part_of(tokens_of(input), input.config.sequence_parallel_size);
  const ActivationModel longest = of_micro_batch(input, most, mixer);
  if (!input.recompute || !input.pieces.cuts(most.tokens)) return longest;
  // The longest uncut micro-batch keeps slightly more than one that is hardly longer and cut.
  const int64_t whole = input.pieces.piece;
  const ActivationModel other =
      of_micro_batch(input, {whole, std::min(most.targets, whole)}, mixer);
  const int64_t inputs = input.inputs_leave() ? 1 : input.model.num_layers;
  const auto held = [&](const ActivationModel& a) {
    return (inputs + 1) * a.boundary + a.kept + a.backward;
  };
  return held(longest) < held(other) ? other : longest;
}

ActivationModel dropping_model(const MemoryInput& input, layout::Mixer mixer) {
  const auto& ltd = input.config.data_efficiency.random_ltd;
  if (!ltd) return activation_model(input, mixer);
  MemoryInput kept = input;
  kept.tokens_per_row = std::min(longest_row(input), ltd->kept(steps_of(input) - 1));
  ActivationModel a = activation_model(kept, mixer);
  // Indices and positions of the kept tokens stay until backward. The layer writes into x.
  a.backward += a.boundary;  // gradients of the kept rows
  a.boundary += tokens_of(kept).tokens * 2 * 8;
  return a;
}

}  // namespace dsj::plan
