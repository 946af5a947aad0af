// ShardedEmbeddings in an autograd graph equals LibTorch's embedding_bag on whole tables in one process: pooled rows,
// the gradient that reaches the layers before and after, and the tables after torch.optim's own steps; and backward
// goes on with the layers between post() and wait() while gradients travel.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/embedding.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>

#include <functional>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/sharded_embeddings.h"

namespace tutti {
namespace {

constexpr std::int64_t kSamples = 7;
constexpr int kSteps = 3;

struct Lookups {
  at::Tensor offsets, indices;
  explicit Lookups(const TableSpec& table, int step) {
    std::vector<std::int64_t> starts{0}, rows;
    for (std::int64_t s = 0; s < kSamples; ++s) {
      for (std::int64_t k = 0; k < (s + step) % 4; ++k) rows.push_back((s * 7 + k * k * 3 + step) % table.rows);
      starts.push_back(std::int64_t(rows.size()));
    }
    offsets = at::tensor(starts), indices = at::tensor(rows, at::kLong);
  }
  LookupsView view() const {
    return {{offsets.data_ptr<std::int64_t>(), std::size_t(offsets.numel())},
            {indices.data_ptr<std::int64_t>(), std::size_t(indices.numel())}};
  }
};

std::vector<TableSpec> specs() { return {{"a", 11, 4}, {"b", 5, 16}, {"c", 30, 6}}; }

at::Tensor first_rows(const TableSpec& spec) {
  return at::sin(at::arange(spec.rows * spec.dim, at::kDouble)).view({spec.rows, spec.dim});
}
at::Tensor first_weight() { return at::cos(at::arange(3 * 4, at::kDouble)).view({3, 4}); }
at::Tensor dense_input(int step) { return at::sin(at::arange(kSamples * 3, at::kDouble) + step).view({kSamples, 3}); }

// Of some samples: a dense part and rows of all tables, in one sum over the number of all samples.
at::Tensor loss_of(const at::Tensor& dense, const std::vector<at::Tensor>& rows) {
  at::Tensor loss = (rows[0] * dense).square().sum() + at::tanh(rows[1]).sum() + rows[2].slice(1, 1, 4).pow(3).sum();
  return loss / double(kSamples);
}

struct Case {
  const char* name;
  int ranks;
  TableRule rule = TableRule::kSgd;
  test::WorldOptions world = {};
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class EmbeddingParity : public testing::TestWithParam<Case> {};

std::vector<at::Tensor> one_process(TableRule rule) {
  std::vector<at::Tensor> tables;
  for (const auto& spec : specs()) tables.push_back(first_rows(spec).requires_grad_());
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (rule == TableRule::kSgd)
    optimizer = std::make_unique<torch::optim::SGD>(tables, torch::optim::SGDOptions(0.2));
  else
    optimizer = std::make_unique<torch::optim::Adagrad>(tables, torch::optim::AdagradOptions(0.2));
  at::Tensor weight = first_weight().requires_grad_();
  for (int step = 0; step < kSteps; ++step) {
    std::vector<at::Tensor> rows;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const Lookups lookups(specs()[t], step);
      rows.push_back(torch::nn::functional::embedding_bag(lookups.indices, tables[t],
                                                          torch::nn::functional::EmbeddingBagFuncOptions()
                                                              .offsets(lookups.offsets)
                                                              .include_last_offset(true)
                                                              .mode(torch::kSum)));
    }
    optimizer->zero_grad();
    loss_of(at::matmul(dense_input(step), weight), rows).backward();
    optimizer->step();
  }
  tables.push_back(weight.grad());
  return tables;
}

TEST_P(EmbeddingParity, EqualsEmbeddingBag) {
  const Case& c = GetParam();
  const auto outcomes = test::run_processes(
      c.ranks,
      [&](Group& world) {
        at::set_num_threads(1);
        TablePlacement placement = place_by_count(specs(), c.ranks);
        placement.tables[2] = place_by_columns(specs()[2], std::vector<int>{c.ranks - 1, 0});
        ShardedEmbeddings tables(specs(), placement, world, {.dtype = DType::kF64, .rule = c.rule, .lr = 0.2});
        for (std::size_t t = 0; t < 2; ++t) tables.write_rows(t, 0, first_rows(specs()[t]).to(at::kDouble));
        const at::Tensor third = first_rows(specs()[2]);
        tables.fill(2, [&](std::int64_t row, std::span<double> out) {
          std::copy_n(third[row].data_ptr<double>(), out.size(), out.begin());
        });
        at::Tensor weight = first_weight().requires_grad_();
        const Slice mine = tables.my_samples(kSamples);
        for (int step = 0; step < kSteps; ++step) {
          std::vector<Lookups> lookups;
          std::vector<LookupsView> views;
          for (const auto& spec : specs()) views.push_back(lookups.emplace_back(spec, step).view());
          const auto pending = tables.post(kSamples, views, step);
          const at::Tensor dense = at::matmul(dense_input(step).slice(0, mine.begin, mine.end), weight);
          const auto rows = tables.wait(pending);
          test::check(rows[1].requires_grad() && rows[1].size(0) == mine.size() && rows[1].size(1) == 16,
                      "rows are not in the graph, or not as many as this rank's samples");
          loss_of(dense, rows).backward();
        }
        at::Tensor gradient = weight.grad();
        all_reduce(world, std::span<double>(gradient.data_ptr<double>(), std::size_t(gradient.numel())));
        std::vector<at::Tensor> found;
        for (std::size_t t = 0; t < specs().size(); ++t) found.push_back(tables.read_rows(t, 0, specs()[t].rows));
        found.push_back(gradient);
        {
          const at::NoGradGuard off;  // nothing is updated then
          std::vector<Lookups> lookups;
          std::vector<LookupsView> views;
          for (const auto& spec : specs()) views.push_back(lookups.emplace_back(spec, 0).view());
          const auto rows = tables.wait(tables.post(kSamples, views));
          test::check(!rows[0].requires_grad(), "rows are in a graph with gradients off");
        }
        const auto expected = one_process(c.rule);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const double apart = (found[i] - expected[i].detach()).abs().max().item<double>();
          test::check(apart <= 1e-12, i < 3 ? "table " : "the dense gradient, ", i, " differs by ", apart * 1e12,
                      "e-12");
        }
      },
      c.world);
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(, EmbeddingParity,
                         testing::Values(Case{"alone", 1}, Case{"two", 2}, Case{"three", 3}, Case{"four", 4},
                                         Case{"alone_adagrad", 1, TableRule::kAdagrad},
                                         Case{"three_adagrad", 3, TableRule::kAdagrad},
                                         Case{"over_links", 3, TableRule::kAdagrad, {.transport = "tcp"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ShardedEmbeddings, LayersBetweenPostAndWaitRunBeforeRowsAreUpdated) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    at::set_num_threads(1);
    ShardedEmbeddings tables(specs(), place_by_count(specs(), 2), world, {.dtype = DType::kF64});
    for (std::size_t t = 0; t < specs().size(); ++t) tables.write_rows(t, 0, first_rows(specs()[t]));
    std::vector<Lookups> lookups;
    std::vector<LookupsView> views;
    for (const auto& spec : specs()) views.push_back(lookups.emplace_back(spec, 1).view());
    const auto rows_here = [&] { return tables.read_shard(0, TableArray::kRows, 0, 5); };
    const at::Tensor before = rows_here();
    const Slice mine = tables.my_samples(kSamples);
    const auto pending = tables.post(kSamples, views);
    at::Tensor weight = first_weight().requires_grad_();
    at::Tensor dense = at::matmul(dense_input(0).slice(0, mine.begin, mine.end), weight);
    int calls = 0;
    weight.register_hook([&](const at::Tensor&) { calls += at::equal(rows_here(), before) ? 1 : 100; });
    loss_of(dense, tables.wait(pending)).backward();
    test::check(calls == 1, "the rows were stepped before the layers between post() and wait() had their turn");
    test::check(!at::equal(rows_here(), before), "no row was stepped");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(ShardedEmbeddings, WhatCannotBeGetsASentence) {
  const auto outcomes = test::run_processes(1, [](Group& world) {
    const auto says = [](const std::function<void()>& act, const char* expected) {
      std::string words = "nothing";
      try {
        act();
      } catch (const Exception& e) {
        words = e.what();
      }
      test::check(words.find(expected) != std::string::npos, words);
    };
    const auto placement = place_by_count(specs(), 1);
    says([&] { ShardedEmbeddings tables(specs(), placement, world, {.dtype = DType::kBF16}); },
         "embedding tables of bf16; expected f32 or f64");
    ShardedEmbeddings tables(specs(), placement, world);
    says([&] { tables.wait({}); }, "wait() for a batch that no post() has returned");
    says(
        [&] {
          tables.write_rows(0, 0, at::zeros({3, 5}));
        },
        "write_rows: f32[3, 5] for the rows of table 0, which have 4 columns");
    says([&] { tables.write_rows(0, 9, at::zeros({3, 4})); }, "rows 9 - 12 of table a, which has 11");
    says([&] { tables.read_rows(0, 0, 1, TableArray::kState); }, "table a has no state with these options");
    says([&] { tables.fill(3, {}); }, "fill: table 3 of 3");
    const std::vector<Lookups> lookups{Lookups(specs()[0], 0), Lookups(specs()[1], 0), Lookups(specs()[2], 0)};
    const std::vector<LookupsView> views{lookups[0].view(), lookups[1].view(), lookups[2].view()};
    const auto pending = tables.post(kSamples, views);
    const at::Tensor loss = tables.wait(pending)[0].sum();
    says([&] { tables.wait(pending); }, "wait() for a batch whose last call was wait()");
    says([&] { loss.backward({}, true, true); }, "ShardedEmbeddings has no second derivative");
    loss.backward({}, true);
    says([&] { loss.backward(); }, "a graph that is kept cannot go through tables twice");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
