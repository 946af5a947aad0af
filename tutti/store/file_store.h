#pragma once
// A Store in a file that all ranks see: for rendezvous by file://, on one host or on a shared file system. It works
// without any server: the file is a log of changes, and each process replays it into a table of its own.
//
// One process, the owner, creates the file; the file is live for as long as the owner runs, so a file that an earlier
// job left behind is recognised and never read. inotify wakes waiting calls; on network file systems, where it does not
// report what other machines write, they check the file every tenth of a second.
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "tutti/base/mutex.h"
#include "tutti/store/request.h"
#include "tutti/store/store.h"
#include "tutti/store/table.h"

namespace tutti {

namespace store {
class FileLog;
}  // namespace store

// Threads: any; calls are made one after another (clone() for a second handle). The file holds at most 256 MiB of
// changes (kLimit), so it suits rendezvous, not lasting traffic. A rank that dies inside a barrier counts as
// entered.
class FileStore final : public Store {
 public:
  // The owner's. Replaces a stale file; kAddressInUse if the owner of the file there lives. The file has mode 0600 and
  // is removed with this handle. `job`: at most 400 bytes.
  static Result<std::unique_ptr<FileStore>> create(const std::string& path, const std::string& job);
  // For all other processes. Waits until the owner has made the file. kRefused if the file belongs to another running
  // job; a kTimeout distinguishes a missing file from a stale one and names the job that left it.
  static Result<std::unique_ptr<FileStore>> join(const std::string& path, const std::string& job, Deadline deadline);
  ~FileStore() override;

  Result<std::unique_ptr<Store>> clone(Deadline deadline) override;

 private:
  explicit FileStore(std::unique_ptr<store::FileLog> log);
  static Result<std::unique_ptr<FileStore>> open(std::unique_ptr<store::FileLog> log, Deadline deadline);

  Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) override;
  Result<store::Reply> change(const store::Request& request, Deadline deadline) TUTTI_REQUIRES(mutex_);
  Result<store::Reply> look(const store::Request& request, Deadline deadline) TUTTI_REQUIRES(mutex_);
  Result<store::Reply> pop_value(const store::Request& request, Deadline deadline) TUTTI_REQUIRES(mutex_);
  Result<store::Reply> meet(const store::Request& request, Deadline deadline, const Waiting& waiting)
      TUTTI_REQUIRES(mutex_);

  Status catch_up() TUTTI_REQUIRES(mutex_);
  Result<store::Table::Ticket> record(const store::Request& request) TUTTI_REQUIRES(mutex_);
  void apply(store::Table::Ticket ticket, store::Request request) TUTTI_REQUIRES(mutex_);
  std::optional<store::Reply> take_answer(store::Table::Ticket ticket) TUTTI_REQUIRES(mutex_);
  Status wait_change(Deadline deadline) TUTTI_REQUIRES(mutex_);
  store::Table::Ticket new_ticket() TUTTI_REQUIRES(mutex_) { return std::uint64_t(author_) << 32 | next_sequence_++; }

  Mutex mutex_;
  std::unique_ptr<store::FileLog> log_ TUTTI_GUARDED_BY(mutex_);
  store::Table table_ TUTTI_GUARDED_BY(mutex_);
  std::uint32_t author_ TUTTI_GUARDED_BY(mutex_) = 0;  // this handle, in the log
  std::uint32_t next_sequence_ TUTTI_GUARDED_BY(mutex_) = 1;
  std::unordered_map<store::Table::Ticket, store::Reply> answers_
      TUTTI_GUARDED_BY(mutex_);  // to own calls, not yet taken
};

}  // namespace tutti
