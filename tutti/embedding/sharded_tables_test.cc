// P ranks with their parts equal one process with plain loops over whole tables, step after step: every kind of
// placement, rule and exchange, over shared memory and links.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <ostream>
#include <thread>

#include "tests/harness/ranks.h"
#include "tutti/base/deadline.h"
#include "tutti/comm/collectives.h"
#include "tutti/embedding/test_tables.h"

namespace tutti::test {
namespace {

constexpr int kSteps = 4;

double first_value(std::size_t t, std::int64_t row, std::int64_t column) {
  return noise(t + 7, std::uint64_t(row), std::uint64_t(column));
}
double first_weight(std::size_t t, std::int64_t row) { return 1 + noise(t + 9, std::uint64_t(row)); }
// The gradient of a pooled value: what a loss of ours over `samples` samples gives.
double gradient_of(double pooled, std::size_t t, std::int64_t sample, std::int64_t column, std::int64_t samples) {
  return (pooled + noise(t + 11, std::uint64_t(sample), std::uint64_t(column))) / double(samples);
}

// One process, in the plainest form.
struct Plain {
  std::vector<TableSpec> specs;
  EmbeddingOptions options;
  std::vector<std::vector<double>> rows, state, weights, weight_state;

  Plain(std::vector<TableSpec> tables, const EmbeddingOptions& with) : specs(std::move(tables)), options(with) {
    for (std::size_t t = 0; t < specs.size(); ++t) {
      rows.emplace_back();
      for (std::int64_t i = 0; i < specs[t].rows * specs[t].dim; ++i)
        rows[t].push_back(first_value(t, i / specs[t].dim, i % specs[t].dim));
      state.emplace_back(rows[t].size(), options.initial_accumulator);
      weights.emplace_back(specs[t].rows, 1);
      weight_state.emplace_back(specs[t].rows, options.initial_accumulator);
      if (options.row_weights != RowWeights::kNone)
        for (std::int64_t r = 0; r < specs[t].rows; ++r) weights[t][std::size_t(r)] = first_weight(t, r);
    }
  }
  std::vector<double> pool(std::size_t t, const Lookups& l) const {
    const std::size_t dim = std::size_t(specs[t].dim);
    std::vector<double> out((l.offsets.size() - 1) * dim);
    for (std::size_t s = 0; s + 1 < l.offsets.size(); ++s)
      for (std::int64_t k = l.offsets[s]; k < l.offsets[s + 1]; ++k) {
        const std::size_t row = std::size_t(l.indices[std::size_t(k)]);
        for (std::size_t i = 0; i < dim; ++i) out[s * dim + i] += weights[t][row] * rows[t][row * dim + i];
      }
    return out;
  }
  void step(std::size_t t, const Lookups& l, const std::vector<double>& gradients) {
    const std::size_t dim = std::size_t(specs[t].dim);
    std::vector<double> sum(rows[t].size());
    std::vector<bool> used(std::size_t(specs[t].rows));
    for (std::size_t s = 0; s + 1 < l.offsets.size(); ++s)
      for (std::int64_t k = l.offsets[s]; k < l.offsets[s + 1]; ++k) {
        const std::size_t row = std::size_t(l.indices[std::size_t(k)]);
        used[row] = true;
        for (std::size_t i = 0; i < dim; ++i) sum[row * dim + i] += options.gradient_scale * gradients[s * dim + i];
      }
    for (std::size_t row = 0; row < used.size(); ++row) {
      if (!used[row]) continue;
      double of_weight = 0, squares = 0;
      for (std::size_t i = 0; i < dim; ++i) {
        double& g = sum[row * dim + i];
        of_weight += g * rows[t][row * dim + i];
        g *= weights[t][row];
        squares += g * g;
      }
      if (options.rule == TableRule::kRowWiseAdagrad) state[t][row] += squares / double(dim);
      for (std::size_t i = 0; i < dim; ++i) {
        const double g = sum[row * dim + i];
        double& p = rows[t][row * dim + i];
        if (options.rule == TableRule::kSgd) p -= options.lr * g;
        if (options.rule == TableRule::kRowWiseAdagrad) p -= options.lr * g / (std::sqrt(state[t][row]) + options.eps);
        if (options.rule == TableRule::kAdagrad) {
          double& a = state[t][row * dim + i];
          a += g * g;
          p -= options.lr * g / (std::sqrt(a) + options.eps);
        }
      }
      if (options.row_weights != RowWeights::kLearned) continue;
      double divisor = 1;
      if (options.rule != TableRule::kSgd) {
        weight_state[t][row] += of_weight * of_weight;
        divisor = std::sqrt(weight_state[t][row]) + options.eps;
      }
      weights[t][row] -= options.lr * of_weight / divisor;
    }
  }
};

template <class T>
void write_first_values(ShardedTables<T>& tables) {
  for (std::size_t t = 0; t < tables.tables().size(); ++t) {
    const TableSpec& spec = tables.tables()[t];
    std::vector<T> rows, weights;
    for (std::int64_t r = 0; r < spec.rows; ++r) {
      for (std::int64_t i = 0; i < spec.dim; ++i) rows.push_back(T(first_value(t, r, i)));
      weights.push_back(T(first_weight(t, r)));
    }
    tables.write(t, TableArray::kRows, 0, spec.rows, rows.data()).or_throw();
    if (tables.options().row_weights != RowWeights::kNone)
      tables.write(t, TableArray::kRowWeights, 0, spec.rows, weights.data()).or_throw();
  }
}

template <class T, class U>
void check_near(const std::string& what, std::span<const T> found, std::span<const U> expected, double tolerance) {
  check(found.size() == expected.size(), what, ": ", found.size(), " numbers, expected ", expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    check(std::abs(double(found[i]) - double(expected[i])) <= tolerance, what, "[", i, "] is ", double(found[i]),
          ", expected ", double(expected[i]), ", apart ", std::abs(double(found[i]) - double(expected[i])) * 1e12,
          "e-12");
}

EmbeddingOptions options_of(const Case& c) {
  EmbeddingOptions options;
  options.dtype = DType::kF64;
  options.rule = c.rule;
  options.lr = 0.3;
  options.initial_accumulator = 0.1;
  options.row_weights = c.weights;
  options.exchange = c.exchange;
  options.wire = c.wire;
  options.share_memory = c.world != World::kNoMemory;
  if (c.in_file) options.folder = testing::TempDir(), options.cached_bytes = 3000;
  return options;
}

void train_and_compare(const Case& c, const Group& world) {
  const auto tables = specs();
  const EmbeddingOptions options = options_of(c);
  auto sharded = ShardedTables<double>::create(tables, placed(c.place, c.ranks, tables), world, options).or_throw();
  write_first_values(*sharded);
  Plain plain(tables, options);
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t samples = c.samples + (step == 2 ? 5 : -step);  // the block grows once
    std::vector<Lookups> lookups;
    for (std::size_t t = 0; t < tables.size(); ++t) lookups.push_back(make_lookups(tables[t], t, step, samples));
    const std::vector<LookupsView> views(lookups.begin(), lookups.end());
    const auto batch = sharded->post(samples, views, step).or_throw();
    sharded->wait(batch).or_throw();
    const Slice mine = sharded->my_samples(samples);
    std::vector<std::vector<double>> of_mine(tables.size());
    std::vector<RowGradients<double>> gradients;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const std::size_t dim = std::size_t(tables[t].dim);
      const auto pooled = plain.pool(t, lookups[t]);
      const auto found = sharded->rows_of(batch, t);
      const std::span expected(pooled.data() + std::size_t(mine.begin) * dim, std::size_t(mine.size()) * dim);
      check_near<double, double>("step " + std::to_string(step) + ", pooled rows of " + tables[t].name, found, expected,
                                 c.tolerance);
      std::vector<double> all(pooled.size());
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = t == 4 ? 0 : gradient_of(pooled[i], t, std::int64_t(i / dim), std::int64_t(i % dim), samples);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::int64_t sample = mine.begin + std::int64_t(i / dim);
        of_mine[t].push_back(gradient_of(found[i], t, sample, std::int64_t(i % dim), samples));
        of_mine[t].resize(of_mine[t].size() + ((i + 1) % dim == 0 ? 2 : 0));  // rows lie dim + 2 apart
      }
      gradients.push_back(t == 4 ? RowGradients<double>{} : RowGradients<double>{of_mine[t].data(), tables[t].dim + 2});
      plain.step(t, lookups[t], all);
    }
    sharded->send_gradients(batch, gradients).or_throw();
    for (auto& own : of_mine) own.assign(own.size(), 1e9);  // they have been copied
    sharded->apply_gradients(batch).or_throw();
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const auto compare = [&](TableArray array, std::vector<double> expected) {
      const std::int64_t columns = columns_of(array, tables[t].dim, options);
      if (columns == 0) return;
      expected.resize(std::size_t(tables[t].rows * columns));
      std::vector<double> found(expected.size());
      sharded->read(t, array, 0, tables[t].rows, found.data()).or_throw();
      check_near<double, double>(std::string(name(array)) + " of " + tables[t].name, found, expected, c.tolerance);
    };
    compare(TableArray::kRows, plain.rows[t]);
    compare(TableArray::kState, plain.state[t]);
    compare(TableArray::kRowWeights, plain.weights[t]);
    compare(TableArray::kRowWeightState, plain.weight_state[t]);
  }
}

