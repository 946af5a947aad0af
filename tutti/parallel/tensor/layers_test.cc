// The linear layers and the embedding: what one process makes of them is what LibTorch makes, weights do not depend on
// the number of ranks, deferred gradients come, and what cannot be divided is refused in a sentence. That any
// number of ranks equals one process is tests/parity/tensor_parallel_parity_test.cc.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <string>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/base/random.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/parallel/tensor/partial_gradients.h"
#include "tutti/parallel/tensor/vocab_embedding.h"
#include "tutti/tensor/autograd_collectives.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using tutti::test::check;

using test::error_of;
void says(const std::function<void()>& act, const std::string& words) {
  const auto said = error_of(act);
  check(said.find(words) != std::string::npos, said, " instead of: ", words);
}
void backward(const at::Tensor& loss, bool create_graph = false) {
  torch::autograd::backward({loss}, {}, c10::nullopt, create_graph);
}
void expect_close(const at::Tensor& got, const at::Tensor& wanted, double within = 1e-12) {
  ASSERT_EQ(got.sizes(), wanted.sizes());
  EXPECT_LE((got - wanted).abs().max().item<double>(), within);
}
at::Tensor input(at::IntArrayRef sizes) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble)).view(sizes).requires_grad_();
}

TEST(EqualPart, SaysWhatWouldFit) {
  EXPECT_EQ(equal_part(12, 4, "x", "heads"), 3);
  EXPECT_THAT(error_of([] { equal_part(10, 4, "proj", "output features"); }),
              HasSubstr("proj: 10 output features cannot be divided equally among 4 ranks (hint: 8 or 12 can)"));
  EXPECT_THAT(error_of([] { equal_part(3, 4, "proj", "heads"); }), HasSubstr("(hint: 4 can)"));
  EXPECT_THAT(error_of([] { equal_part(0, 4, "proj", "heads"); }), HasSubstr("0 heads, expected 1 or more"));
  EXPECT_THAT(error_of([] { head_share(12, 5, 1); }), HasSubstr("12 heads cannot be divided equally among 5 query"));
  EXPECT_THAT(error_of([] { head_share(12, 0, 1); }), HasSubstr("among 0 query groups"));
  EXPECT_THAT(error_of([] { head_share(12, 2, 4); }),
              HasSubstr("2 query groups cannot be divided equally among 4 ranks (hint: 4 can)"));
  EXPECT_EQ(head_share(12, 4, 2).heads, 6);
  EXPECT_EQ(head_share(12, 4, 2).groups, 2);
}

TEST(PaddedVocabulary, IsAMultipleForEveryRank) {
  EXPECT_EQ(padded_vocabulary(50257, 128, 1), 50304);
  EXPECT_EQ(padded_vocabulary(50257, 128, 8), 51200);
  EXPECT_EQ(padded_vocabulary(256, 128, 2), 256);
  EXPECT_THAT(error_of([] { padded_vocabulary(0, 128, 2); }), HasSubstr("0 words"));
}

// ---- Layout and initial weights ----

at::Tensor joined(const std::vector<int>& ranks, const std::function<ParameterLayout(int rank)>& layout_of,
                  const InitialWeights& initial) {
  at::Tensor whole;
  for (const int rank : ranks) {
    const ParameterLayout layout = layout_of(rank);
    const at::Tensor mine = draw_weights(layout, initial, at::kFloat);
    if (!whole.defined())
      whole = at::full(std::vector<std::int64_t>(layout.shape.begin(), layout.shape.end()), std::nan(""));
    for (const auto& [box, part] : pieces(layout, mine)) {
      at::Tensor into = whole;
      for (std::size_t d = 0; d < box.begin.size(); ++d)
        into = into.narrow(std::int64_t(d), std::int64_t(box.begin[d]), std::int64_t(box.extent[d]));
      into.copy_(part);
    }
  }
  return whole;
}

