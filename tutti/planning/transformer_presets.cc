// Sizes from the config.json that was published with the weights of each model. The number of parameters of each is in
// transformer_presets_test.cc.
#include "tutti/planning/transformer_presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

namespace tutti {
namespace {

struct Preset {
  const char* name;
  TransformerConfig config;
};

TransformerConfig gpt2(int layers, int hidden, int heads) {
  return with_defaults(
      {.layers = layers, .hidden = hidden, .heads = heads, .vocabulary = 50257, .sequence_length = 1024});
}

// No weights were published; the vocabulary is that of GPT-2.
TransformerConfig gpt3_175b() {
  return with_defaults({.layers = 96, .hidden = 12288, .heads = 96, .vocabulary = 50257, .sequence_length = 2048});
}

// What Llama, Mistral and Qwen have in common.
TransformerConfig llama(TransformerConfig sizes) {
  sizes.norm = NormKind::kRmsNorm;
  sizes.position = PositionKind::kRotary;
  sizes.activation = ActivationKind::kSwiglu;
  sizes.bias = sizes.tied = false;
  return with_defaults(sizes);
}

TransformerConfig llama2_7b() {
  return llama({.layers = 32, .hidden = 4096, .heads = 32, .ffn = 11008, .vocabulary = 32000, .sequence_length = 4096});
}

TransformerConfig llama3(int layers, int hidden, int heads, int ffn) {
  return llama({.layers = layers,
                .hidden = hidden,
                .heads = heads,
                .query_groups = 8,
                .ffn = ffn,
                .vocabulary = 128256,
                .sequence_length = 8192,
                .rotary_base = 500000});
}

TransformerConfig mistral_7b() {
  return llama({.layers = 32,
                .hidden = 4096,
                .heads = 32,
                .query_groups = 8,
                .ffn = 14336,
                .vocabulary = 32000,
                .sequence_length = 32768,
                .rotary_base = 1e6});
}

TransformerConfig qwen2_5(TransformerConfig sizes, bool tied) {
  sizes.sequence_length = 32768;
  sizes.norm_epsilon = 1e-6;
  sizes.rotary_base = 1e6;
  sizes.qkv_bias = true;
  TransformerConfig config = llama(sizes);
  config.tied = tied;
  return config;
}

std::span<const Preset> presets() {
  static const Preset presets[] = {
      {"gpt2", gpt2(12, 768, 12)},
      {"gpt2-medium", gpt2(24, 1024, 16)},
      {"gpt2-large", gpt2(36, 1280, 20)},
      {"gpt2-xl", gpt2(48, 1600, 25)},
      {"gpt3-175b", gpt3_175b()},
      {"llama2-7b", llama2_7b()},
      {"llama3-8b", llama3(32, 4096, 32, 14336)},
      {"llama3-70b", llama3(80, 8192, 64, 28672)},
      {"llama3-405b", llama3(126, 16384, 128, 53248)},
      {"mistral-7b", mistral_7b()},
      {"qwen2.5-0.5b",
       qwen2_5({.layers = 24, .hidden = 896, .heads = 14, .query_groups = 2, .ffn = 4864, .vocabulary = 151936}, true)},
      {"qwen2.5-7b",
       qwen2_5({.layers = 28, .hidden = 3584, .heads = 28, .query_groups = 4, .ffn = 18944, .vocabulary = 152064},
               false)}};
  return presets;
}

}  // namespace

std::vector<std::string_view> transformer_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

Result<TransformerConfig> transformer_preset(std::string_view name) {
  const auto all = presets();
  const auto found = std::ranges::find_if(all, [&](const Preset& preset) { return preset.name == name; });
  if (found != all.end()) return found->config;
  std::string names;
  for (const std::string_view known : transformer_preset_names())
    names += (names.empty() ? "" : ", ") + std::string(known);
  return invalid_argument(fmt::format("there is no preset of a transformer named {}", name),
                          "expected one of " + names);
}

}  // namespace tutti
