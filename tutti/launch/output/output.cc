#include "tutti/launch/output/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/launch/layout.h"

namespace tutti::launch {
namespace {

std::optional<Streams> streams_of(std::string_view digit) {
  const auto bits = parse_int(digit);
  if (digit.size() != 1 || !bits || *bits < 0 || *bits > 3) return {};
  return Streams{.output = (*bits & 1) != 0, .errors = (*bits & 2) != 0};
}

// Six colours that are distinct on a light and on a dark background.
std::string coloured(int rank, const std::string& text) {
  return "\033[3" + std::to_string(1 + rank % 6) + "m" + text + "\033[0m";
}

Result<Fd> open_log(const std::string& folder, const std::string& stream) {
  const std::string path = folder + "/" + stream + ".log";
  // O_NONBLOCK: a rank of an earlier attempt may have put a pipe there that has no reader.
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0644));
  if (!file) return system_error(errno, "cannot write the log file " + path, "choose another --log-dir");
  return file;
}

}  // namespace

bool StreamsByRank::any() const {
  return others_.any() ||
         std::any_of(named_.begin(), named_.end(), [](const auto& entry) { return entry.second.any(); });
}

Result<StreamsByRank> parse_streams(std::string_view text, const std::string& option) {
  if (const auto all = streams_of(text)) return StreamsByRank(*all);
  StreamsByRank streams;
  for (const std::string& part : split(text, ',')) {
    const auto colon = part.find(':');
    const auto rank = parse_int(std::string_view(part).substr(0, colon));
    const auto meant = colon == std::string::npos ? std::nullopt : streams_of(std::string_view(part).substr(colon + 1));
    if (!rank || *rank < 0 || *rank >= kMostRanksPerNode || !meant)
      return Error{.code = Code::kUsage,
                   .detail = option +
                             " needs 0 (none), 1 (stdout), 2 (stderr) or 3 (both), for all ranks or by local "
                             "rank such as 0:3,2:1, not '" +
                             std::string(text) + "'"};
    streams.set(int(*rank), *meant);
  }
  return streams;
}

Result<std::set<int>> parse_ranks(std::string_view text, const std::string& option) {
  const auto bad = [&](std::string_view part) {
    return Error{.code = Code::kUsage,
                 .detail = option + " needs ranks such as 0,2,5-7, not '" + std::string(part) + "'"};
  };
  std::set<int> ranks;
  for (const std::string& part : split(text, ',')) {
    const auto dash = part.find('-', 1);
    const auto first = parse_int(trim(std::string_view(part).substr(0, dash)));
    const auto last = dash == std::string::npos ? first : parse_int(trim(std::string_view(part).substr(dash + 1)));
    if (!first || !last || *first < 0 || *last < *first || *last > 1'000'000) return bad(part);
    for (auto rank = *first; rank <= *last; ++rank) ranks.insert(int(rank));
  }
  return ranks;
}

Status check_output(const OutputOptions& options) {
  if (!options.prefix_template.empty() && (!options.prefix || options.json))
    return Error{.code = Code::kUsage,
                 .detail = std::string("--log-line-prefix-template and ") +
                           (options.json ? "--log-format json" : "--no-prefix") + " were both given",
                 .hint = "leave one of them out"};
  if (options.prefix || (!options.json && !options.level)) return {};
  return Error{.code = Code::kUsage,
               .detail = std::string(options.json ? "--log-format json" : "--level") +
                         " works on lines, and --no-prefix passes bytes on unchanged",
               .hint = "leave out one of the two"};
}

bool wants_colour(int fd) {
  if (env("NO_COLOR")) return false;
  if (env("CLICOLOR_FORCE").value_or("0") != "0") return true;
  return isatty(fd) && env("TERM").value_or("dumb") != "dumb";
}

Streams shown_streams(const OutputOptions& options, int rank, int local_rank) {
  const auto among = [](const std::set<int>& ranks, int which) { return ranks.empty() || ranks.count(which); };
  if (!among(options.only_ranks, rank) || options.quiet_ranks.count(rank)) return {};
  if (!among(options.only_local_ranks, local_rank)) return {};
  const Streams redirected = options.redirects.of(local_rank), stays = options.tee.of(local_rank);
  return {.output = options.show_output && (stays.output || !redirected.output),
          .errors = options.show_errors && (stays.errors || !redirected.errors)};
}

Result<WorkerOutput> WorkerOutput::create(int rank, const OutputOptions& options, Streams shown,
                                          const std::string& folder, Console& output, Console& errors) {
  WorkerOutput made(rank, options, folder);
  Console* const consoles[] = {&output, &errors};
  const char* const names[] = {"stdout", "stderr"};
  for (const Stream stream : {kOutput, kErrors}) {
    Channel& channel = made.streams_[stream];
    channel.console = consoles[stream];
    channel.shown = stream == kOutput ? shown.output : shown.errors;
    const std::string prefix = "[" + std::to_string(rank) + "]";
    channel.prefix = (wants_colour(consoles[stream]->fd()) ? coloured(rank, prefix) : prefix) + " ";
    if (!options.prefix_template.empty()) channel.prefix = options.prefix_template;
    if (!folder.empty()) channel.file = TUTTI_TRY(open_log(folder, names[stream]));
  }
  return made;
}

void WorkerOutput::take(Stream stream, std::string_view bytes) {
  Channel& channel = streams_[stream];
  write_file(channel, bytes);
  if (!options_.prefix && channel.shown) channel.console->write_raw(bytes);
  channel.lines.feed(bytes, [&](std::string_view line) { show(stream, line); });
}

void WorkerOutput::close(Stream stream) {
  Channel& channel = streams_[stream];
  channel.lines.flush([&](std::string_view line) { show(stream, line); });
}

void WorkerOutput::show(Stream stream, std::string_view line) {
  tail_.add(line);
  if (stream == kErrors) traceback_.add(line);
  const Channel& channel = streams_[stream];
  if (!channel.shown || !options_.prefix) return;
  const auto level = options_.level || options_.json ? level_of_line(line) : std::nullopt;
  if (options_.level && level.value_or(stream == kOutput ? LineLevel::kInfo : LineLevel::kWarn) < *options_.level)
    return;
  if (!options_.json) return channel.console->write_line(channel.prefix, line);
  const LogLine of{.line = line, .rank = rank_, .stream = stream == kOutput ? "stdout" : "stderr", .level = level};
  channel.console->write_line("", json_line(of, options_.host, options_.attempt, microseconds_since_epoch()));
}

// A full disk must not end a training run: it is reported once, and the console still shows the lines.
void WorkerOutput::write_file(Channel& channel, std::string_view bytes) {
  while (channel.file && !channel.file_failed && !bytes.empty()) {
    const ssize_t count = write(channel.file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      streams_[kErrors].console->write_line("[tutti] ",
                                            to_string(system_error(errno, "a log file in " + folder_ + " ends here",
                                                                   "free space, or choose another --log-dir")));
      channel.file_failed = true;
      return;
    }
    bytes.remove_prefix(std::size_t(count));
  }
}

}  // namespace tutti::launch
