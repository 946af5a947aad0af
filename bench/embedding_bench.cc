// What embedding tables cost on this machine, beside what its memory gives: pooled sums of rows drawn at random against
// a plain read of the same tables from end to end, and the fused step of those rows. bench/compare_embedding runs it in
// turn with LibTorch.
//
// Everything is measured `--repeats` times, in turn, and the median is told; one line of JSON. With several ranks
// (`tutti run -n 2`) each has its share of the tables, and what is measured is a batch from post() to
// apply_gradients(), by the slowest rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/embedding/local_shard.h"
#include "tutti/embedding/sharded_tables.h"
#include "tutti/runtime/init.h"

namespace tutti {
namespace {

struct Settings {
  std::int64_t tables = 8, rows = 1'000'000, dim = 64, batch = 2048, lookups = 50;
  int threads = 1, repeats = 15;
  std::string rule = "sgd", exchange = "memory", wire = "exact";
};

ParallelFor on_threads(int threads) {
  if (threads == 1) return serial_for;
  return [threads](std::int64_t n, std::int64_t, const std::function<void(std::int64_t, std::int64_t)>& body) {
    std::vector<std::thread> others;
    for (int k = 1; k < threads; ++k) others.emplace_back([&, k] { body(n * k / threads, n * (k + 1) / threads); });
    body(0, n / threads);
    for (std::thread& other : others) other.join();
  };
}

template <class Act>
double seconds_of(const Act& act) {
  const auto begin = now();
  act();
  return seconds_since(begin);
}

// Reads memory from end to end: a pooled sum of consecutive rows, which is bound by nothing but memory.
double stream_seconds(const float* data, std::int64_t count, const ParallelFor& parallel) {
  return seconds_of([&] {
    parallel(count, 1, [&](std::int64_t begin, std::int64_t end) {
      typedef float Vector __attribute__((vector_size(64), aligned(4)));
      Vector sums[8]{};
      for (std::int64_t i = begin; i + 128 <= end; i += 128)
        for (int v = 0; v < 8; ++v) sums[v] += *reinterpret_cast<const Vector*>(data + i + 16 * v);
      float total = 0;
      for (const Vector& sum : sums)
        for (int lane = 0; lane < 16; ++lane) total += sum[lane];
      __asm__ volatile("" : : "g"(total));  // it counts as used
    });
  });
}

EmbeddingOptions options_of(const Settings& settings) {
  EmbeddingOptions options;
  if (settings.rule == "adagrad") options.rule = TableRule::kAdagrad;
  if (settings.rule == "rwsadagrad") options.rule = TableRule::kRowWiseAdagrad;
  if (settings.exchange != "memory") options.share_memory = false;
  if (settings.exchange == "scatter") options.exchange = TableExchange::kScatter;
  if (settings.exchange == "scatter_list") options.exchange = TableExchange::kScatterList;
  if (settings.wire == "bf16") options.wire = WireFormat::kBF16;
  if (settings.wire == "int8") options.wire = WireFormat::kI8;
  return options;
}

std::vector<std::int64_t> random_rows(std::mt19937_64& random, const Settings& settings) {
  std::vector<std::int64_t> rows(std::size_t(settings.batch * settings.lookups));
  for (std::int64_t& row : rows) row = std::int64_t(random() % std::uint64_t(settings.rows));
  return rows;
}

std::vector<std::int64_t> even_offsets(const Settings& settings) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t s = 0; s <= settings.batch; ++s) offsets.push_back(s * settings.lookups);
  return offsets;
}

int run_ranks(const Settings& settings, const Group& world) {
  std::vector<TableSpec> specs;
  for (std::int64_t t = 0; t < settings.tables; ++t)
    specs.push_back({fmt::format("table {}", t), settings.rows, settings.dim, double(settings.lookups)});
  auto tables = ShardedTables<float>::create(specs, place_by_count(specs, world.size()), world, options_of(settings),
                                             on_threads(settings.threads))
                    .or_throw();
  std::vector<float> rows(std::size_t(settings.rows * settings.dim), 0.01f);
  for (std::size_t t = 0; t < specs.size(); ++t)
    tables->write(t, TableArray::kRows, 0, settings.rows, rows.data()).or_throw();
  std::mt19937_64 random(1);
  const auto offsets = even_offsets(settings);
  const std::vector<float> gradient(std::size_t(tables->my_samples(settings.batch).size() * settings.dim), 0.001f);
  const std::vector<RowGradients<float>> gradients(specs.size(), {gradient.data(), settings.dim});
  std::vector<double> parts[5];
  for (int repeat = 0; repeat < settings.repeats + 2; ++repeat) {
    std::vector<std::vector<std::int64_t>> indices;
    std::vector<LookupsView> lookups;
    for (std::size_t t = 0; t < specs.size(); ++t) indices.push_back(random_rows(random, settings));
    for (const auto& of_table : indices) lookups.push_back({offsets, of_table});
    barrier(world);
    ShardedTables<float>::BatchPtr batch;
    double seconds[5];
    seconds[1] = seconds_of([&] { batch = tables->post(settings.batch, lookups).or_throw(); });
    seconds[2] = seconds_of([&] { tables->wait(batch).or_throw(); });
    seconds[3] = seconds_of([&] { tables->send_gradients(batch, gradients).or_throw(); });
    seconds[4] = seconds_of([&] { tables->apply_gradients(batch).or_throw(); });
    seconds[0] = seconds[1] + seconds[2] + seconds[3] + seconds[4];
    all_reduce(world, std::span<double>(seconds), ReduceOp::kMax);
    for (int k = 0; repeat >= 2 && k < 5; ++k) parts[k].push_back(1e3 * seconds[k]);
  }
  if (world.rank() == 0)
    fmt::print(
        "{{\"ranks\": {}, \"batch_ms\": {:.3f}, \"post_ms\": {:.3f}, \"wait_ms\": {:.3f}, \"send_gradients_ms\": "
        "{:.3f}, "
        "\"apply_gradients_ms\": {:.3f}}}\n",
        world.size(), median(parts[0]), median(parts[1]), median(parts[2]), median(parts[3]), median(parts[4]));
  return 0;
}

