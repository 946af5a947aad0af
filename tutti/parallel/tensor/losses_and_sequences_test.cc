// Cross entropy, attention, parts of a sequence and dropout against what LibTorch computes from the whole.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/parallel/tensor/attention.h"
#include "tutti/parallel/tensor/cross_entropy.h"
#include "tutti/parallel/tensor/gelu.h"
#include "tutti/parallel/tensor/random_mask.h"
#include "tutti/parallel/tensor/sequence.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using tutti::test::check;

using test::error_of;
void run_backward(const at::Tensor& loss, bool keep = false) { torch::autograd::backward({loss}, {}, keep); }
double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() ? (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() : 1e9;
}
at::Tensor numbers(at::IntArrayRef sizes, double shift = 0) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) * 1.7 + shift).view(sizes);
}

// ---- Cross entropy ----

// Megatron-LM's test: four ranks, each with logits 0..7 four times, targets 0, 2, ... 30.
TEST(VocabParallelCrossEntropy, HasItsClosedForm) {
  const auto outcomes = test::run_threads(4, [](Group& tp) {
    const at::Tensor logits = at::arange(8, at::kFloat).repeat({16, 4}), targets = at::arange(0, 32, 2, at::kLong);
    const at::Tensor loss = vocab_parallel_cross_entropy(tp, logits, targets);
    double sum = 0;
    for (int k = 0; k < 8; ++k) sum += std::exp(k);
    const double first[] = {10.2309, 8.2309, 6.2309, 4.2309};
    for (int i = 0; i < 16; ++i) {
      const double got = loss[i].item<double>();
      check(std::abs(got - (std::log(16 * sum) - 2 * i % 8)) < 1e-5, "closed form, token ", i, ": ", got);
      check(std::abs(got - first[i % 4]) < 1e-4, "Megatron's number, token ", i);
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

struct LossCase {
  int ranks = 1;
  std::int64_t words = 24;
  double smoothing = 0;
  bool overwrite = false;
  at::ScalarType type = at::kDouble;
  double within = 1e-12;
};

// [3, 5] tokens, 24 logits in all.
void compare(const LossCase& wanted) {
  const at::Tensor whole = (numbers({3, 5, 24}) * 9).to(wanted.type).requires_grad_();
  const at::Tensor targets = (at::arange(15, at::kLong) * 7).remainder(wanted.words).view({3, 5});
  const auto type = wanted.type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor of_words = whole.narrow(-1, 0, wanted.words).reshape({15, wanted.words}).to(type);
  const at::Tensor expected =
      at::cross_entropy_loss(of_words, targets.view({-1}), {}, at::Reduction::None, -100, wanted.smoothing)
          .view({3, 5});
  const at::Tensor weights = numbers({3, 5}, 3).to(type);
  run_backward((expected * weights).sum());
  const at::Tensor gradient = whole.grad();
  const auto outcomes = test::run_threads(wanted.ranks, [&](Group& tp) {
    const std::int64_t each = 24 / tp.size();
    const at::Tensor mine = whole.detach().narrow(-1, each * tp.rank(), each).clone().requires_grad_();
    const at::Tensor logits = mine * 1;
    const at::Tensor loss = vocab_parallel_cross_entropy(
        tp, logits, targets,
        {.words = wanted.words, .label_smoothing = wanted.smoothing, .overwrite_logits = wanted.overwrite});
    check(loss.scalar_type() == type, "type of the loss");
    check(distance(loss, expected) < wanted.within, "loss differs by ", distance(loss, expected));
    run_backward((loss * weights).sum());
    check(mine.grad().scalar_type() == wanted.type, "type of the gradient");
    const at::Tensor of_mine = gradient.narrow(-1, each * tp.rank(), each);
    check(distance(mine.grad(), of_mine) < wanted.within, "gradient differs by ", distance(mine.grad(), of_mine));
    const at::NoGradGuard no_grad;
    check(distance(vocab_parallel_cross_entropy(tp, mine, targets,
                                                {.words = wanted.words, .label_smoothing = wanted.smoothing}),
                   expected) < wanted.within,
          "without a gradient");
  });
  EXPECT_EQ(test::describe(outcomes), "") << wanted.ranks << " ranks, smoothing " << wanted.smoothing;
}

TEST(VocabParallelCrossEntropy, IsLibTorchs) {
  for (const int ranks : {1, 2, 4}) {
    for (const double smoothing : {0., 0.1}) {
      compare({.ranks = ranks, .smoothing = smoothing});
      compare({.ranks = ranks, .smoothing = smoothing, .overwrite = true});
      compare({.ranks = ranks, .words = 17, .smoothing = smoothing});  // padded; of 4 ranks the last has nothing else
      compare({.ranks = ranks, .words = 17, .smoothing = smoothing, .overwrite = true});
      compare({.ranks = ranks, .smoothing = smoothing, .type = at::kFloat, .within = 1e-5});
      compare({.ranks = ranks, .smoothing = smoothing, .overwrite = true, .type = at::kBFloat16, .within = 5e-3});
    }
  }
}

TEST(VocabParallelCrossEntropy, SurvivesLargeLogits) {
  const at::Tensor logits = at::tensor({1000.f, -1000.f, 999.f, 0.f}).view({1, 4});
  const at::Tensor loss = vocab_parallel_cross_entropy(Group{}, logits, at::zeros({1}, at::kLong));
  EXPECT_NEAR(loss.item<double>(), std::log1p(std::exp(-1)), 1e-6);
}

TEST(VocabParallelCrossEntropy, RejectsWrongArguments) {
  const at::Tensor logits = at::zeros({2, 4}), targets = at::zeros({2}, at::kLong);
  const auto error = [&](const at::Tensor& l, const at::Tensor& t, CrossEntropyOptions options = {}) {
    return error_of([&] { vocab_parallel_cross_entropy(Group{}, l, t, options); });
  };
  EXPECT_THAT(error(logits, at::tensor({0, 4}, at::kLong)),
              HasSubstr("the target 4 is not in the vocabulary: expected 0 to 3"));
  EXPECT_THAT(error(logits, at::tensor({3, 0}, at::kLong), {.words = 3}),
              HasSubstr("the target 3 is not in the vocabulary"));
  EXPECT_THAT(error(logits, at::zeros({3}, at::kLong)), HasSubstr("the targets are i64[3], expected i64 of the shape"));
  EXPECT_THAT(error(logits, targets, {.words = 5}), HasSubstr("a vocabulary of 5 words, expected 1 to 4"));
  EXPECT_THAT(error(logits, targets, {.label_smoothing = 1}), HasSubstr("label smoothing of 1"));
  EXPECT_THAT(error(at::zeros({2, 4}, at::kLong), targets), HasSubstr("of a floating type"));
  const at::Tensor x = at::zeros({2, 4}).requires_grad_();
  const at::Tensor loss = vocab_parallel_cross_entropy(Group{}, x * 1, targets).sum();
  run_backward(loss, true);
  EXPECT_THAT(error_of([&] { run_backward(loss); }), HasSubstr("its buffer became the gradient"));
}

// ---- Parts of a sequence, dropout ----

TEST(Gelu, IsLibTorchsByTanh) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    at::manual_seed(5);
    const at::Tensor x = at::randn({40, 2000}, type).t().requires_grad_(), same = x.detach().requires_grad_();
    const at::Tensor y = gelu_tanh(x), right = at::gelu(same, "tanh"), of_y = at::randn(y.sizes(), type);
    torch::autograd::backward({y, right}, {of_y, of_y});
    const double close = type == at::kDouble ? 1e-13 : 1e-5;
    EXPECT_TRUE(at::allclose(y, right, close, close)) << type;
    EXPECT_TRUE(at::allclose(x.grad(), same.grad(), close, close)) << type;
  }
}

TEST(Gelu, HasASecondDerivative) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({100}, at::kDouble).requires_grad_();
  const auto second = [&](const at::Tensor& y) {
    const auto slope = torch::autograd::grad({y.sum()}, {x}, {}, c10::nullopt, true)[0];
    return torch::autograd::grad({slope.sum()}, {x})[0];
  };
  EXPECT_TRUE(at::allclose(second(gelu_tanh(x)), second(at::gelu(x, "tanh")), 1e-12, 1e-12));
}

TEST(SequencePart, OfAllRanksAreTheSequenceAndCostTheSame) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<at::Tensor> all;
    for (int r = 0; r < ranks; ++r) {
      const SequencePart part = context_part(48, r, ranks);
      const at::Tensor positions = positions_of(part);
      EXPECT_EQ(rows_of(part), 48 / ranks);
      EXPECT_EQ(positions.sum().item<std::int64_t>(), 47 * 48 / 2 / ranks);  // keys that its queries see, but for one
      for (int t = 0; t < 3; ++t) {
        const SequencePart of_tensor_rank = tensor_part(part, t, 3);
        EXPECT_TRUE(at::equal(positions_of(of_tensor_rank), positions.narrow(0, 16 / ranks * t, 16 / ranks)));
      }
      EXPECT_TRUE(at::equal(take_part(at::arange(48, at::kLong), part), positions));
      all.push_back(positions);
    }
    EXPECT_TRUE(at::equal(std::get<0>(at::cat(all).sort()), at::arange(48, at::kLong)));
  }
  EXPECT_EQ(context_part(16, 0, 2), (SequencePart{{0, 4}, {12, 4}}));
  EXPECT_EQ(context_part(16, 1, 2), (SequencePart{{4, 8}}));
  EXPECT_EQ(context_part(7, 0, 1), (SequencePart{{0, 7}}));
  EXPECT_THAT(error_of([] { context_part(18, 0, 2); }), HasSubstr("18 positions (in two chunks a rank) cannot be"));
  EXPECT_THAT(error_of([] { tensor_part({{0, 6}}, 0, 4); }), HasSubstr("6 rows of a sequence cannot be divided"));
  EXPECT_THAT(error_of([] { take_part(at::zeros({4}), {{2, 3}}); }), HasSubstr("positions 2 to 4 of f32[4]"));
}