TEST(DrawWeights, AreSlicesOfOneWhole) {
  const auto initial = InitialWeights::normal(77);
  const TensorShape shapes[] = {{24, 10}, {1200, 1000}, {8, 16, 3, 3}, {12}};
  for (const TensorShape& shape : shapes) {
    const at::Tensor whole = draw_weights(ParameterLayout::whole(shape), initial, at::kFloat);
    EXPECT_LT(std::abs(whole.std().item<double>() / 0.02 - 1), 0.6);
    if (shape[0] > 262) {  // a row of the first piece, one of the second
      EXPECT_FALSE(at::equal(whole[0], whole[262]));
    }
    for (std::int64_t dimension = 0; dimension < std::min<std::int64_t>(2, std::int64_t(shape.size())); ++dimension) {
      for (const int ranks : {1, 2, 4}) {
        if (shape[std::size_t(dimension)] % std::uint64_t(ranks) != 0) continue;
        std::vector<int> all;
        for (int r = 0; r < ranks; ++r) all.push_back(r);
        const auto layout = [&](int rank) {
          return ParameterLayout::divide(shape, dimension, rank, ranks, "test", "features");
        };
        EXPECT_TRUE(at::equal(joined(all, layout, initial), whole)) << shape_text(shape) << " over " << ranks;
      }
    }
  }
  // Blocks: this rank's part of the first, then of the second.
  const auto layout = [](int rank) { return ParameterLayout::divide({12, 5}, 0, rank, 2, "test", "features", {8, 4}); };
  const at::Tensor whole = draw_weights(ParameterLayout::whole({12, 5}), initial, at::kFloat);
  EXPECT_TRUE(at::equal(joined({0, 1}, layout, initial), whole));
  EXPECT_TRUE(at::equal(draw_weights(layout(1), initial, at::kFloat),
                        at::cat({whole.narrow(0, 4, 4), whole.narrow(0, 10, 2)})));
}

TEST(DrawWeights, RoundForOtherTypesAndDifferBySeed) {
  const auto layout = ParameterLayout::whole({40, 30});
  const at::Tensor whole = draw_weights(layout, InitialWeights::normal(5, 1), at::kFloat);
  EXPECT_TRUE(at::equal(draw_weights(layout, InitialWeights::normal(5, 1), at::kDouble), whole.to(at::kDouble)));
  EXPECT_TRUE(at::equal(draw_weights(layout, InitialWeights::normal(5, 1), at::kBFloat16), whole.to(at::kBFloat16)));
  EXPECT_FALSE(at::equal(draw_weights(layout, InitialWeights::normal(6, 1), at::kFloat), whole));
  const at::Tensor uniform = draw_weights(layout, InitialWeights::uniform(5, 0.5), at::kFloat);
  EXPECT_LE(uniform.abs().max().item<double>(), 0.5);
  EXPECT_GT(uniform.abs().max().item<double>(), 0.49);
  EXPECT_TRUE(at::equal(draw_weights(layout, InitialWeights::constant(3), at::kFloat), at::full({40, 30}, 3.f)));
}

TEST(ParameterLayout, OfRowsWithPaddingEndsWithTheWords) {
  const auto last = ParameterLayout::rows({10, 4}, 4, 2), beyond = ParameterLayout::rows({10, 4}, 4, 3);
  EXPECT_EQ(last.boxes, std::vector{TensorBox::rows({10, 4}, 8, 2)});
  EXPECT_EQ(last.local_sizes(), (std::vector<std::int64_t>{2, 4}));
  const at::Tensor drawn = draw_weights(last, InitialWeights::normal(5, 1), at::kFloat, 4);
  EXPECT_EQ(drawn.sizes(), (std::vector<std::int64_t>{4, 4}));
  EXPECT_TRUE(at::equal(drawn.narrow(0, 2, 2), at::zeros({2, 4})));
  EXPECT_EQ(pieces(last, drawn).at(0).second.size(0), 2);
  EXPECT_TRUE(pieces(beyond, at::zeros({4, 4})).empty());
}

// ---- One process ----

