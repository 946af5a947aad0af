#pragma once
// Where the output of the workers goes: the console with a prefix, one file per rank and stream, and the tail for the
// report. OutputOptions are the options about it, with their parsers and checks.
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/launch/output/console.h"
#include "tutti/launch/output/lines.h"
#include "tutti/launch/output/traceback.h"

namespace tutti::launch {

// A choice among the two output streams of a rank.
struct Streams {
  bool output = false, errors = false;

  bool any() const { return output || errors; }
  bool operator==(const Streams&) const = default;
};

// The choice for each rank of a node, by local rank.
class StreamsByRank {
 public:
  StreamsByRank() = default;
  explicit StreamsByRank(Streams all) : others_(all) {}

  void set(int local_rank, Streams streams) { named_[local_rank] = streams; }
  Streams of(int local_rank) const {
    const auto named = named_.find(local_rank);
    return named == named_.end() ? others_ : named->second;
  }
  bool any() const;

 private:
  Streams others_;
  std::map<int, Streams> named_;
};

// As torchrun's --redirects and --tee have it: "0" none, "1" standard output, "2" standard error, "3" both, for every
// rank; or by local rank, "0:3,2:1". Ranks that are not named get none; of two entries for one rank the later counts.
// kUsage: anything else.
Result<StreamsByRank> parse_streams(std::string_view text, const std::string& option);

struct OutputOptions {
  std::string log_dir;  // empty: no files
  bool prefix = true;   // "[rank] " before each line
  // Instead of "[rank] ", as in torchrun: with ${role_name}, ${rank} and ${local_rank}; empty: none.
  std::string prefix_template;
  std::set<int> only_ranks;  // on the console; empty: all
  std::set<int> quiet_ranks;
  std::set<int> only_local_ranks;  // of each node; empty: all
  // Streams that go to the files instead of the console; of these, the ones that go to both.
  StreamsByRank redirects, tee;
  bool show_output = true, show_errors = true;  // which of the streams the console shows
  // The console shows lines of this level and above. A line without a level counts as kInfo on standard output and as
  // kWarn on standard error, where a crash prints its last lines. None: all.
  std::optional<LineLevel> level;
  bool json = false;  // each line on the console is a JSON object (lines.h)
  std::string host;   // for the JSON
  int attempt = 0;
  std::size_t tail_lines = 20;
};

// Ranks as a user lists them: "0,2,5-7".
Result<std::set<int>> parse_ranks(std::string_view text, const std::string& option);
// kUsage: options that exclude each other.
Status check_output(const OutputOptions& options);
// The streams of a rank that the console shows: options only hide streams, so what none of them hides is shown.
Streams shown_streams(const OutputOptions& options, int rank, int local_rank);
// Whether escape sequences are welcome on a descriptor: a terminal that is not "dumb", no NO_COLOR, or CLICOLOR_FORCE.
bool wants_colour(int fd);
// The output of one rank. Its files are FOLDER/stdout.log and FOLDER/stderr.log (run_folder.h), byte for byte what the
// rank wrote.
class WorkerOutput {
 public:
  enum Stream { kOutput = 0, kErrors = 1 };

  // An empty `folder`: no files. `shown`: on the consoles, which outlive this.
  static Result<WorkerOutput> create(int rank, const OutputOptions& options, Streams shown, const std::string& folder,
                                     Console& output, Console& errors);

  void take(Stream stream, std::string_view bytes);
  void close(Stream stream);  // at the end of a stream: shows its partial last line
  bool congested(Stream stream) const { return streams_[stream].shown && streams_[stream].console->congested(); }
  const Tail& tail() const { return tail_; }
  const Traceback& traceback() const { return traceback_; }  // of standard error
  const std::string& folder() const { return folder_; }      // of its files; empty: none

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
  Traceback traceback_;
};

}  // namespace tutti::launch
