// What of a checkpoint makes it one of another model, and which options the sentence names. Manifests alone, no files.
#include "tutti/models/gpt/same_model.h"

#include <gmock/gmock.h>

namespace tutti::gpt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Options small_model() {
  Options options;
  options.model = {.layers = 2,
                   .hidden = 16,
                   .heads = 2,
                   .query_groups = 2,
                   .head_size = 8,
                   .ffn = 64,
                   .vocabulary = 32,
                   .sequence_length = 8,
                   .positions = 8};
  return options;
}

// As a run with these options saves it, with what Adam keeps or without.
Manifest manifest_of(const Options& options, bool with_state = true) {
  Manifest manifest;
  manifest.facts = {.values = model_facts(options.model), .data = {{"seed", std::int64_t(options.model.seed)}}};
  for (const ModelTensor& tensor : tensors_of(options.model)) {
    const TensorShape shape(tensor.shape.begin(), tensor.shape.end());
    manifest.tensors[{tensor.name, ""}].shape = shape;
    if (!with_state) continue;
    for (const StateKind& kind : state_kinds(AdamWOptions())) manifest.tensors[{tensor.name, kind.name}].shape = shape;
    manifest.tensors[{tensor.name, "step"}].dtype = DType::kI64;
  }
  return manifest;
}

// What is said where `saved` is loaded by `given`; "fits": nothing.
std::string said(const Manifest& saved, const Options& given, const UpdateRule* rule = nullptr) {
  const auto reader = CheckpointReader::of_files("ck", saved, {});
  const Status same = check_same_model(reader, given, rule);
  return same.ok() ? "fits" : same.error().detail + " | " + same.error().hint;
}

TEST(SameModel, FitsItselfWithAndWithoutWhatAnOptimizerKeeps) {
  const Options options = small_model();
  const UpdateRule adam = AdamWOptions(), momentum = SgdOptions{.momentum = 0.9}, plain = SgdOptions();
  EXPECT_EQ(said(manifest_of(options), options, &adam), "fits");
  EXPECT_EQ(said(manifest_of(options), options), "fits") << "--finetune, --no-load-optim";
  EXPECT_EQ(said(manifest_of(options, false), options), "fits");
  const auto optimizer = AllOf(HasSubstr("of this model, but not with this optimizer's state"),
                               HasSubstr("or --no-load-optim to begin its state anew"));
  EXPECT_THAT(said(manifest_of(options, false), options, &adam), optimizer);
  EXPECT_THAT(said(manifest_of(options), options, &momentum), optimizer);
  EXPECT_THAT(said(manifest_of(options), options, &plain), AllOf(optimizer, HasSubstr("it has more: ")));
}

TEST(SameModel, ASmallerModelWouldLeaveWeightsBehind) {
  const UpdateRule adam = AdamWOptions();
  Options saved = small_model();
  saved.model.layers = 4;
  saved.model.tied = false;
  for (const UpdateRule* rule : {static_cast<const UpdateRule*>(nullptr), &adam}) {
    const auto refusal = said(manifest_of(saved), small_model(), rule);
    EXPECT_THAT(refusal, AllOf(HasSubstr("the checkpoint ck is of another model: it has more: decoder.layers.2."),
                               HasSubstr(" and 21 more | "),
                               HasSubstr("the run that saved it: --num-layers 4, "
                                         "--untie-embeddings-and-output-weights"),
                               Not(HasSubstr("--no-load-optim"))));
  }
  saved = small_model();
  Options given = saved;
  given.model.bias = false;
  EXPECT_THAT(said(manifest_of(saved), given), AllOf(HasSubstr("decoder.layers.0.mlp.linear_fc1.bias"),
                                                     HasSubstr("saved it: no --disable-bias-linear")));
  EXPECT_THAT(said(manifest_of(given), saved), HasSubstr("it lacks decoder.layers.0.self_attention.linear_qkv.bias"));
  given = saved;
  given.model.norm = NormKind::kRmsNorm;
  EXPECT_THAT(said(manifest_of(saved), given), HasSubstr("saved with --normalization LayerNorm, and RMSNorm is given"));
  Manifest older = manifest_of(saved);
  older.facts.values.erase("normalization");
  EXPECT_EQ(said(older, saved), "fits") << "tensors tell the norm as well";
  EXPECT_THAT(said(older, given), AllOf(HasSubstr("it has more: decoder.final_layernorm.bias"),
                                        HasSubstr("saved it: --normalization LayerNorm")));
}

