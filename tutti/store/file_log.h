#pragma once
// The file under a FileStore: a header that says whose it is, then records that are only ever appended. Private to
// store/.
//
//   header  1024 bytes: "TUTTIFS1", u32 format version, u32 owner's pid, u64 instance (random), then two strings, each
//           a u32 size and at most 400 bytes: job, host of the owner; the rest is zero
//   record  u32 payload bytes, u32 CRC-32 of the payload, payload
//
// A writer holds an exclusive lock on byte 1, a reader a shared one. So a record that is cut short was left by a writer
// that died in the middle of it, and the next writer cuts it off. The owner (the process that made the file) holds a
// lock on byte 0 for as long as it runs, which distinguishes a live file from a stale one, also after kill -9 and over
// NFS. Threads: one at a time.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"

namespace tutti::store {

struct FileLogHeader {
  std::string job, host;
  std::uint32_t pid = 0;
  std::uint64_t instance = 0;
};

class FileLog {
 public:
  // Makes the file with mode 0600, replacing one whose owner has gone. kAddressInUse if its owner lives,
  // kInvalidArgument if the file there is none of ours and not empty, kRefused on a file system that does not keep
  // owners and modes.
  static Result<std::unique_ptr<FileLog>> create(const std::string& path, const std::string& job);
  // Opens the file that a living owner of this job has made; waits for it to appear or to replace a stale one. kRefused
  // at once if a living owner has another job, or if anybody but this user could have written the file; a kTimeout says
  // what was found instead.
  static Result<std::unique_ptr<FileLog>> join(const std::string& path, const std::string& job, Deadline deadline);
  ~FileLog();  // the owner removes the file

  // Released when it goes out of scope.
  class Lock {
   public:
    explicit Lock(int fd) : fd_(fd) {}
    Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    ~Lock();

   private:
    int fd_;
  };
  Result<Lock> lock_shared(Deadline deadline);
  Result<Lock> lock_exclusive(Deadline deadline);

  // Calls `visit` with the payload of each record not yet visited, and its offset. With either lock held.
  Status read_new(const std::function<Status(std::uint64_t offset, std::span<const std::byte> payload)>& visit);
  // Appends a record and counts it as visited; its offset. With the exclusive lock held and everything read.
  Result<std::uint64_t> append(std::string_view payload);

  // Forgets the changes so far; call it before reading what they brought.
  void drain_changes();
  // Waits for a change since drain_changes(), until the deadline. Where the system cannot tell (a network file system,
  // or no inotify left) it returns after a tenth of a second.
  Status wait_change(Deadline deadline);

  bool owner_lives() const;
  const FileLogHeader& header() const { return header_; }
  const std::string& path() const { return path_; }

 private:
  struct Attempt {
    std::unique_ptr<FileLog> log;  // or null, and
    std::string why_not;           // a clause for people
  };
  static Result<Attempt> try_join(const std::string& path, const std::string& job);
  FileLog(Fd file, std::string path, FileLogHeader header, bool owner);
  Result<Lock> lock(short type, Deadline deadline);

  Fd file_;
  std::string path_;
  FileLogHeader header_;
  bool owner_;
  Fd changes_;         // inotify; invalid where it cannot tell
  std::uint64_t end_;  // of what was visited
};

}  // namespace tutti::store