TEST(SequenceDropout, DropsTheSameHoweverTheSequenceIsDivided) {
  const at::Tensor x = at::ones({48, 3, 10}, at::kDouble).requires_grad_();
  const at::Tensor whole = sequence_dropout(x, 0.25, 7, {{0, 48}});
  run_backward((whole * whole).sum());
  EXPECT_TRUE(at::equal(x.grad(), whole.detach() * 2 * 4 / 3));
  const double kept = whole.detach().ne(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.75, 0.04);
  EXPECT_NEAR(whole.max().item<double>(), 4. / 3, 1e-12);
  for (int r = 0; r < 2; ++r) {
    const SequencePart part = context_part(48, r, 2);
    for (int t = 0; t < 4; ++t) {
      const SequencePart mine = tensor_part(part, t, 4);
      EXPECT_TRUE(at::equal(sequence_dropout(take_part(x, mine), 0.25, 7, mine), take_part(whole, mine)));
    }
  }
  EXPECT_FALSE(at::equal(sequence_dropout(x, 0.25, 8, {{0, 48}}), whole));
  EXPECT_TRUE(sequence_dropout(x, 0, 8, {{0, 48}}).is_same(x));
  const at::Tensor narrow = sequence_dropout(at::ones({48, 3, 10}, at::kBFloat16), 0.25, 7, {{0, 48}});
  EXPECT_TRUE(at::equal(narrow, whole.detach().to(at::kBFloat16)));
  EXPECT_THAT(error_of([&] { sequence_dropout(x, 1, 7, {{0, 48}}); }), HasSubstr("probability 1"));
  EXPECT_THAT(error_of([&] { sequence_dropout(x, 0.1, 7, {{0, 4}}); }), HasSubstr("expected [4, ...]"));
}

