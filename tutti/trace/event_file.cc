// The file is a row of TFRecords:
//   length (8 bytes), masked CRC-32C of it (4), the bytes, masked CRC-32C of them (4), all little-endian,
// where masked means rotated right by 15 bits plus a constant (a checksum of data that holds its own checksum tells
// little). The bytes are tensorflow.Event messages, of which these fields are used, in the encoding of Protocol
// Buffers:
//   Event:         1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary (message)
//   Summary:       1 value (message), repeated
//   Summary.Value: 1 tag (string), 2 simple_value (float)
// The first record says "brain.Event:2". A few dozen lines, where the library would be a dependency of every program.
//
// A write that fails midway would leave half a record, and readers stop there for good: the file is cut back to the
// last whole one.
#include "tutti/trace/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tutti/base/crc32c.h"
#include "tutti/base/file.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kMostPending = 64 << 10;

enum WireType { kVarint = 0, k64Bit = 1, kBytes = 2, k32Bit = 5 };

template <class T>
void put_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}
void put_key(std::string& out, int field, WireType type) { put_varint(out, std::uint64_t(field << 3 | type)); }
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_begin() {
  std::string event;
  put_key(event, 1, k64Bit);
  put_raw(event, wall_time());
  return event;
}

std::uint32_t masked(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8u;
}

std::string record(const std::string& bytes) {
  std::string out;
  put_raw(out, std::uint64_t(bytes.size()));
  put_raw(out, masked(out));
  out += bytes;
  put_raw(out, masked(bytes));
  return out;
}

std::string first_record() {
  std::string event = event_begin();
  put_bytes(event, 3, "brain.Event:2");
  return record(event);
}

}  // namespace

Result<std::unique_ptr<EventFile>> EventFile::create(const std::string& folder, const Options& options) {
  static std::atomic<int> number{0};
  TUTTI_TRY(make_folder(folder));
  const std::string path = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder, std::int64_t(wall_time()),
                                       host_name(), ::getpid(), number++);
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd)
    return system_error(errno, fmt::format("cannot create {}", path), "give a folder that this user may write to");
  std::unique_ptr<EventFile> file(new EventFile(path, std::move(fd), options.flush_seconds));
  const MutexLock lock(file->mutex_);
  file->pending_ = first_record();
  file->write_out();
  return file;
}

EventFile::EventFile(std::string path, Fd fd, double flush_seconds)
    : path_(std::move(path)), flush_seconds_(flush_seconds), fd_(std::move(fd)) {}

EventFile::~EventFile() { flush(); }

void EventFile::add_scalar(std::string_view tag, double value, std::int64_t step) {
  std::string one;
  put_bytes(one, 1, tag);
  put_key(one, 2, k32Bit);
  put_raw(one, float(value));
  std::string summary;
  put_bytes(summary, 1, one);
  std::string event = event_begin();
  put_key(event, 2, kVarint);
  put_varint(event, std::uint64_t(step));
  put_bytes(event, 5, summary);

  const MutexLock lock(mutex_);
  pending_ += record(event);
  ++pending_values_;
  if (pending_.size() >= kMostPending || seconds_since(flushed_) >= flush_seconds_) write_out();
}

void EventFile::flush() {
  const MutexLock lock(mutex_);
  write_out();
}

std::uint64_t EventFile::lost() const {
  const MutexLock lock(mutex_);
  return lost_;
}

void EventFile::write_out() {
  flushed_ = now();
  if (pending_.empty()) return;
  const Status written = write_all(fd_.get(), std::as_bytes(std::span(pending_)), path_);
  if (written.ok()) {
    written_ += pending_.size();
    if (warned_) log::warn(fmt::format("{} can be written again; {} values were lost", path_, lost_));
    warned_ = false;
  } else {
    lost_ += pending_values_;
    if (!warned_)
      log::warn(
          fmt::format("training continues, but some values for TensorBoard are lost: {}", to_string(written.error())));
    warned_ = true;
    // Half a record goes; should even that fail, the next one begins where this one did.
    [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), off_t(written_));
    ::lseek(fd_.get(), off_t(written_), SEEK_SET);
  }
  pending_.clear();
  if (written_ == 0) pending_ = first_record();  // without which readers do not know the file
  pending_values_ = 0;
}

}  // namespace tutti
