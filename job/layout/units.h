// A model as an ordered list of units (embedding, one per decoder layer, head) with their
// parameters. Torch-free. The memory model counts with it, the engine builds from it, the reader
// and the exporter of weights take tensor names from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/layout/model_config.h"

namespace dsj::layout {

/// The storage of a parameter in a rank's memory.
enum class Packing {
  None,          ///< plain elements
  Nf4,           ///< frozen only: 4-bit codes and a scale per block (layout/packing.h)
  Nf4TwoLevels,  ///< the same with 8-bit scales, which have scales of their own
};

struct Parameter {
  std::string name;  ///< as in the Hugging Face checkpoint
  std::vector<int64_t> shape;
  bool frozen = false;  ///< not trained: no gradient and no optimizer state
  /// Belongs to one expert or to all: only the tokens that the router sends there read it.
  bool routed = false;
  Packing packing = Packing::None;
  /// Above 0: files may lack it; it is then initialized with normal noise of this deviation.
  double drawn = 0;
  int64_t numel() const;
};

/// A low-rank update of a weight, as indices of its unit's parameters (layout/lora.h).
struct Adapter {
  int weight = 0;  ///< of experts: the first one of those that it changes
  int a = 0;       ///< [r, in]; of experts [experts r, in], each expert's rows together
  int b = 0;       ///< [out, r]; of experts [out, r experts]: k experts + e is expert e's column k
  int magnitude = -1;  ///< DoRA's [out]; -1: it has none
  int64_t rank = 0;
  double scaling = 1;  ///< an update is scaling B A
  /// Above 0: one adapter for the same projection of all experts, as PEFT's of a 3-D parameter.
  int64_t experts = 0;
};

struct UnitSpec {
  std::string name;  ///< "embedding", "layer 3", "head"
  std::vector<Parameter> parameters;
  bool uses_embedding = false;  ///< head of a tied model: it uses the embedding's weight
  std::vector<Adapter> adapters = {};
  /// Not trained and without state: every rank reads them whole, in fp32, from the model directory;
  /// an export copies them.
  std::vector<Parameter> buffers = {};
  /// Runs between the embedding and the first layer, although it follows the head in the list.
  bool before_layers = false;
  bool only_rows = false;  ///< a table of which tokens read rows: backward does not need it
};

/// A name without its model's prefix ("model.", "transformer.", "gpt_neox."), as in files saved
/// from the bare model. Empty if it has no prefix.
std::string name_without_prefix(const std::string& name);

/// The kind of a parameter in a llama-like decoder layer.
enum class Role {
  Norm1,
  Norm1Bias,
  Q,  ///< of q, k and v if one weight contains them
  K,
  V,
  QBias,
  KBias,
  VBias,
  QNorm,
  KNorm,
  O,
  OBias,
  PostAttentionNorm,
  Norm2,
  Norm2Bias,
  Gate,  ///< of gate and up if one weight contains them
  Up,
  GateBias,
  UpBias,
  Down,
  DownBias,
  PostMlpNorm,
  ActivationPositive,
  ActivationNegative,
  Sinks,
  QueryDown,  ///< latent attention
  QueryDownBias,
  QueryNorm,
  KeyDown,
  KeyDownBias,
  KeyNorm,
  KeyUp,
  Router,
  RouterBias,
  SharedGate,
  SharedUp,
  SharedDown,
  SharedScale,
  RouterScale,  ///< experts beside a plain MLP
  ExpertScale,
  ExpertsNorm,
  PostPlainNorm,
  PostExpertsNorm,
  DeltaQkv,        ///< the gated delta rule; by_group: one weight also has the gates
  DeltaStrengths,  ///< by_group: also the decays
  DeltaDecays,
  DeltaGates,
  DeltaConv,
  DeltaRates,
  DeltaShifts,
  DeltaNorm,
  DeltaConvBias,  ///< Mamba 2
  DeltaSkips,
  ConvIn,  ///< a short convolution: both gates and the input
  ConvWeight,
  LayerInputGate,  ///< ModelConfig::layer_input
  LayerInputOut,
  PostLayerInputNorm,
};
inline constexpr int kRoles = static_cast<int>(Role::PostLayerInputNorm) + 1;
/// The roles that this model has, in the order of its unit's parameters (Block::Llama). `experts`:
/// for a layer with experts (ModelConfig::has_experts); the experts' own parameters follow: gate,
/// up and down of each expert, or stacked gate and up, then stacked down. The roles of attention
/// come first in every layer. `mixer`: what the layer has instead of attention; its output
/// projection is O.
std::vector<Role> decoder_roles(const ModelConfig& config, bool experts = false,
                                Mixer mixer = Mixer::Attention);

/// Embedding, layers, head; with ModelConfig::layer_input two more, which run before the layers:
/// the table of the second embedding, and the projection of the first. Parameters that one matrix
/// product can use are neighbours (q, k, v weights; q, k, v biases; gate and up), so one view spans
/// them without a copy.
std::vector<UnitSpec> units_of(const ModelConfig& config);

/// Elements; tied weights count once.
int64_t total_numel(const std::vector<UnitSpec>& units);
int64_t trainable_numel(const std::vector<UnitSpec>& units);
/// The number of parameters that a token uses: of the routed ones, its share.
int64_t active_numel(const ModelConfig& config, const std::vector<UnitSpec>& units);

/// The head's index: that of the last unit without before_layers.
int head_of(const std::vector<UnitSpec>& units);

/// The first unit with a trained parameter, where backward ends; 0 if a unit before the layers has
/// one.
int lowest_trainable(const std::vector<UnitSpec>& units);

}  // namespace dsj::layout
