#include "engine/observe/flops.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/format.h"

namespace dsj::observe {
namespace {

using text::format;

/// "12.3 M".
std::string count_text(double value, const char* unit) {
  constexpr std::array prefixes{"", "K", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; value >= 1000 && prefix + 1 < prefixes.size(); ++prefix) value /= 1000;
  return format("%.2f %s%s", value, prefixes[prefix], unit);
}

std::string ms_text(double ms) {
  return ms < 0 ? "-" : format("%.3f ms", ms);
}

std::string rate_text(double operations, double ms) {
  return ms > 0 ? count_text(operations / (ms / 1000), "FLOPS") : "-";
}

/// "model.layers.3.self_attn.q_proj.weight" → {"self_attn", "q_proj"}: the part after the layer's
/// number, without the tensor's own name; at least the owner's name.
std::vector<std::string> owners(const std::string& name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  size_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].empty() &&
        std::ranges::all_of(parts[i], [](char c) { return c >= '0' && c <= '9'; }))
      first = i + 1;
  }
  if (parts.size() > 1) parts.pop_back();
  if (first == 0 || first >= parts.size()) return {parts.back()};
  return {parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end()};
}

Module& child(Module& parent, const std::string& name) {
  for (Module& existing : parent.children) {
    if (existing.name == name) return existing;
  }
  parent.children.push_back({.name = name});
  return parent.children.back();
}

void add_up(Module& module) {
  for (Module& part : module.children) {
    add_up(part);
    module.parameters += part.parameters;
    module.macs += part.macs;
  }
}

void tree_text(const Module& module, const Module& root, int depth, std::string& text) {
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  text += std::string(static_cast<size_t>(depth) * 2, ' ') + module.name + ": " +
          count_text(static_cast<double>(module.parameters), "") +
          format(" params (%.2f%%), ", share(module.parameters, root.parameters)) +
          count_text(static_cast<double>(module.macs), "MACs") +
          format(" (%.2f%%), ", share(module.macs, root.macs)) + ms_text(module.latency_ms) + ", " +
          rate_text(static_cast<double>(module.flops()), module.latency_ms) + "\n";
  for (const Module& part : module.children) tree_text(part, root, depth + 1, text);
}

void level(const Module& module, int depth, std::vector<const Module*>& out) {
  if (depth == 0) return out.push_back(&module);
  for (const Module& part : module.children) level(part, depth - 1, out);
}

int height(const Module& module) {
  int most = 0;
  for (const Module& part : module.children) most = std::max(most, 1 + height(part));
  return most;
}

/// The largest modules of one depth, by three measures.
std::string top_text(const Module& model, int depth, int64_t top) {
  std::vector<const Module*> modules;
  level(model, depth, modules);
  std::string text = "depth " + std::to_string(depth) + ":\n";
  const auto line = [&](const char* what, auto value, auto shown) {
    std::ranges::stable_sort(
        modules, [&](const Module* a, const Module* b) { return value(*a) > value(*b); });
    text += std::string("  ") + what;
    const size_t shown_max =
        std::min(modules.size(), static_cast<size_t>(std::max<int64_t>(0, top)));
    for (size_t i = 0; i < shown_max; ++i) {
      text += (i == 0 ? " " : ", ") + modules[i]->name + " " + shown(*modules[i]);
    }
    text += "\n";
  };
  line(
      "params     ", [](const Module& m) { return static_cast<double>(m.parameters); },
      [](const Module& m) { return count_text(static_cast<double>(m.parameters), ""); });
  line(
      "MACs       ", [](const Module& m) { return static_cast<double>(m.macs); },
      [](const Module& m) { return count_text(static_cast<double>(m.macs), "MACs"); });
  if (std::ranges::any_of(modules, [](const Module* m) { return m->latency_ms >= 0; })) {
    line(
        "fwd latency", [](const Module& m) { return m.latency_ms; },
        [](const Module& m) { return ms_text(m.latency_ms); });
  }
  return text;
}

void set_latencies(Module& model, const ProfiledStep& step) {
  const double passes = static_cast<double>(step.accumulation);
  model.latency_ms = step.times.forward / passes;
  // The head's forward and backward are computed together, counted as backward.
  for (size_t i = 0; i + 1 < model.children.size() && i < step.times.unit_forward.size(); ++i) {
    model.children[i].latency_ms = step.times.unit_forward[i] / passes;
  }
}