// Neighbouring rows, and rows and elements, are as independent as they look.
TEST(RandomMask, HasNoPattern) {
  const RandomMask random(0.5, 99);
  std::vector<float> row(4096), next(4096);
  double same = 0, mean = 0;
  for (std::uint64_t r = 0; r < 64; ++r) {
    random.fill<float>(random.row_key(r), 0, row);
    random.fill<float>(random.row_key(r + 1), 0, next);
    for (std::size_t i = 0; i < row.size(); ++i) same += row[i] == next[i], mean += row[i];
  }
  EXPECT_NEAR(same / (64 * 4096), 0.5, 0.005);
  EXPECT_NEAR(mean / (64 * 4096), 1, 0.01);
  random.fill<float>(random.row_key(3), 100, next);
  random.fill<float>(random.row_key(3), 0, row);
  EXPECT_TRUE(std::equal(row.begin() + 100, row.end(), next.begin()));
}

// ---- Attention ----

struct AttentionCase {
  std::int64_t rows = 12, batch = 2, heads = 4, groups = 4;
  bool causal = true;
  double dropout = 0, scale = 0;
  std::int64_t document = 0;  // the length of each in the first sample, one more in the second, ...; 0: one
  at::Tensor first_seen() const {
    const at::Tensor first = at::zeros({rows, batch}, at::kLong);
    for (std::int64_t i = 0; document > 0 && i < rows; ++i)
      for (std::int64_t b = 0; b < batch; ++b) first[i][b] = i - i % (document + b);
    return first;
  }
};

