#pragma once
// The options of `tutti bench`: as text, and what they mean.
#include <string>

#include "apps/tutti/command.h"
#include "bench/collectives/run.h"
#include "bench/comparison/compare.h"

namespace tutti::cli {

struct BenchTexts {
  std::string operation, ranks, least = "8", most = "64M", sizes;
  std::string dtype = "f32", op = "sum", memory = "heap", groups = "world";
  std::string engine, transport, algorithm = "auto", congestion;
  std::string rounds, warm_up = "1", turns;
  std::string against, only, plot;
  bool json = false, rewrite = false, no_pin = false, pin = false, two_hosts = false, peers = false, quick = false;
  bool as_rank = false, progress = false;  // said to the ranks that are started

  bool compares() const { return (peers || !plot.empty()) && !as_rank; }
  bool is_table() const { return peers && operation.empty(); }
};

void declare(CLI::App& app, BenchTexts& texts);
// What a rank does.
Result<bench::BenchOptions> interpret_bench(const BenchTexts& texts);
// What a comparison does, beside `options` (that of its ranks).
Result<bench::CompareOptions> interpret_comparison(const BenchTexts& texts);
Result<bench::Task> interpret_task(const BenchTexts& texts, const bench::BenchOptions& options);
// Whether each operation has a size that holds an element, for `ranks`. kUsage: none has.
Result<bool> check_sizes(const bench::BenchOptions& options, int ranks);
Result<bench::Method> interpret_method(const BenchTexts& texts);
Result<int> ranks_of(const BenchTexts& texts, int otherwise);

}  // namespace tutti::cli