class ShardedTablesTest : public testing::TestWithParam<Case> {};

TEST_P(ShardedTablesTest, EqualsOneProcess) {
  const Case& c = GetParam();
  const auto outcomes = run(c, [&](Group& world) { train_and_compare(c, world); });
  EXPECT_EQ(describe(outcomes), "");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4})
    for (const auto& [name, place] : {std::pair{"whole", Place::kWhole},
                                      {"rows", Place::kRows},
                                      {"columns", Place::kColumns},
                                      {"replicated", Place::kReplicated},
                                      {"mixed", Place::kMixed},
                                      {"on_one_rank", Place::kOnOneRank}}) {
      all.push_back({name, ranks, place});
      all.push_back({name, ranks, place, TableRule::kAdagrad});
      all.push_back({name, ranks, place, TableRule::kRowWiseAdagrad});
      all.push_back({name, ranks, place, TableRule::kRowWiseAdagrad, RowWeights::kLearned});
      all.push_back({name, ranks, place, TableRule::kSgd, RowWeights::kLearned, World::kNoMemory});
      all.push_back(
          {name, ranks, place, TableRule::kSgd, RowWeights::kFixed, World::kNoMemory, TableExchange::kScatter});
      all.push_back({name, ranks, place, TableRule::kRowWiseAdagrad, RowWeights::kNone, World::kNoMemory,
                     TableExchange::kScatterList});
    }
  for (const int ranks : {2, 3, 4}) {
    all.push_back(
        {"processes", ranks, Place::kMixed, TableRule::kRowWiseAdagrad, RowWeights::kLearned, World::kProcesses});
    for (const TableExchange exchange :
         {TableExchange::kAllToAll, TableExchange::kScatter, TableExchange::kScatterList})
      all.push_back(
          {"tcp", ranks, Place::kMixed, TableRule::kRowWiseAdagrad, RowWeights::kLearned, World::kTcp, exchange});
  }
  for (const TableExchange exchange :
       {TableExchange::kAllToAll, TableExchange::kScatter, TableExchange::kScatterList}) {
    all.push_back({"bf16", 3, Place::kMixed, TableRule::kSgd, RowWeights::kNone, World::kNoMemory, exchange,
                   WireFormat::kBF16, 0.03});
    all.push_back({"int8", 3, Place::kMixed, TableRule::kSgd, RowWeights::kNone, World::kNoMemory, exchange,
                   WireFormat::kI8, 0.06});
  }
  all.push_back({"fewer_samples_than_ranks", 4, Place::kMixed, TableRule::kAdagrad, RowWeights::kNone, World::kMemory,
                 TableExchange::kAllToAll, WireFormat::kExact, 1e-12, 3});
  all.push_back({"fewer_samples_than_ranks", 4, Place::kMixed, TableRule::kAdagrad, RowWeights::kNone, World::kTcp,
                 TableExchange::kScatter, WireFormat::kExact, 1e-12, 3});
  for (const int ranks : {1, 3})
    for (const Place place : {Place::kMixed, Place::kColumns})
      for (const TableRule rule : {TableRule::kSgd, TableRule::kAdagrad, TableRule::kRowWiseAdagrad}) {
        Case in_file{"in_a_file", ranks, place, rule, RowWeights::kLearned};
        in_file.in_file = true;
        all.push_back(in_file);
      }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::to_string(info.index) + "_" + info.param.name + "_" + std::to_string(info.param.ranks);
}
INSTANTIATE_TEST_SUITE_P(, ShardedTablesTest, testing::ValuesIn(cases()), name_of);

