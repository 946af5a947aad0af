// tutti data trace: the profile of a trace, and a synthetic trace made of it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/tutti/data_commands.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/data/clicks/trace_profile.h"
#include "tutti/data/placed_file.h"
#include "tutti/launch/exit_codes.h"

namespace tutti::cli {
namespace in_data_trace {
namespace {

constexpr const char* kSynopsis = "tutti data trace --trace-file FILE --dist-file FILE [OPTIONS]";
constexpr const char* kFooter = R"(
A trace lists the rows of one table in the order in which they are accessed, as whole numbers separated by commas. Its
profile has three lines: the distinct rows in the order of their first access; the stack distances that occur; and the
cumulative probability of each. An access to the row used d rows ago has stack distance d, the first access to a row has
distance 0. train_dlrm --data-generation=synthetic draws rows from profiles, one per table (--data-trace-file). The
options have the names of dlrm_data_pytorch.py.

Examples:
  tutti data trace --trace-file trace.log --dist-file dist_emb_0.log
  tutti data trace --trace-file trace.bin --trace-file-binary-type --dist-file dist.log --synthetic-file synthetic.bin

Exit codes:
  0  profiled
  1  a file cannot be read or written
  2  wrong usage, or a missing trace)";

struct Texts {
  std::string trace, profile, synthetic, seed = "123";
  bool binary = false, padding = false;
};

Status write_file(const std::string& path, const std::string& text) {
  return replace_file(path, [&](int fd, const std::string& name) -> Status {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t put = ::write(fd, text.data() + done, text.size() - done);
      if (put < 0 && errno != EINTR) return system_error(errno, "cannot write " + name);
      if (put > 0) done += std::size_t(put);
    }
    return {};
  });
}

Result<int> act(const Texts& texts) {
  if (texts.trace.empty()) return usage("--trace-file is missing: the accesses to one table");
  if (texts.profile.empty() && texts.synthetic.empty())
    return usage("nothing to make: --dist-file for the profile, --synthetic-file for a trace of it");
  const auto seed =
      std::uint32_t(TUTTI_TRY(whole_number("--numpy-rand-seed", texts.seed, 0, std::int64_t(0xffffffff))));
  const auto trace = TUTTI_TRY(read_trace(texts.trace, texts.binary));
  const TraceProfile profile = profile_trace(trace, texts.padding);
  fmt::print("{} accesses to {} rows, stack distances up to {}\n", trace.size(), profile.lines.size(),
             profile.distances.back());
  if (!texts.profile.empty()) TUTTI_TRY(write_file(texts.profile, to_text(profile)));
  if (!texts.synthetic.empty()) {
    NumpyRandom random(seed);
    TraceGenerator generator(profile, texts.padding);
    std::vector<std::int64_t> synthetic(trace.size());
    for (std::int64_t& line : synthetic) line = generator.next(random);
    TUTTI_TRY(write_file(texts.synthetic, texts.binary ? to_binary(synthetic) : to_text(synthetic)));
  }
  return 0;
}

}  // namespace
}  // namespace in_data_trace

int data_trace_command(std::vector<std::string> arguments) {
  using namespace in_data_trace;
  CLI::App app("Profiles a trace of accesses to a table.", "tutti data trace");
  Texts texts;
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type);
  };
  add("The trace", "--trace-file", texts.trace, "file with the accesses to one table", "FILE");
  app.add_flag("--trace-file-binary-type", texts.binary, "traces are 64-bit little-endian numbers, not text")
      ->group("The trace");
  add("Result", "--dist-file", texts.profile, "write the profile to this file", "FILE");
  add("Result", "--synthetic-file", texts.synthetic, "write a trace of the same length, drawn from the profile",
      "FILE");
  app.add_flag("--trace-enable-padding", texts.padding,
               "draw first accesses more often; none once all rows were accessed")
      ->group("Result");
  add("Result", "--numpy-rand-seed", texts.seed, "seed of the synthetic trace (123)", "N");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const Result<int> code = act(texts);
  if (code.ok()) return *code;
  report("tutti data trace", code.error());
  return launch::exit_code_of(code.error().code);
}

}  // namespace tutti::cli