int run(const Settings& settings) {
  const EmbeddingOptions options = options_of(settings);
  const ParallelFor parallel = on_threads(settings.threads);
  const TableShard whole{0, {0, settings.rows}, {0, settings.dim}};
  std::vector<LocalShard<float>> tables;
  std::vector<float> row(std::size_t(settings.dim), 0.01f);
  for (std::int64_t t = 0; t < settings.tables; ++t) {
    const TableSpec spec{fmt::format("table {}", t), settings.rows, settings.dim, double(settings.lookups)};
    tables.push_back(LocalShard<float>::create(spec, std::size_t(t), whole, options).or_throw());
    tables.back().write(TableArray::kRows, 0, settings.rows, row.data(), 0);
  }
  std::mt19937_64 random(1);
  const auto offsets = even_offsets(settings);
  std::vector<std::vector<std::int64_t>> indices(tables.size());
  std::vector<float> pooled(std::size_t(settings.batch * settings.dim)), gradient(pooled.size(), 0.001f);
  std::vector<const float*> of_sample;
  for (std::int64_t s = 0; s < settings.batch; ++s) of_sample.push_back(gradient.data() + s * settings.dim);
  std::vector<double> stream, forward, step, sort;
  for (int repeat = 0; repeat < settings.repeats + 2; ++repeat) {
    const bool counts = repeat >= 2;
    double read = 0, pool = 0, sorted = 0, stepped = 0;
    for (std::size_t t = 0; t < tables.size(); ++t) indices[t] = random_rows(random, settings);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const auto lookups = tables[t].select({offsets, indices[t]}, -1).or_throw();
      pool += seconds_of([&] {
        parallel(settings.batch, 64, [&](std::int64_t begin, std::int64_t end) {
          tables[t].pool(lookups, {begin, end}, pooled.data() + begin * settings.dim, settings.dim, -1).or_throw();
        });
      });
      sorted += seconds_of([&] { tables[t].sort(lookups); });
      stepped += seconds_of([&] { tables[t].step(of_sample.data(), 0.01, parallel); });
      read += stream_seconds(tables[t].memory(TableArray::kRows), settings.rows * settings.dim, parallel);
    }
    if (!counts) continue;
    stream.push_back(read), forward.push_back(pool), sort.push_back(sorted), step.push_back(sorted + stepped);
  }
  const double looked_up = double(settings.tables * settings.batch * settings.lookups * settings.dim * 4);
  const double all = double(settings.tables * settings.rows * settings.dim * 4);
  const double stream_rate = all / median(stream), forward_rate = looked_up / median(forward);
  fmt::print(
      "{{\"stream_gb_s\": {:.2f}, \"forward_gb_s\": {:.2f}, \"forward_of_stream\": {:.3f}, \"forward_ms\": {:.3f}, "
      "\"step_ms\": {:.3f}, \"of_it_sort_ms\": {:.3f}}}\n",
      stream_rate / 1e9, forward_rate / 1e9, forward_rate / stream_rate, 1e3 * median(forward), 1e3 * median(step),
      1e3 * median(sort));
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  tutti::Settings settings;
  CLI::App app(
      "Embedding tables: pooled sums and fused steps, beside the machine's memory; between ranks, a whole batch",
      "embedding_bench");
  tutti::cli::set_help(app, "");
  app.add_option("--tables", settings.tables, "number of tables")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rows", settings.rows, "rows of each table")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dim", settings.dim, "columns of a table")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", settings.batch, "samples of a batch")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--lookups", settings.lookups, "lookups of a sample and table")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", settings.threads, "threads")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--repeats", settings.repeats, "measurements, of which the median counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rule", settings.rule, "optimizer")
      ->check(CLI::IsMember({"sgd", "adagrad", "rwsadagrad"}))
      ->capture_default_str();
  app.add_option("--exchange", settings.exchange,
                 "exchange between ranks: through memory, or by messages as between hosts")
      ->check(CLI::IsMember({"memory", "alltoall", "scatter", "scatter_list"}))
      ->capture_default_str();
  app.add_option("--wire", settings.wire, "format of rows that are sent between hosts")
      ->check(CLI::IsMember({"exact", "bf16", "int8"}))
      ->capture_default_str();
  if (const auto code = tutti::cli::parse(app, {argv + 1, argv + argc})) return *code;
  try {
    const tutti::Group world = tutti::init();
    return world.size() > 1 ? tutti::run_ranks(settings, world) : tutti::run(settings);
  } catch (const tutti::Exception& e) {
    fmt::print(stderr, "embedding_bench: {}\n", e.what());
    return 1;
  }
}
