// tutti data clicks: makes planted clicks, and says what the best on them is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/tutti/data_commands.h"
#include "apps/tutti/progress.h"
#include "tutti/base/text.h"
#include "tutti/data/clicks/packed.h"
#include "tutti/data/clicks/planted_files.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace in_data_clicks {
namespace {

constexpr const char* kSynopsis = "tutti data clicks --output PATH [OPTIONS]";
constexpr const char* kFooter = R"(
The samples look like Criteo's and are clicked with a known probability. It is made of a linear effect of the dense
features, an effect of each row of each table, and the products of hidden factors of the rows of some pairs of tables.
So the best AUC that any model can reach on the test set is known, and the best without embeddings; the command prints
both. The last day is for tests: its first half is the test set. Sample i depends on the seed and i alone.

Examples:
  tutti data clicks --output clicks
  tutti data clicks --output train.txt --format text && tutti data criteo train.txt --output clicks --randomize none

Exit codes:
  0  made
  1  a file cannot be written
  2  wrong usage, or an output that already exists)";

struct Texts {
  std::string output, samples = "2000000", format = "packed", days = "7", threads = "0", seed = "1";
  std::string rows, most_rows, click_rate, dense_strength, table_strength, pair_strength, pairs;
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* names, std::string& target, const std::string& words,
                       const char* type) { app.add_option(names, target, words)->group(group)->type_name(type); };
  const PlantedClickOptions defaults;
  const auto with_default = [](const char* words, auto value) { return fmt::format("{} ({})", words, value); };
  add("Result", "-o,--output", texts.output, "the folder (packed) or file (text) to make", "PATH");
  add("Result", "--format", texts.format, "packed (default), or text: Criteo's raw text", "HOW");
  add("Result", "--samples", texts.samples, "number of samples (2000000)", "N");
  add("Result", "--days", texts.days, "packed: number of days (7)", "N");
  add("Result", "--seed", texts.seed, "seed of the data (1)", "N");
  add("The law", "--rows", texts.rows, "rows of each table, such as 1000-20-3 (those of Criteo's 26 columns)",
      "N-N-...");
  add("The law", "--most-rows", texts.most_rows, "limit on the rows of Criteo's tables (50)", "N");
  add("The law", "--click-rate", texts.click_rate,
      with_default("share of samples that are clicked", defaults.click_rate), "X");
  add("The law", "--dense-strength", texts.dense_strength,
      with_default("standard deviation of the dense effect in the logit", defaults.dense_strength), "X");
  add("The law", "--table-strength", texts.table_strength,
      with_default("standard deviation of the rows' effects", defaults.table_strength), "X");
  add("The law", "--pair-strength", texts.pair_strength,
      with_default("standard deviation of the products of pairs", defaults.pair_strength), "X");
  add("The law", "--pairs", texts.pairs, with_default("number of pairs of tables", defaults.pairs), "N");
  add("Resources", "--threads", texts.threads, "threads (0: as many as there are cores)", "N");
}

Result<PlantedClickOptions> law_of(const Texts& texts) {
  PlantedClickOptions law;
  constexpr std::int64_t kMostRows = std::int64_t(1) << 31;
  if (!texts.rows.empty()) {
    if (!texts.most_rows.empty()) return usage("--most-rows is of Criteo's tables, and --rows gives others");
    law.rows.clear();
    for (const std::string& rows : split(texts.rows, '-'))
      law.rows.push_back(TUTTI_TRY(whole_number("--rows", rows, 1, kMostRows)));
    law.pairs = std::min<int>(law.pairs, int(law.rows.size() / 2));
  } else if (!texts.most_rows.empty()) {
    law.rows = criteo_rows(TUTTI_TRY(whole_number("--most-rows", texts.most_rows, 1, kMostRows)));
  }
  const auto read = [](const char* option, const std::string& text, double most, double& into) -> Status {
    if (!text.empty()) into = TUTTI_TRY(real_number(option, text, 0, most));
    return {};
  };
  TUTTI_TRY(read("--click-rate", texts.click_rate, 1, law.click_rate));
  TUTTI_TRY(read("--dense-strength", texts.dense_strength, 100, law.dense_strength));
  TUTTI_TRY(read("--table-strength", texts.table_strength, 100, law.table_strength));
  TUTTI_TRY(read("--pair-strength", texts.pair_strength, 100, law.pair_strength));
  if (!texts.pairs.empty()) law.pairs = int(TUTTI_TRY(whole_number("--pairs", texts.pairs, 0, 1 << 20)));
  law.seed = std::uint64_t(TUTTI_TRY(whole_number("--seed", texts.seed, 0, std::int64_t(1) << 62)));
  return law;
}

Result<int> act(const Texts& texts) {
  if (texts.output.empty()) return usage("--output PATH is missing: what to make");
  const bool packed = TUTTI_TRY(choose("--format", texts.format, {"packed", "text"})) == 0;
  const auto most = std::int64_t(1) << 40;
  const auto samples = std::uint64_t(TUTTI_TRY(whole_number("--samples", texts.samples, 1, most)));
  const auto days = int(TUTTI_TRY(whole_number("--days", texts.days, 1, 10000)));
  PlantedFileOptions options{.output = texts.output, .samples = samples, .days = days};
  options.threads = int(TUTTI_TRY(whole_number("--threads", texts.threads, 0, 1024)));
  const PlantedClicks clicks = TUTTI_TRY(PlantedClicks::create(TUTTI_TRY(law_of(texts))));
  Progress progress;
  options.progress = [&](double share) { progress.show("making", share); };
  TUTTI_TRY(packed ? write_planted_packed(clicks, options) : write_planted_text(clicks, options));
  progress.clear();

  PackedHeader header{.samples = samples, .day_begins = day_begins(samples, std::uint64_t(days))};
  const auto [begin, end] = samples_of(header, ClickSplit::kTest);
  fmt::print("{}: {} samples, {} of them for training, {} to test\n", options.output, samples,
             header.day_begins[days - 1], end - begin);
  const PlantedBest best = best_on(clicks, begin, end - begin);
  fmt::print(
      "on the test set: {:.2f} % clicked; best AUC {:.4f}, without embeddings {:.4f}\n"
      "(expected over all draws of the clicks: {:.4f} and {:.4f}; least log loss {:.4f})\n",
      100 * best.click_rate, best.auc_drawn, best.dense_auc_drawn, best.auc, best.dense_auc, best.log_loss);
  return 0;
}

}  // namespace
}  // namespace in_data_clicks

int data_clicks_command(std::vector<std::string> arguments) {
  using namespace in_data_clicks;
  CLI::App app("Makes clicks that a model can learn, and prints the best AUC on them.", "tutti data clicks");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Result<int> code = act(texts);
  if (code.ok()) return *code;
  report("tutti data clicks", code.error());
  return launch::exit_code_of(code.error().code);
}

}  // namespace tutti::cli