TEST(ParallelLinear, OfOneProcessIsLibTorchs) {
  ColumnParallelLinear column(
      Group{}, ColumnParallelLinearOptions{
                   .in_features = 6, .out_features = 4, .initial = InitialWeights::normal(1, 1), .dtype = at::kDouble});
  RowParallelLinear row(Group{}, RowParallelLinearOptions{.in_features = 6,
                                                          .out_features = 4,
                                                          .sequence_parallel = true,
                                                          .initial = InitialWeights::normal(2, 1),
                                                          .dtype = at::kDouble});
  const auto compare = [](auto layer) {
    {
      const at::NoGradGuard no_grad;
      layer->bias.copy_(at::arange(4, at::kDouble));
    }
    const at::Tensor x = input({3, 5, 6}), y = input({3, 5, 6});
    const at::Tensor weight = layer->weight.detach().clone().requires_grad_(),
                     bias = layer->bias.detach().clone().requires_grad_();
    const at::Tensor got = layer->forward(x), wanted = at::linear(y, weight, bias);
    expect_close(got, wanted);
    backward(got.square().sum());
    backward(wanted.square().sum());
    expect_close(x.grad(), y.grad());
    expect_close(layer->weight.grad(), weight.grad());
    expect_close(layer->bias.grad(), bias.grad());
  };
  compare(column);
  compare(row);
}

TEST(VocabParallelEmbedding, OfOneProcessIsLibTorchs) {
  VocabParallelEmbedding words(
      Group{},
      VocabParallelEmbeddingOptions{
          .words = 11, .columns = 3, .divisible = 4, .initial = InitialWeights::normal(1, 1), .dtype = at::kDouble});
  EXPECT_EQ(words->weight.size(0), 12);
  EXPECT_EQ(words->layout_of("weight").shape, (TensorShape{11, 3}));
  const at::Tensor ids = at::tensor({0, 10, 3, 3, 7, 10}, at::kLong).view({3, 2});
  const at::Tensor weight = words->weight.detach().clone().requires_grad_();
  const at::Tensor got = words->forward(ids), wanted = at::embedding(weight, ids);
  expect_close(got, wanted);
  backward(got.square().sum());
  backward(wanted.square().sum());
  expect_close(words->weight.grad(), weight.grad());
}

