#pragma once
// One rank as its agent sees it: the process, how it ended, where its output goes.
#include <span>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/launch/agent/poll_set.h"
#include "tutti/launch/output/output.h"
#include "tutti/launch/process.h"
#include "tutti/launch/reports/report.h"
#include "tutti/trace/progress/reader.h"

namespace tutti {

class Worker {
 public:
  // `page`: its progress page; none: nothing is known of what it does.
  Worker(int rank, ChildProcess process, WorkerOutput output, std::string error_file, Fd page);

  int rank() const { return end_.rank; }
  pid_t pid() const { return end_.pid; }
  // Readable as soon as the process has ended; until it is reaped its number belongs to nobody else.
  int pidfd() const { return process_.pidfd.get(); }
  bool alive() const { return alive_; }
  Clock::time_point started() const { return process_.started; }

  const WorkerEnd& end() const { return end_; }
  const std::deque<std::string>& last_lines() const { return output_.tail().lines(); }
  const std::string& log_folder() const { return output_.folder(); }  // empty: none
  const std::string& error_file() const { return error_file_; }       // TORCHELASTIC_ERROR_FILE; may be empty

  // What it does, or did before its end.
  ProgressReader progress() const { return ProgressReader(page_.get()); }

  // It ended, seen by wait4(), after having had so many bytes of memory at most: takes what it had written, too.
  void ended(Exit exit, std::uint64_t most_resident);
  // The kernel does not let it go: nothing is waited for any more.
  void give_up() { alive_ = false, given_up_ = true; }
  bool given_up() const { return given_up_; }

  // To the process alone, or to it and its helpers, the process group. Nothing if it has ended.
  void signal_alone(int signal) const;
  void signal_group(int signal) const;
  // The same, to stop it: what the report says of its end.
  void stop_group(int signal);
  // What the report says of a rank that has to go because of another.
  void mark_stopped();
  void mark_asked() { end_.stopped = true; }
  void mark_killed() { end_.needed_kill = true; }

  // Its output, as far as the consoles take it.
  void listen(PollSet& events);
  // What it had written before its end: at most what its pipes hold, though a helper of it may still be writing.
  void drain();
  void close_output();

 private:
  void read(WorkerOutput::Stream stream);
  Fd& pipe(WorkerOutput::Stream stream) { return stream == WorkerOutput::kOutput ? process_.output : process_.errors; }

  WorkerEnd end_;
  ChildProcess process_;
  WorkerOutput output_;
  std::string error_file_;
  Fd page_;
  bool alive_ = true, given_up_ = false;
};

}  // namespace tutti