// Trains float tables, with several batches under way, and returns all rows of all tables.
std::vector<float> train_several(const Group& world, EmbeddingOptions options, const TablePlacement& placement) {
  const auto tables = specs();
  options.rule = TableRule::kRowWiseAdagrad;
  auto sharded = ShardedTables<float>::create(tables, placement, world, options).or_throw();
  write_first_values(*sharded);
  const Plain plain(tables, {});
  constexpr int kUnderWay = 3;
  for (int step = 0; step < 2; ++step) {
    std::vector<std::vector<Lookups>> lookups(kUnderWay);
    std::vector<ShardedTables<float>::BatchPtr> batches;
    const auto samples_of = [](int b) { return std::int64_t(19 - 4 * b); };
    for (int b = 0; b < kUnderWay; ++b) {
      for (std::size_t t = 0; t < tables.size(); ++t)
        lookups[std::size_t(b)].push_back(make_lookups(tables[t], t, 10 * step + b, samples_of(b)));
      const std::vector<LookupsView> views(lookups[std::size_t(b)].begin(), lookups[std::size_t(b)].end());
      batches.push_back(sharded->post(samples_of(b), views).or_throw());
    }
    for (const auto& batch : batches) sharded->wait(batch).or_throw();
    std::vector<std::vector<float>> kept;
    for (int b = kUnderWay; b-- > 0;) {
      std::vector<RowGradients<float>> gradients;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        const auto rows = sharded->rows_of(batches[std::size_t(b)], t);
        auto& own = kept.emplace_back();
        const Slice mine = sharded->my_samples(samples_of(b));
        const auto pooled = plain.pool(t, lookups[std::size_t(b)][t]);
        if (step == 0)
          check_near<float, double>("pooled rows", rows,
                                    std::span(pooled).subspan(std::size_t(mine.begin * tables[t].dim), rows.size()),
                                    1e-5);
        for (std::size_t i = 0; i < rows.size(); ++i)
          own.push_back(float(gradient_of(rows[i], t, mine.begin + std::int64_t(i) / tables[t].dim,
                                          std::int64_t(i) % tables[t].dim, samples_of(b))));
        gradients.push_back({own.data(), tables[t].dim});
      }
      sharded->send_gradients(batches[std::size_t(b)], gradients).or_throw();
    }
    for (int b = kUnderWay; b-- > 0;) sharded->apply_gradients(batches[std::size_t(b)]).or_throw();
  }
  std::vector<float> all;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    std::vector<float> rows(std::size_t(tables[t].rows * tables[t].dim));
    sharded->read(t, TableArray::kRows, 0, tables[t].rows, rows.data()).or_throw();
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(ShardedTables, AllExchangesGiveTheSameBitsWithSeveralBatchesUnderWay) {
  for (const Place place : {Place::kWhole, Place::kRows, Place::kColumns, Place::kMixed}) {
    const auto outcomes = run_threads(3, [&](Group& world) {
      const auto placement = placed(place, 3, specs());
      const auto expected = train_several(world, {}, placement);
      for (const TableExchange exchange :
           {TableExchange::kAllToAll, TableExchange::kScatter, TableExchange::kScatterList})
        check(train_several(world, {.exchange = exchange, .share_memory = false}, placement) == expected, "exchange ",
              int(exchange), " gives other bits than shared memory");
    });
    EXPECT_EQ(describe(outcomes), "");
  }
}

