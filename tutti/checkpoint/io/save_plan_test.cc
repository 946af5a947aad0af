#include "tutti/checkpoint/io/save_plan.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GivenBox rows(const std::string& name, std::uint64_t first, std::uint64_t count, std::uint64_t all = 10) {
  return {.key = {name, ""}, .shape = {all, 2}, .box = TensorBox::rows({all, 2}, first, count)};
}

std::string refusal(const std::vector<std::vector<GivenBox>>& given) {
  const auto plan = plan_save(given);
  return plan.ok() ? "taken" : to_string(plan.error());
}

TEST(SavePlan, EveryBoxHasAWriterAndReplicasAreSharedOut) {
  const GivenBox bias = rows("bias", 0, 10), weight = rows("weight", 0, 40, 40), last = rows("x", 0, 10);
  const auto plan = plan_save({{rows("emb", 0, 3), bias, weight, last}, {rows("emb", 3, 7), bias, weight, last}});
  ASSERT_TRUE(plan.ok()) << to_string(plan.error());
  // emb: both; bias: rank 0, which has 3 rows so far against 7; weight: rank 1 (7 against 13); x: rank 0.
  EXPECT_THAT(*plan, ElementsAre(ElementsAre(0u, 1u, 3u), ElementsAre(0u, 2u)));
}

TEST(SavePlan, TheFirstRankWritesReplicasThatMayDiffer) {
  GivenBox mean = rows("mean", 0, 10), variance = rows("variance", 0, 10);
  mean.may_differ = variance.may_differ = true;
  const GivenBox weight = rows("weight", 0, 10);
  const auto plan = plan_save({{weight}, {mean, variance, weight}, {mean, variance, weight}});
  ASSERT_TRUE(plan.ok()) << to_string(plan.error());
  EXPECT_THAT(*plan, ElementsAre(ElementsAre(0u), ElementsAre(0u, 1u), IsEmpty()));
}

TEST(SavePlan, EmptyBoxesAreWrittenByNoRank) {
  const auto plan = plan_save({{rows("emb", 0, 10)}, {rows("emb", 10, 0)}});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(*plan, ElementsAre(ElementsAre(0u), IsEmpty()));
}

TEST(SavePlan, ATensorWithoutElementsHasOneWriter) {
  const auto plan = plan_save({{rows("none", 0, 0, 0)}, {rows("none", 0, 0, 0)}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)[0].size() + (*plan)[1].size(), 1u);
}

TEST(SavePlan, BoxesThatDoNotFitAreReportedByName) {
  EXPECT_THAT(refusal({{rows("emb", 0, 3)}, {rows("emb", 4, 6)}}),
              HasSubstr("the tensor emb [10, 2] cannot be saved: the boxes have 18 of its 20 elements"));
  EXPECT_THAT(refusal({{rows("emb", 0, 5)}, {rows("emb", 4, 6)}}),
              HasSubstr("the tensor emb [10, 2] cannot be saved: the boxes [0:5, 0:2] and [4:10, 0:2] overlap"));
  EXPECT_THAT(refusal({{rows("emb", 0, 10)}, {}, {rows("emb", 0, 11, 11)}}),
              HasSubstr("Mismatch: the tensor emb is f32[10, 2] on rank 0 and f32[11, 2] on rank 2"));
  GivenBox other = rows("emb", 0, 10);
  other.dtype = DType::kF64;
  EXPECT_THAT(refusal({{rows("emb", 0, 10)}, {other}}), HasSubstr("f32[10, 2] on rank 0 and f64[10, 2] on rank 1"));
  EXPECT_THAT(refusal({{}, {rows("emb", 0, 10), rows("emb", 0, 10)}}),
              HasSubstr("rank 1 gives [0:10, 0:2] of the tensor emb twice"));
}

TEST(SavePlan, BoxesAreEncodedAsText) {
  GivenBox state = rows("emb", 1, 4);
  state.key.state = "sum";
  state.dtype = DType::kBF16;
  state.may_differ = true;
  const auto back = decode_given(*encode_given({state, {.key = {"scalar", ""}}}));
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[0].key, state.key);
  EXPECT_EQ((*back)[0].dtype, DType::kBF16);
  EXPECT_EQ((*back)[0].box, state.box);
  EXPECT_TRUE((*back)[0].may_differ);
  EXPECT_FALSE((*back)[1].may_differ);
  EXPECT_EQ((*back)[1].shape, TensorShape());
  EXPECT_THAT(to_string(encode_given({{.key = {"\xff", ""}}}).error()), HasSubstr("not valid UTF-8"));
  EXPECT_FALSE(decode_given("[1]").ok());
}

}  // namespace
}  // namespace tutti