// From the definition, with all scores at once.
at::Tensor by_definition(const AttentionCase& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         std::uint64_t seed) {
  const auto heads_first = [](const at::Tensor& x) { return x.permute({1, 2, 0, 3}); };
  const auto repeated = [&](const at::Tensor& x) { return x.repeat_interleave(c.heads / c.groups, 2); };
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(double(q.size(3)));
  at::Tensor scores = at::matmul(heads_first(q), heads_first(repeated(k)).transpose(2, 3)) * scale;
  if (c.causal)
    scores = scores + at::full({c.rows, c.rows}, -std::numeric_limits<double>::infinity(), q.options()).triu(1);
  if (c.document > 0) {
    const at::Tensor hidden = at::arange(c.rows, at::kLong).view({1, 1, -1}).lt(c.first_seen().t().unsqueeze(-1));
    scores = scores.masked_fill(hidden.unsqueeze(1), -std::numeric_limits<double>::infinity());
  }
  at::Tensor probabilities = at::softmax(scores, -1);
  if (c.dropout > 0) {
    const at::Tensor mask = at::empty({c.batch, c.heads, c.rows, c.rows}, at::kDouble);
    const RandomMask random(c.dropout, seed);
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t i = 0; i < c.rows; ++i)
          random.fill(
              random.row_key(std::uint64_t(i), std::uint64_t(b) << 32 | std::uint64_t(h)), 0,
              std::span(mask.data_ptr<double>() + ((b * c.heads + h) * c.rows + i) * c.rows, std::size_t(c.rows)));
    probabilities = probabilities * mask;
  }
  return at::matmul(probabilities, heads_first(repeated(v))).permute({2, 0, 1, 3});
}

void compare(const AttentionCase& c, int ranks) {
  const auto of_heads = [&](std::int64_t heads, double shift) {
    return numbers({c.rows, c.batch, heads, 5}, shift).requires_grad_();
  };
  const at::Tensor q = of_heads(c.heads, 0), k = of_heads(c.groups, 1), v = of_heads(c.groups, 2);
  const at::Tensor expected = by_definition(c, q, k, v, 11), weights = numbers(expected.sizes(), 5);
  run_backward((expected * weights).sum());
  const auto outcomes = test::run_threads(ranks, [&](Group& cp) {
    const SequencePart part = context_part(c.rows, cp.rank(), cp.size());
    const auto mine = [&](const at::Tensor& x) { return take_part(x.detach(), part).clone().requires_grad_(); };
    const at::Tensor my_q = mine(q), my_k = mine(k), my_v = mine(v);
    AttentionOptions options{
        .causal = c.causal, .scale = c.scale, .dropout = c.dropout, .dropout_seed = 11, .first_head = 0};
    if (c.document > 0) options.first_seen = take_part(c.first_seen(), part);
    const at::Tensor out = ring_attention(cp, my_q, my_k, my_v, options);
    check(distance(out, take_part(expected, part)) < 1e-12, "output: ", distance(out, take_part(expected, part)));
    run_backward((out * take_part(weights, part)).sum());
    for (const auto& [got, whole, name] :
         {std::tuple(my_q, q, "query"), std::tuple(my_k, k, "key"), std::tuple(my_v, v, "value")})
      check(distance(got.grad(), take_part(whole.grad(), part)) < 1e-12, "gradient of ", name, ": ",
            distance(got.grad(), take_part(whole.grad(), part)));
  });
  EXPECT_EQ(test::describe(outcomes), "") << ranks << " ranks, " << c.rows << " rows, dropout " << c.dropout;
}

