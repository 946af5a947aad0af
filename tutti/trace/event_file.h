#pragma once
// Numbers over steps for TensorBoard: an event file, as TensorFlow writes it (records with masked CRC-32Cs, each an
// Event message in the encoding of Protocol Buffers).
//
// Values are kept in memory for at most `flush_seconds` or 64 KiB, whichever comes first, and written by the next call;
// flush() and the destructor write the rest. A disk that is full never stops a training: there is one warning, what
// could not be written is dropped and counted, the file stays whole, and later values are tried again.
//
// Threads: any.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"

namespace tutti {

class EventFile {
 public:
  struct Options {
    double flush_seconds = 120;
  };
  // Makes the folder where there is none, and in it a file events.out.tfevents.TIME.HOST.PID.NUMBER of its own. An
  // error: the folder cannot be made or the file not be created.
  static Result<std::unique_ptr<EventFile>> create(const std::string& folder, const Options& options);
  static Result<std::unique_ptr<EventFile>> create(const std::string& folder) { return create(folder, {}); }
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // Names with slashes are grouped: "Train/Loss". The format keeps a float.
  void add_scalar(std::string_view tag, double value, std::int64_t step);
  void flush();
  const std::string& path() const { return path_; }
  std::uint64_t lost() const;  // values that could not be written

 private:
  EventFile(std::string path, Fd fd, double flush_seconds);
  void write_out() TUTTI_REQUIRES(mutex_);

  const std::string path_;
  const double flush_seconds_;
  mutable Mutex mutex_;
  Fd fd_ TUTTI_GUARDED_BY(mutex_);
  std::string pending_ TUTTI_GUARDED_BY(mutex_);               // whole records
  std::uint64_t pending_values_ TUTTI_GUARDED_BY(mutex_) = 0;  // in it
  std::uint64_t written_ TUTTI_GUARDED_BY(mutex_) = 0;         // bytes of whole records in the file
  std::uint64_t lost_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool warned_ TUTTI_GUARDED_BY(mutex_) = false;
  Clock::time_point flushed_ TUTTI_GUARDED_BY(mutex_) = now();
};

}  // namespace tutti