TEST(SameModel, WhatTensorsDoNotShowIsSaidInOptions) {
  const Options saved = small_model();
  Options given = saved;
  given.model.heads = given.model.query_groups = 4;
  EXPECT_THAT(said(manifest_of(saved), given), HasSubstr("saved with --num-attention-heads 2, and 4 is given"));
  given = saved;
  given.model.position = PositionKind::kRotary;
  EXPECT_THAT(said(manifest_of(saved), given),
              HasSubstr("saved with --position-embedding-type learned_absolute, and rope is given"));
  given = saved;
  given.model.activation = ActivationKind::kSquaredRelu;
  EXPECT_THAT(said(manifest_of(saved), given),
              HasSubstr("saved with the activation GELU, and --squared-relu is given"));
  given = saved;
  given.model.rotary_base = 5;
  EXPECT_EQ(said(manifest_of(saved), given), "fits") << "these positions do not turn";
  Manifest silent = manifest_of(saved);
  silent.facts.values.erase("heads");
  EXPECT_THAT(said(silent, saved), HasSubstr("it does not say with which --num-attention-heads it was saved"));
  given.model.seed = 5;
  const auto seed = check_same_seed(CheckpointReader::of_files("ck", manifest_of(saved), {}), given);
  ASSERT_FALSE(seed.ok());
  EXPECT_EQ(seed.error().detail,
            "the checkpoint ck is of another run: it was saved with --seed 1234, and --seed 5 is given");
}

// Told, not refused: longer sequences at the end of a training are a way to train.
TEST(SameModel, DataInAnotherOrderOrLengthIsTold) {
  const auto told = [](const Manifest& saved, const Options& given) {
    return changes_of_data(CheckpointReader::of_files("ck", saved, {}), given);
  };
  const Options saved = small_model();
  Manifest manifest = manifest_of(saved);
  EXPECT_THAT(told(manifest, saved), IsEmpty()) << "of before: it does not say";
  for (const auto& [name, value] : data_facts(saved)) manifest.facts.data[name] = value;
  manifest.facts.data["consumed_samples"] = std::int64_t(32);
  EXPECT_THAT(told(manifest, saved), IsEmpty());
  Options given = saved;
  given.model.sequence_length = 4;
  EXPECT_THAT(
      told(manifest, given),
      ElementsAre("the checkpoint ck was saved with --seq-length 8, and --seq-length 4 is given: the 32 samples "
                  "behind were of that length, so some of the data comes twice and some never (--finetune takes "
                  "the weights alone and begins the data anew)"));
  given = saved;
  given.order = SampleOrder::kRandomSharded;
  EXPECT_THAT(
      told(manifest, given),
      ElementsAre(HasSubstr("was saved with --dataloader-type single, and --dataloader-type cyclic is given: the "
                            "32 samples behind were the first in that order")));
  manifest.facts.data["sample_order"] = std::int64_t(SampleOrder::kRandom);
  given.model.sequence_length = 4;
  ASSERT_THAT(told(manifest, given), SizeIs(2));
  EXPECT_THAT(told(manifest, given)[1], HasSubstr("saved with --dataloader-type cyclic --no-data-sharding, and "
                                                  "--dataloader-type cyclic is given"));
}

}  // namespace
}  // namespace tutti::gpt
