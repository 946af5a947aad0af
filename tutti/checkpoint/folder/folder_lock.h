#pragma once
// Who may change a folder of checkpoints. A job has it for as long as it runs, so that two jobs do not mix their
// histories in it; and whoever writes or removes there has it while doing so, so that nobody takes another's draft for
// a leftover. They are two locks, so `tutti ckpt prune` may tidy up between the saves of a job that runs.
//
//   const FolderLock mine = TUTTI_TRY(FolderLock::take(folder, FolderUse::kWriting));
//
// A lock is a file in the folder, .job.lock or .write.lock, with who has it for people to read, and flock(2) on it: it
// ends with the process, however that ends. A file that is left by one that was killed is taken over.
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

enum class FolderUse {
  kJob,      // a job that saves there, from its start to its end; also who brings a checkpoint into it
  kWriting,  // one save, one prune, one merge
};

// How long a holder that is about to end is waited for: an attempt of the same job that still dies, a save, a prune.
inline constexpr Duration kFolderPatience = std::chrono::seconds(10);

struct FolderWait {
  Duration patience = kFolderPatience;
  // The launcher has started this job again, so who has the folder may be an attempt before it, on a host that was cut
  // off. Nobody can tell it from another job that runs, so nobody takes a folder from a process that lives: it is
  // refused as a kTimeout, after which the launcher tries again.
  bool restarted = false;
};

class FolderLock {
 public:
  // Of a folder that is there. Waits, and says for whom. Errors: kUsage, another job has it (restarted: kTimeout);
  // kTimeout, somebody writes all the while; kSystem, no file can be made there. Warnings: a file system without locks,
  // no room for the file.
  static Result<FolderLock> take(const std::string& folder, FolderUse use, const FolderWait& wait = {});
  FolderLock(FolderLock&& other) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

  // kInvalidArgument: the file is gone from the folder, or another is there, so somebody else may have it by now. Asked
  // before what must not be done beside another. Ok, too, where nothing could be locked.
  Status still_mine() const;

 private:
  FolderLock(Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Fd file_;  // none: nothing is held
  std::string path_;
};

}  // namespace tutti