TEST(ParallelLinear, OfEveryFloatingType) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto outcomes = test::run_threads(2, [&](Group& tp) {
      ColumnParallelLinear up(
          tp, ColumnParallelLinearOptions{
                  .in_features = 4, .out_features = 8, .initial = InitialWeights::constant(1), .dtype = type});
      RowParallelLinear down(
          tp, RowParallelLinearOptions{
                  .in_features = 8, .out_features = 2, .initial = InitialWeights::constant(1), .dtype = type});
      const at::Tensor x = at::ones({3, 2, 4}, type).requires_grad_();
      const at::Tensor y = down(up(x));
      check(at::equal(y, at::full({3, 2, 2}, 32, type)), "values");
      backward(y.sum());
      check(at::equal(x.grad(), at::full({3, 2, 4}, 16, type)), "gradient");
      check(up->weight.grad().scalar_type() == type, "type");
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

// ---- Megatron-LM's own checks (tests/unit_tests/tensor_parallel) ----

TEST(Megatron, MappingsOfFourByTwoRanks) {
  const auto outcomes = test::run_threads(8, [](Group& world) {
    const Group tp = world.new_subgroups(4).or_throw();
    const at::Tensor mine = at::full({1}, double(world.rank()));
    const double sum = world.rank() < 4 ? 6 : 22;
    check(autograd::reduce_from_region(tp, mine).item<double>() == sum, "reduce_from_region");
    const at::Tensor x = at::full({1}, double(world.rank())).requires_grad_();
    backward((autograd::copy_to_region(tp, x) * double(world.rank())).sum());
    check(x.grad().item<double>() == sum, "backward of copy_to_region");
    const double first = world.rank() < 4 ? 0 : 4;
    check(at::equal(autograd::gather_from_region(tp, mine), at::arange(first, first + 4, at::kFloat).to(mine)),
          "gather");
    check(autograd::scatter_to_region(tp, at::arange(4.)).item<double>() == tp.rank(), "scatter");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// An identity as input, a weight of ones: each output is 1, each gradient of the input 8, the number of outputs.
TEST(Megatron, LayersOfOnes) {
  for (const bool sequence_parallel : {false, true}) {
    const auto outcomes = test::run_threads(4, [&](Group& tp) {
      ColumnParallelLinear layer(tp, ColumnParallelLinearOptions{.in_features = 8,
                                                                 .out_features = 8,
                                                                 .gather_output = true,
                                                                 .sequence_parallel = sequence_parallel,
                                                                 .initial = InitialWeights::constant(1)});
      at::Tensor x = at::eye(8);
      if (sequence_parallel) x = x.narrow(0, 2 * tp.rank(), 2).clone();
      x.requires_grad_();
      const at::Tensor y = layer(x);
      check(at::equal(y, at::ones({8, 8})), "output");
      backward(y.sum());
      check(at::equal(x.grad(), at::full_like(x, 8)), "gradient of the input");
      check(at::equal(layer->weight.grad(), at::ones({2, 8})), "gradient of the weight");
      check(at::equal(layer->bias.grad(), at::full({2}, 8.f)), "gradient of the bias");
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

// It would step this rank's part as if it were the matrix.
TEST(ParallelLinear, AnOptimizerOfMatricesRejectsDividedWeights) {
  const auto outcomes = test::run_threads(2, [&](Group& tp) {
    ColumnParallelLinear layer(tp, ColumnParallelLinearOptions{.in_features = 8, .out_features = 8, .bias = false});
    says([&] { Muon muon(*layer); },
         "Muon: parameter weight is divided over the tensor group (f32[4, 8] on this rank), and the rule steps whole "
         "matrices");
    const Adam adam(*layer);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// ---- Frozen, deferred, twice ----

TEST(ParallelLinear, LeavesFrozenOnesAlone) {
  const auto outcomes = test::run_threads(2, [](Group& tp) {
    ColumnParallelLinear layer(
        tp, ColumnParallelLinearOptions{.in_features = 4, .out_features = 4, .initial = InitialWeights::constant(1)});
    layer->weight.requires_grad_(false);
    const at::Tensor x = at::ones({2, 4}).requires_grad_();
    backward(layer(x).sum());
    check(!layer->weight.grad().defined() && layer->bias.grad().defined(), "weight frozen");
    check(at::equal(x.grad(), at::full({2, 4}, 4.f)), "gradient of the input");
    layer->weight.requires_grad_(true);
    backward(layer(at::ones({2, 4})).sum());  // an input without a gradient: nothing travels
    check(at::equal(layer->weight.grad(), at::full({2, 4}, 2.f)), "first layer");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(WeightGradients, ComeWhenTheyAreRun) {
  for (const bool sequence_parallel : {false, true}) {
    const auto outcomes = test::run_threads(2, [&](Group& tp) {
      ColumnParallelLinear up(tp, ColumnParallelLinearOptions{.in_features = 4,
                                                              .out_features = 8,
                                                              .sequence_parallel = sequence_parallel,
                                                              .initial = InitialWeights::normal(1, 1),
                                                              .dtype = at::kDouble});
      RowParallelLinear down(tp, RowParallelLinearOptions{.in_features = 8,
                                                          .out_features = 4,
                                                          .sequence_parallel = sequence_parallel,
                                                          .initial = InitialWeights::normal(2, 1),
                                                          .dtype = at::kDouble});
      const auto loss = [&](double factor) { return (down(at::tanh(up(input({2, 3, 4})))) * factor).square().sum(); };
      backward(loss(1));
      backward(loss(2));
      const at::Tensor of_up = up->weight.grad().clone(), of_down = down->weight.grad().clone(),
                       of_bias = up->bias.grad().clone();
      up->zero_grad(), down->zero_grad();
      up->weight.mutable_grad() = down->weight.mutable_grad() = at::Tensor();
      WeightGradients later;
      {
        const WeightGradients::Scope scope(later);
        check(WeightGradients::current() == &later, "current");
        backward(loss(1));
        backward(loss(2));
      }
      check(WeightGradients::current() == nullptr, "scope ended");
      check(later.size() == 4 && !up->weight.grad().defined() && !down->weight.grad().defined(), "deferred");
      check(at::allclose(up->bias.grad(), of_bias), "biases are not deferred");
      later.run();
      check(later.empty() && at::allclose(up->weight.grad(), of_up) && at::allclose(down->weight.grad(), of_down),
            "run");
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

TEST(WeightGradients, KeepWhatAThrowLeft) {
  WeightGradients later;
  std::string ran;
  later.put([&] { ran += 'a'; });
  later.put([&] { throw std::runtime_error("b"); });
  later.put([&] { ran += 'c'; });
  EXPECT_THROW(later.run(), std::runtime_error);
  later.put([&] { ran += 'd'; });
  EXPECT_EQ(later.size(), 2u);
  later.run();
  EXPECT_EQ(ran, "acd");
}

TEST(SumOverTensorGroup, AddsUpAndTakesAMissingOneForZero) {
  const auto outcomes = test::run_threads(2, [](Group& tp) {
    const at::Tensor a = at::zeros({3}).requires_grad_(), b = at::zeros({2}, at::kDouble).requires_grad_();
    a.mutable_grad() = at::full({3}, double(tp.rank() + 1), at::kFloat);
    if (tp.rank() == 0) b.mutable_grad() = at::ones({2}, at::kDouble);
    sum_over_tensor_group(tp, std::vector{a, b});
    check(at::equal(a.grad(), at::full({3}, 3.f)) && at::equal(b.grad(), at::ones({2}, at::kDouble)), "sums");
    RowParallelLinear row(tp, RowParallelLinearOptions{.in_features = 4, .out_features = 3, .sequence_parallel = true});
    const auto partial = with_partial_gradients(placed_parameters(*row));
    check(partial.size() == 1 && partial[0].is_same(row->bias), "the bias of a row layer");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// ---- Mistakes ----

TEST(TensorParallelLayers, RejectWrongArguments) {
  const auto outcomes = test::run_threads(4, [](Group& tp) {
    says([&] { ColumnParallelLinear(tp, ColumnParallelLinearOptions{.in_features = 4, .out_features = 10}); },
         "ColumnParallelLinear: 10 output features cannot be divided equally among 4 ranks (hint: 8 or 12 can)");
    says([&] { ColumnParallelLinear(tp, ColumnParallelLinearOptions{.in_features = 0, .out_features = 8}); },
         "0 input features");
    says(
        [&] {
          ColumnParallelLinear(tp, ColumnParallelLinearOptions{.in_features = 4, .out_features = 16, .blocks = {8, 4}});
        },
        "blocks of 12 output features in all, expected 16");
    says([&] { RowParallelLinear(tp, RowParallelLinearOptions{.in_features = 6, .out_features = 4}); },
         "RowParallelLinear: 6 input features cannot be divided equally among 4 ranks (hint: 4 or 8 can)");
    says(
        [&] {
          RowParallelLinear(
              tp, RowParallelLinearOptions{
                      .in_features = 8, .out_features = 4, .input_is_parallel = false, .sequence_parallel = true});
        },
        "expected an input that is divided by features");
    RowParallelLinear row(tp, RowParallelLinearOptions{.in_features = 8, .out_features = 4, .sequence_parallel = true});
    says([&] { row(at::ones({4, 3})); }, "row_parallel_linear: the input is f32[4, 3], expected [..., 2]");
    says([&] { row(at::ones({4, 2}, at::kDouble)); }, "of another type than the weight");
    says([&] { row(at::ones({5, 2})); }, "5 rows of a sequence cannot be divided equally among 4 ranks");
    says([&] { row(at::ones({2})); }, "expected [seq, ..., features] with sequence parallelism");
    VocabParallelEmbedding words(tp,
                                 VocabParallelEmbeddingOptions{.words = 10, .columns = 2, .sequence_parallel = true});
    says([&] { words(at::tensor({0, 10, 2, 3}, at::kLong)); }, "the id 10 is not in the vocabulary: expected 0 to 9");
    says([&] { words(at::tensor({0, -1, 2, 3}, at::kLong)); }, "the id -1 is not in the vocabulary");
    says([&] { words(at::ones({4})); }, "the ids are f32[4], expected i64[seq, ...]");
    says([&] { words(at::zeros({6}, at::kLong)); }, "6 rows of a sequence cannot be divided equally among 4 ranks");
    ColumnParallelLinear column(tp, ColumnParallelLinearOptions{.in_features = 4, .out_features = 4});
    const at::Tensor x = at::ones({2, 4}).requires_grad_();
    says([&] { backward(column(x).sum(), true); }, "column_parallel_linear has no second derivative");
    says([&] { backward(words(at::zeros({4}, at::kLong)).sum(), true); },
         "VocabParallelEmbedding has no second derivative");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
