// tutti data criteo: the options, and what is said at the end.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/tutti/data_commands.h"
#include "apps/tutti/progress.h"
#include "tutti/base/text.h"
#include "tutti/data/clicks/criteo.h"
#include "tutti/data/clicks/day_files.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace in_data_criteo {
namespace {

constexpr const char* kSynopsis = "tutti data criteo INPUT... --output DIR [OPTIONS]";
constexpr const char* kFooter = R"(
INPUT is Criteo's text as published, plain or .gz: a label, 13 whole numbers and 26 hexadecimal ids, separated by tabs.
Give one file (Kaggle's train.txt), which is cut into days of equal length, or one file per day (the Terabyte's day_0 to
day_23), which are taken in the order of their numbers. The last day is for tests: its first half is the test set, its
second half the validation set.

DIR gets clicks.bin, which train_dlrm maps into memory, and for each column its ids in the order of their numbers. Ids
are numbered in the order in which they first appear. Missing ids, missing numbers and negative numbers become 0.
docs/reference/formats.md describes the format. An interrupted run leaves DIR.unfinished, which the next run removes.

Examples:
  tutti data criteo train.txt --output kaggle
  tutti data criteo day_{0..23}.gz --output terabyte --max-ind-range 10000000 --sub-sample-rate 0.875 --randomize day

Exit codes:
  0  packed
  1  a file cannot be read or written, or a line is malformed
  2  wrong usage, a missing input, or an output that already exists)";

struct Texts {
  std::vector<std::string> inputs;
  std::string output, days = "7", max_ind_range = "-1", sub_sample_rate = "0", randomize = "total", seed = "123";
  std::string skip_bad_lines = "0", threads = "0", memory = "2G";
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("INPUT", texts.inputs, "the text: one file, or one for each day")
      ->type_name("")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type);
  };
  add("Result", "-o,--output", texts.output, "the folder to make, which must not exist yet", "DIR");
  add("Result", "--days", texts.days, "number of days to cut one file into (7)", "N");
  add("Result", "--max-ind-range", texts.max_ind_range, "take ids modulo N before numbering them (-1: do not)", "N");
  add("Result", "--sub-sample-rate", texts.sub_sample_rate, "drop this share of the samples that were not clicked (0)",
      "X");
  add("Result", "--randomize", texts.randomize, "the order of all days but the last: total (default), day, none",
      "HOW");
  add("Result", "--seed", texts.seed, "seed of numpy's generator, for the order and the dropped samples (123)", "N");
  add("Mistakes in the text", "--skip-bad-lines", texts.skip_bad_lines, "skip up to N malformed lines (0)", "N");
  add("Resources", "--threads", texts.threads, "threads (0: as many as there are cores)", "N");
  add("Resources", "--memory", texts.memory, "memory limit, whatever the input (2G)", "BYTES");
}

Result<CriteoOptions> interpret(const Texts& texts) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  if (texts.inputs.empty()) return not_given("input", kSynopsis, "tutti data criteo train.txt --output kaggle");
  if (texts.output.empty()) return usage("--output DIR is missing: the folder to make");
  CriteoOptions options{.inputs = TUTTI_TRY(in_order_of_days(texts.inputs)), .output = texts.output};
  if (options.inputs != texts.inputs) fmt::print(stderr, "the days in order: {}\n", fmt::join(options.inputs, " "));
  options.days = int(TUTTI_TRY(whole_number("--days", texts.days, 1, 10000)));
  options.max_ind_range = TUTTI_TRY(whole_number("--max-ind-range", texts.max_ind_range, -1, std::int64_t(1) << 32));
  options.sub_sample_rate = TUTTI_TRY(real_number("--sub-sample-rate", texts.sub_sample_rate, 0, 1));
  options.randomize = Randomize(TUTTI_TRY(choose("--randomize", texts.randomize, {"none", "day", "total"})));
  options.seed = std::uint32_t(TUTTI_TRY(whole_number("--seed", texts.seed, 0, std::int64_t(0xffffffff))));
  options.skip_bad_lines = std::uint64_t(TUTTI_TRY(whole_number("--skip-bad-lines", texts.skip_bad_lines, 0, kAny)));
  options.threads = int(TUTTI_TRY(whole_number("--threads", texts.threads, 0, 1024)));
  const auto memory = parse_bytes(texts.memory);
  if (!memory || *memory > std::uint64_t(1) << 50)
    return usage("--memory needs a size such as 2G or 800M, not '" + texts.memory + "'");
  options.memory = *memory;
  return options;
}

void print(const CriteoReport& report, const std::string& output) {
  for (const std::string& bad : report.bad_line_words) fmt::print(stderr, "skipped: {}\n", bad);
  if (report.bad_lines > report.bad_line_words.size())
    fmt::print(stderr, "... and {} more\n", report.bad_lines - report.bad_line_words.size());
  fmt::print("{} lines, {} samples, {:.2f} % clicked", report.lines, report.samples,
             100.0 * double(report.clicked) / double(report.samples));
  if (report.dropped > 0) fmt::print(", {} dropped by --sub-sample-rate", report.dropped);
  fmt::print("; {} malformed lines skipped\n", report.bad_lines);
  fmt::print("samples of the days: {}\nrows of the tables: {}\n", fmt::join(report.samples_of_days, " "),
             fmt::join(report.rows, "-"));
  fmt::print("{}: {} of text in {} ({:.0f} MB/s)\n", output, bytes_text(report.text_bytes),
             seconds_text(report.seconds), double(report.text_bytes) / 1e6 / report.seconds);
}

Result<int> act(const Texts& texts) {
  CriteoOptions options = TUTTI_TRY(interpret(texts));
  Progress progress;
  const Clock::time_point begin = now();
  options.progress = [&](const CriteoProgress& at) {
    progress.show(at.doing, at.share, fmt::format(", {:.0f} MB/s", double(at.bytes) / 1e6 / seconds_since(begin)));
  };
  const auto report = pack_criteo(options);
  progress.clear();
  if (!report.ok()) return report.error();
  print(*report, options.output);
  return 0;
}

}  // namespace
}  // namespace in_data_criteo

int data_criteo_command(std::vector<std::string> arguments) {
  using namespace in_data_criteo;
  CLI::App app("Packs Criteo's raw text into a file that the trainer maps into memory.", "tutti data criteo");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Result<int> code = act(texts);
  if (code.ok()) return *code;
  report("tutti data criteo", code.error());
  return launch::exit_code_of(code.error().code);
}

}  // namespace tutti::cli
