// What of a checkpoint makes it one of another model, and which options the sentence names. Manifests alone, no files.
#include "tutti/models/transformer/same_model.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TransformerConfig small_model() {
  return with_defaults({.layers = 2, .hidden = 16, .heads = 2, .vocabulary = 32, .sequence_length = 8});
}

// As a run with this config saves it, with what Adam keeps or without.
Manifest manifest_of(const TransformerConfig& config, bool with_state = true) {
  Manifest manifest;
  manifest.facts.values = config_values(config);
  for (const ModelTensor& tensor : tensors_of(config)) {
    const TensorShape shape(tensor.shape.begin(), tensor.shape.end());
    manifest.tensors[{tensor.name, ""}].shape = shape;
    if (!with_state) continue;
    for (const StateKind& kind : state_kinds(AdamWOptions())) manifest.tensors[{tensor.name, kind.name}].shape = shape;
    manifest.tensors[{tensor.name, "step"}].dtype = DType::kI64;
  }
  return manifest;
}

// What is said where `saved` is loaded by `given`; "fits": nothing.
std::string said(const Manifest& saved, const TransformerConfig& given, const UpdateRule* rule = nullptr) {
  const auto reader = CheckpointReader::of_files("ck", saved, {});
  const Status same = check_same_model(reader, given, rule);
  return same.ok() ? "fits" : same.error().detail + " | " + same.error().hint;
}

TEST(SameModel, FitsItselfWithAndWithoutWhatAnOptimizerKeeps) {
  const TransformerConfig config = small_model();
  const UpdateRule adam = AdamWOptions(), momentum = SgdOptions{.momentum = 0.9}, plain = SgdOptions();
  EXPECT_EQ(said(manifest_of(config), config, &adam), "fits");
  EXPECT_EQ(said(manifest_of(config), config), "fits") << "--finetune, --no-load-optim";
  EXPECT_EQ(said(manifest_of(config, false), config), "fits");
  const auto optimizer = AllOf(HasSubstr("of this model, but not with this optimizer's state"),
                               HasSubstr("or --no-load-optim to start its state from zero"));
  EXPECT_THAT(said(manifest_of(config, false), config, &adam), optimizer);
  EXPECT_THAT(said(manifest_of(config), config, &momentum), optimizer);
  EXPECT_THAT(said(manifest_of(config), config, &plain), AllOf(optimizer, HasSubstr("it has more: ")));
}

TEST(SameModel, ASmallerModelWouldLeaveWeightsBehind) {
  const UpdateRule adam = AdamWOptions();
  TransformerConfig saved = small_model();
  saved.layers = 4;
  saved.tied = false;
  for (const UpdateRule* rule : {static_cast<const UpdateRule*>(nullptr), &adam}) {
    const auto refusal = said(manifest_of(saved), small_model(), rule);
    EXPECT_THAT(refusal, AllOf(HasSubstr("the checkpoint ck is of another model: it has more: decoder.layers.2."),
                               HasSubstr(" and 21 more | "),
                               HasSubstr("the run that saved it: --num-layers 4, "
                                         "--untie-embeddings-and-output-weights"),
                               Not(HasSubstr("--no-load-optim"))));
  }
  saved = small_model();
  TransformerConfig given = saved;
  given.bias = false;
  EXPECT_THAT(said(manifest_of(saved), given), AllOf(HasSubstr("decoder.layers.0.mlp.linear_fc1.bias"),
                                                     HasSubstr("saved it: no --disable-bias-linear")));
  EXPECT_THAT(said(manifest_of(given), saved), HasSubstr("it lacks decoder.layers.0.self_attention.linear_qkv.bias"));
  given = saved;
  given.norm = NormKind::kRmsNorm;
  EXPECT_THAT(said(manifest_of(saved), given), HasSubstr("saved with --normalization LayerNorm, and RMSNorm is given"));
  Manifest older = manifest_of(saved);
  older.facts.values.erase("normalization");
  EXPECT_EQ(said(older, saved), "fits") << "tensors tell the norm as well";
  EXPECT_THAT(said(older, given), AllOf(HasSubstr("it has more: decoder.final_layernorm.bias"),
                                        HasSubstr("saved it: --normalization LayerNorm")));
}

TEST(SameModel, WhatTensorsDoNotShowIsNamedByItsOption) {
  const TransformerConfig saved = small_model();
  TransformerConfig given = saved;
  given.heads = given.query_groups = 4;
  EXPECT_THAT(said(manifest_of(saved), given), HasSubstr("saved with --num-attention-heads 2, and 4 is given"));
  given = saved;
  given.position = PositionKind::kRotary;
  EXPECT_THAT(said(manifest_of(saved), given),
              HasSubstr("saved with --position-embedding-type learned_absolute, and rope is given"));
  given = saved;
  given.activation = ActivationKind::kSquaredRelu;
  EXPECT_THAT(said(manifest_of(saved), given),
              HasSubstr("saved with the activation GELU, and --squared-relu is given"));
  given = saved;
  given.rotary_base = 5;
  EXPECT_EQ(said(manifest_of(saved), given), "fits") << "these positions do not turn";
  Manifest silent = manifest_of(saved);
  silent.facts.values.erase("heads");
  EXPECT_THAT(said(silent, saved), HasSubstr("it does not say with which --num-attention-heads it was saved"));
}

}  // namespace
}  // namespace tutti