std::string head_text(const dsconfig::FlopsProfilerConfig& config, const Module& model,
                      const ProfiledStep& step) {
  const double passes = static_cast<double>(step.accumulation);
  const double forward_flops = static_cast<double>(model.flops());
  const double backward_flops = forward_flops * (2 + config.recompute_fwd_factor);
  const double forward = step.times.forward / passes, backward = step.times.backward() / passes;
  const double iteration = step.times.forward + step.times.backward() + step.times.step;
  const double all_flops = (forward_flops + backward_flops) * passes;
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += format("%-62s", what) + value + "\n";
  };
  line("world size:", std::to_string(step.world));
  line("data parallel size:", std::to_string(step.world));
  line("rows per micro-batch and rank:", std::to_string(step.rows));
  line("tokens of the micro-batch:", std::to_string(step.tokens));
  line("params of the model:", count_text(static_cast<double>(model.parameters), ""));
  line("fwd MACs per rank:", count_text(static_cast<double>(model.macs), "MACs"));
  line("fwd flops per rank:", count_text(forward_flops, ""));
  line("fwd flops of all ranks:", count_text(forward_flops * step.world, ""));
  line("fwd latency (without the head's visit):", ms_text(forward));
  line("fwd FLOPS per rank = fwd flops / fwd latency:", rate_text(forward_flops, forward));
  line("bwd latency (with the head's visit):", ms_text(backward));
  line(format("bwd FLOPS per rank = %.3g x fwd flops / bwd latency:",
              2 + config.recompute_fwd_factor)
           .c_str(),
       rate_text(backward_flops, backward));
  line("fwd+bwd FLOPS per rank:", rate_text(forward_flops + backward_flops, forward + backward));
  line("step latency:", ms_text(step.times.step));
  line(format("iter latency (%lld micro-steps and the step):",
              static_cast<long long>(step.accumulation))
           .c_str(),
       ms_text(iteration));
  line("FLOPS per rank = flops of the iter / iter latency:", rate_text(all_flops, iteration));
  if (iteration > 0) {
    line("samples/second:", format("%.2f", step.samples_per_step / (iteration / 1000)));
  }
  return text;
}

}  // namespace

/// Per token, the gated delta rule and the convolution before it: the state is read, written, and
/// read for the result. Mamba 2 does not read it to write.
static int64_t rule_macs(const layout::DeltaConfig& delta) {
  return (delta.mamba ? 2 : 3) * delta.value_heads * delta.key_dim * delta.value_dim +
         delta.conv_size() * delta.kernel;
}

Module count_forward(const layout::ModelConfig& model, const std::vector<layout::UnitSpec>& units,
                     std::span<const int64_t> lengths, const ShorterRows& shorter) {
  Module root{.name = "model"};
  for (size_t i = 0; i < units.size(); ++i) {
    const bool drops = std::ranges::binary_search(shorter.layers, static_cast<int64_t>(i) - 1);
    int64_t tokens = 0, pairs = 0;  // pairs of query and key, over all rows
    for (const int64_t whole : lengths) {
      const int64_t length = drops ? std::min(whole, shorter.most) : whole;
      tokens += length;
      pairs += length * length;
    }
    const layout::UnitSpec& spec = units[i];
    Module unit{.name = spec.name};
    const bool embedding = i == 0 || spec.only_rows;
    const bool head = static_cast<int>(i) == layout::head_of(units);
    for (const layout::Parameter& parameter : spec.parameters) {
      Module* owner = &unit;
      for (const std::string& name : owners(parameter.name)) owner = &child(*owner, name);
      owner->parameters += parameter.numel();
      // An embedding looks rows up, without a product.
      if (parameter.routed)  // on average over the experts
        owner->macs += tokens * model.experts.per_token * parameter.numel() / model.experts.count;
      else if (parameter.shape.size() == 2 && !embedding)
        owner->macs += tokens * parameter.numel();
    }
    if (head && spec.uses_embedding) {
      child(unit, "lm_head").macs += tokens * model.vocab_size * model.hidden_size;
    }
    if (!embedding && !head && model.has_conv(static_cast<int64_t>(i) - 1)) {
      child(child(unit, model.names.conv), "filter").macs +=
          tokens * model.conv.kernel * model.hidden_size;
    } else if (!embedding && !head && model.delta.mamba &&
               model.has_delta(static_cast<int64_t>(i) - 1)) {
      child(child(unit, model.names.delta), "rule").macs += tokens * rule_macs(model.delta);
    } else if (!embedding && !head) {
      for (Module& part : unit.children) {
        if (part.name.find("attn") == std::string::npos &&
            part.name.find("attention") == std::string::npos) {
          continue;
        }
        if (part.name.find("norm") != std::string::npos) continue;
        if (model.has_delta(static_cast<int64_t>(i) - 1))
          child(part, "rule").macs += tokens * rule_macs(model.delta);
        else
          child(part, "scores").macs +=
              2 * model.num_heads * model.head_dim_of(static_cast<int64_t>(i) - 1) * pairs;
        break;
      }
    }
    root.children.push_back(std::move(unit));
  }
  add_up(root);
  return root;
}

std::string flops_report(const dsconfig::FlopsProfilerConfig& config, Module model,
                         const ProfiledStep& step) {
  set_latencies(model, step);
  std::string text = "flops profile of step " + std::to_string(step.step) + ", one micro-batch\n" +
                     head_text(config, model, step) + "\nlargest modules\n";
  const int deepest = height(model);
  const int depth =
      config.module_depth < 0 ? deepest : std::min(deepest, static_cast<int>(config.module_depth));
  for (int d = 0; d <= depth; ++d) text += top_text(model, d, config.top_modules);
  if (config.detailed) {
    text += "\nall modules: params, MACs, fwd latency, FLOPS\n";
    tree_text(model, model, 0, text);
  }
  return text;
}

}  // namespace dsj::observe