TEST(ShardedTables, TwoRunsGiveTheSameBitsAndSoDoThreads) {
  const auto outcomes = run_threads(2, [](Group& world) {
    const auto placement = placed(Place::kMixed, 2, specs());
    check(train_several(world, {}, placement) == train_several(world, {}, placement), "two runs differ");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(ShardedTables, TheReferencesGradientScaleIsThatManyTimesTheStep) {
  // With SGD a step of one batch is linear in the gradient.
  const auto outcomes = run_threads(2, [](Group& world) {
    const auto run = [&](double scale) {
      EmbeddingOptions options;
      options.dtype = DType::kF64;
      options.gradient_scale = scale;
      const std::vector<TableSpec> tables{{"only", 4, 3}};
      auto sharded = ShardedTables<double>::create(tables, place_by_count(tables, 2), world, options).or_throw();
      const Lookups lookups = make_lookups(tables[0], 0, 1, 8);
      const LookupsView view = lookups;
      const auto batch = sharded->post(8, std::span(&view, 1)).or_throw();
      sharded->wait(batch).or_throw();
      const std::vector<double> ones(12, 1);
      const RowGradients<double> gradient{ones.data(), 3};
      sharded->send_gradients(batch, std::span(&gradient, 1)).or_throw();
      sharded->apply_gradients(batch).or_throw();
      std::vector<double> rows(12);
      sharded->read(0, TableArray::kRows, 0, 4, rows.data()).or_throw();
      return rows;
    };
    const auto once = run(1), twice = run(2);
    check(once[0] != 0, "nothing was learned");
    for (std::size_t i = 0; i < once.size(); ++i) check(twice[i] == 2 * once[i], "number ", i, " is not twice");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(ShardedTables, TheLastGradientsStayUntilThePeersHaveReadThem) {
  // Rank 0 is done and writes over all memory that it can get, while rank 1 has not yet begun to read rank 0's
  // gradients. The destructor waits for rank 1, which in turn waits a while for what must not happen.
  std::atomic<bool> gone{false};
  const auto outcomes = run_threads(2, [&](Group& world) {
    const std::vector<TableSpec> tables{{"first", 40, 8}, {"second", 40, 8}};
    auto sharded = ShardedTables<float>::create(tables, place_by_count(tables, 2), world, {.lr = 1}).or_throw();
    const Lookups lookups = [] {
      Lookups one_each;
      for (std::int64_t s = 0; s < 40; ++s) one_each.indices.push_back(s), one_each.offsets.push_back(s + 1);
      return one_each;
    }();
    const std::vector<LookupsView> views(2, lookups);
    auto batch = sharded->post(40, views).or_throw();
    sharded->wait(batch).or_throw();
    const std::vector<float> ones(20 * 8, 1);
    const std::vector<RowGradients<float>> gradients(2, {ones.data(), 8});
    sharded->send_gradients(batch, gradients).or_throw();
    if (world.rank() == 1) {
      const auto deadline = Deadline::after_seconds(0.3);
      while (!gone && !deadline.expired()) std::this_thread::yield();
    }
    sharded->apply_gradients(batch).or_throw();
    if (world.rank() == 1)
      for (std::int64_t row = 0; row < 40; ++row) {
        float values[8];
        sharded->shards()[0].read(TableArray::kRows, row, 1, values, 8);
        check(values[3] == -1, "row ", row, " was stepped by ", -values[3]);
      }
    batch.reset();
    sharded.reset();
    if (world.rank() == 0) {
      std::vector<std::shared_ptr<std::byte>> all;
      constexpr std::size_t kBlock =
          20 * 2 * 16 * sizeof(float);  // as large as a batch's, which the heap gives out again
      for (int k = 0; k < 50; ++k) {
        all.push_back(world.allocate(kBlock).or_throw());
        std::fill_n(all.back().get(), kBlock, std::byte(0x41));
      }
      gone = true;
    }
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(ShardedTables, AnAbandonedBatchReleasesItsMemoryWhenItIsDone) {
  for (const bool share_memory : {true, false}) {
    const auto outcomes = run_threads(3, [&](Group& world) {
      const auto tables = specs();
      auto sharded =
          ShardedTables<float>::create(tables, place_by_count(tables, 3), world, {.share_memory = share_memory})
              .or_throw();
      write_first_values(*sharded);
      const Plain plain(tables, {});
      for (int step = 0; step < 40; ++step) {
        std::vector<Lookups> lookups;
        for (std::size_t t = 0; t < tables.size(); ++t) lookups.push_back(make_lookups(tables[t], t, step, 30));
        const std::vector<LookupsView> views(lookups.begin(), lookups.end());
        const auto batch = sharded->post(30, views).or_throw();
        if (step % 2 == 0) continue;
        sharded->wait(batch).or_throw();
        const Slice mine = sharded->my_samples(30);
        for (std::size_t t = 0; t < tables.size(); ++t) {
          const auto pooled = plain.pool(t, lookups[t]);
          check_near<float, double>("pooled rows", sharded->rows_of(batch, t),
                                    std::span(pooled).subspan(std::size_t(mine.begin * tables[t].dim),
                                                              std::size_t(mine.size() * tables[t].dim)),
                                    1e-5);
        }
      }
    });
    EXPECT_EQ(describe(outcomes), "");
  }
}

}  // namespace
}  // namespace tutti::test
