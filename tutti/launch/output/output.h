#pragma once
// Where the output of the workers goes: the console with a prefix, one file per rank and stream, and the tail for the
// report.
//
// Layout of --log-dir DIR (output/run_folder.h has what is above):  DIR/<job>/attempt_<n>/rank_<r>/stdout.log and
// stderr.log, byte for byte what the rank wrote; error.json beside them is the rank's TORCHELASTIC_ERROR_FILE.
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tutti/base/fd.h"
#include "tutti/launch/output/console.h"
#include "tutti/launch/output/lines.h"
#include "tutti/launch/output/log_lines.h"
#include "tutti/launch/output/streams.h"

namespace tutti {

struct OutputOptions {
  std::string log_dir;  // empty: no files
  bool prefix = true;   // "[rank] " before each line
  // Instead of "[rank] ", as torchrun has it: with ${role_name}, ${rank} and ${local_rank}; empty: none.
  std::string prefix_template;
  std::set<int> only_ranks;  // on the console; empty: all
  std::set<int> quiet_ranks;
  std::set<int> only_local_ranks;  // of each node; empty: all
  // Which streams leave the console for the files alone, and which of these stay there all the same.
  StreamsByRank redirects, tee;
  bool show_output = true, show_errors = true;  // which of the streams the console shows
  // The console shows lines of this level or a graver one. A line that tells none counts as kInfo on standard output
  // and as kWarn on standard error, where the last words of a crash are. None: all.
  std::optional<LineLevel> level;
  bool json = false;  // each line on the console is an object (log_lines.h)
  std::string host;   // for that
  int attempt = 0;
  std::size_t tail_lines = 20;
};

// Ranks as a user lists them: "0,2,5-7".
Result<std::set<int>> parse_ranks(std::string_view text, const std::string& option);
// What cannot go together: kUsage.
Status check_output(const OutputOptions& options);
// Whether the console shows a rank's stream: an option can only hide one, so what none of them hides is shown.
Streams shown_streams(const OutputOptions& options, int rank, int local_rank);
// Whether escape sequences are welcome on a descriptor: a terminal that is not "dumb", no NO_COLOR, or CLICOLOR_FORCE.
bool wants_colour(int fd);
// DIR/<job>/attempt_<n>, of the round with this number.
std::string attempt_folder(const std::string& log_dir, const std::string& job, int round);
// Makes ATTEMPT/rank_<r>; its path.
Result<std::string> make_rank_folder(const std::string& attempt, int rank);

class WorkerOutput {
 public:
  enum Stream { kOutput = 0, kErrors = 1 };

  // `folder` empty: no files. `shown`: on the consoles, which outlive this.
  static Result<WorkerOutput> create(int rank, const OutputOptions& options, Streams shown, const std::string& folder,
                                     Console& output, Console& errors);

  void take(Stream stream, std::string_view bytes);
  void close(Stream stream);  // the end of a stream: its partial last line goes out
  bool congested(Stream stream) const { return streams_[stream].shown && streams_[stream].console->congested(); }
  const Tail& tail() const { return tail_; }
  const std::string& folder() const { return folder_; }  // of its files; empty: none

 private:
  struct Channel {
    Console* console = nullptr;
    LineSplitter lines;
    Fd file;
    std::string prefix;
    bool file_failed = false;
    bool shown = true;
  };

  WorkerOutput(int rank, const OutputOptions& options, std::string folder)
      : rank_(rank), folder_(std::move(folder)), options_(options), tail_(options.tail_lines) {}
  void show(Stream stream, std::string_view line);
  void write_file(Channel& channel, std::string_view bytes);

  int rank_;
  std::string folder_;
  OutputOptions options_;
  std::array<Channel, 2> streams_;
  Tail tail_;
};

}  // namespace tutti