TEST(Attention, IsTheDefinition) {
  for (const bool causal : {true, false}) {
    compare({.causal = causal}, 1);
    compare({.heads = 6, .groups = 2, .causal = causal}, 1);
    compare({.rows = 300, .batch = 1, .heads = 2, .groups = 1, .causal = causal}, 1);  // several tiles
    compare({.causal = causal, .dropout = 0.3}, 1);
    compare({.causal = causal, .scale = 0.7}, 1);
  }
  compare({.rows = 1, .batch = 1, .heads = 1, .groups = 1}, 1);
}

TEST(Attention, InARingIsTheDefinition) {
  for (const int ranks : {2, 3, 4}) {
    for (const bool causal : {true, false}) {
      compare({.rows = 24, .causal = causal}, ranks);
      compare({.rows = 24, .heads = 6, .groups = 2, .causal = causal, .dropout = 0.3}, ranks);
    }
  }
  compare({.rows = 600, .batch = 1, .heads = 2, .groups = 1}, 2);  // several tiles
}

TEST(Attention, DocumentsOfASequenceDoNotSeeEachOther) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::int64_t document : {1, 5, 23})
      compare({.rows = 24, .heads = 6, .groups = 2, .dropout = 0.3, .document = document}, ranks);
  }
  compare({.rows = 600, .batch = 1, .heads = 2, .groups = 1, .document = 250}, 2);  // several tiles
}

TEST(Attention, OfSomeHeadsDropsWhatTheWholeDrops) {
  const at::Tensor q = numbers({6, 2, 4, 5}), k = numbers({6, 2, 4, 5}, 1), v = numbers({6, 2, 4, 5}, 2);
  const at::Tensor whole = attention(q, k, v, {.dropout = 0.5, .dropout_seed = 3});
  const auto late = [](const at::Tensor& x) { return x.narrow(2, 2, 2); };
  EXPECT_TRUE(at::allclose(attention(late(q), late(k), late(v), {.dropout = 0.5, .dropout_seed = 3, .first_head = 2}),
                           late(whole)));
}

TEST(Attention, ComputesSixteenBitsInF32) {
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const at::Tensor q = rounded(numbers({6, 1, 2, 4})), k = rounded(numbers({6, 1, 2, 4}, 1)),
                   v = rounded(numbers({6, 1, 2, 4}, 2));
  const at::Tensor out = attention(q, k, v);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(out, attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat)).to(at::kBFloat16)));
}

TEST(Attention, RejectsWrongArguments) {
  const at::Tensor q = numbers({6, 2, 4, 5}), k = numbers({6, 2, 3, 5}), short_one = numbers({4, 2, 4, 5});
  EXPECT_THAT(error_of([&] { attention(q, k, k); }),
              HasSubstr("4 heads cannot be divided equally among 3 query groups"));
  EXPECT_THAT(error_of([&] { attention(q, short_one, short_one); }), HasSubstr("6 queries and 4 keys"));
  EXPECT_THAT(error_of([&] { attention(q, q, short_one); }), HasSubstr("attention: query f64[6, 2, 4, 5], key"));
  EXPECT_THAT(error_of([&] { attention(q, q, q, {.dropout = 1}); }), HasSubstr("dropout of 1"));
  const auto outcomes = test::run_threads(2, [](Group& cp) {
    const at::Tensor odd = numbers({5, 1, 1, 2});
    const auto said = error_of([&] { ring_attention(cp, odd, odd, odd); });
    check(said.find("5 rows of a rank (in two chunks) cannot be divided") != std::string::npos, said);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
