// Tests sizes of a GPT that fit together, its tensors, its closed forms, and the messages for sizes that do not fit.
#include "tutti/planning/transformer_config.h"

#include <gmock/gmock.h>

#include <functional>
#include <set>

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TransformerConfig small() {
  TransformerConfig config;
  config.layers = 3;
  config.hidden = 32;
  config.heads = config.query_groups = 4;
  config.head_size = 8;
  config.ffn = 128;
  config.vocabulary = 100;
  config.sequence_length = config.positions = 16;
  return config;
}

std::string refusal(const std::function<void(TransformerConfig&, ModelDivision&)>& change) {
  TransformerConfig config = small();
  ModelDivision division;
  change(config, division);
  Status status = check(config);
  if (status.ok()) status = check(config, division);
  if (status.ok()) return "accepted";
  return status.error().detail + " | " + status.error().hint;
}

TEST(TransformerConfig, ClosedFormsAreTheSumOverTheTensors) {
  for (const bool bias : {true, false})
    for (const bool tied : {true, false})
      for (const auto norm : {NormKind::kLayerNorm, NormKind::kRmsNorm})
        for (const auto activation : {ActivationKind::kGelu, ActivationKind::kSwiglu})
          for (const int groups : {4, 2, 1}) {
            TransformerConfig config = small();
            config.bias = bias;
            config.qkv_bias = groups == 1;
            config.tied = tied;
            config.norm = norm;
            config.activation = activation;
            config.query_groups = groups;
            config.position = tied ? PositionKind::kLearned : PositionKind::kRotary;
            std::int64_t elements = 0;
            std::set<std::string> names;
            for (const auto& tensor : tensors_of(config)) {
              std::int64_t product = 1;
              for (const auto size : tensor.shape) product *= size;
              elements += product;
              EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name << " twice";
            }
            EXPECT_EQ(parameters_of(config), elements);
          }
}

// GPT-2's published size, and Megatron-LM's formula for its FLOPs.
TEST(TransformerConfig, Gpt2Small) {
  TransformerConfig config;
  config.layers = 12;
  config.hidden = 768;
  config.heads = config.query_groups = 12;
  config.head_size = 64;
  config.ffn = 3072;
  config.vocabulary = 50257;
  config.sequence_length = config.positions = 1024;
  EXPECT_EQ(parameters_of(config), 124439808);
  const double h = 768, s = 1024, layers = 12;
  EXPECT_DOUBLE_EQ(flops_per_token(config), 6 * (layers * (12 * h * h + h * s) + h * 50257));
}

TEST(TransformerConfig, RejectsSizesThatDoNotFit) {
  EXPECT_EQ(refusal([](auto&, auto&) {}), "accepted");
  EXPECT_THAT(refusal([](auto& s, auto&) { s.query_groups = 3; }),
              AllOf(HasSubstr("4 attention heads cannot be divided into 3 query groups"),
                    HasSubstr("--num-query-groups 1, 2 or 4 would do")));
  EXPECT_THAT(refusal([](auto& s, auto&) { s.sequence_length = 17; }),
              AllOf(HasSubstr("a sequence of 17 tokens (--seq-length) is longer than the 16 positions"),
                    HasSubstr("--max-position-embeddings 17 would do")));
  EXPECT_THAT(refusal([](auto& s, auto&) { s.layers = 0; }), HasSubstr("a GPT of 0 layers (--num-layers)"));
  EXPECT_THAT(refusal([](auto& s, auto&) {
                s.position = PositionKind::kRotary;
                s.rotary_percent = 0.4;
              }),
              HasSubstr("3 of a head's 8 numbers are an odd count"));
  EXPECT_THAT(refusal([](auto&, auto& d) { d.tensor = 3; }),
              AllOf(HasSubstr("4 attention heads (--num-attention-heads) cannot be divided over "
                              "--tensor-model-parallel-size 3"),
                    HasSubstr("| --tensor-model-parallel-size 1, 2 or 4, or --num-attention-heads 3 or 6 would do")));
  EXPECT_THAT(refusal([](auto& s, auto& d) {
                s.heads = s.query_groups = 7;
                d.tensor = 2;
              }),
              HasSubstr("--tensor-model-parallel-size 1, or --num-attention-heads 6 or 8 would do"));
  EXPECT_THAT(refusal([](auto& s, auto& d) {
                s.query_groups = 2;
                d.tensor = 4;
              }),
              HasSubstr("2 query groups (--num-query-groups) cannot be divided"));
  EXPECT_THAT(refusal([](auto&, auto& d) { d.sequence_parallel = true; }), HasSubstr("there is one"));
  EXPECT_THAT(refusal([](auto& s, auto& d) {
                s.sequence_length = 14;
                d.tensor = 4;
                d.sequence_parallel = true;
              }),
              AllOf(HasSubstr("--sequence-parallel divides a sequence of 14 tokens over 4 ranks"),
                    HasSubstr("--seq-length 12 or 16 would do")));
  EXPECT_THAT(refusal([](auto& s, auto& d) {
                s.sequence_length = 14;
                d.context = 2;
              }),
              HasSubstr("--seq-length 12 or 16 would do"));
  EXPECT_THAT(refusal([](auto&, auto& d) {
                d.pipeline = 2;
                d.chunks = 2;
              }),
              HasSubstr("3 layers cannot be divided over 4 stages (2 ranks x 2 chunks)"));
}

}  // namespace
}  // namespace tutti
