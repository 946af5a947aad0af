// A stale file is the classic trap of meeting at a file: yesterday's addresses are still in it. Here a file is *live*
// while its owner holds the lock on its first byte; the kernel releases that lock however the owner ends. A new owner
// makes its file aside, complete with header and lock, and puts it in place by link(), which fails if another process
// was quicker; so no process ever sees half a header, and of two would-be owners one learns of the other.
//
// In a folder that others may write to, a stranger could be quicker than our rank 0 and have all other ranks join him.
// So the file counts only if it is this user's and closed to all others: then this user's process has made it. A
// file system that shows another owner or mode than was asked for (NFS that maps root to nobody, FAT, SMB) cannot tell
// us from strangers, and is refused when the file is made.
#include "tutti/store/file_log.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/store/request.h"

namespace tutti::store {
namespace {

constexpr char kMagic[] = "TUTTIFS1";
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kHeaderBytes = 1024, kMaxLogText = 400, kRecordHeader = 8;
constexpr std::size_t kMaxFileBytes = kMaxTableBytes, kMaxPayload = kMaxCallBytes + (std::size_t(1) << 20);
constexpr Duration kReplaceLimit = std::chrono::seconds(10);
constexpr Duration kRecheck = std::chrono::milliseconds(100);
constexpr Duration kFirstLockPause = std::chrono::microseconds(50), kLongestLockPause = std::chrono::milliseconds(5);

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Error file_error(int errno_value, const std::string& what, const std::string& path) {
  return system_error(
      errno_value, "cannot " + what + " the store file " + path,
      errno_value == ENOENT
          ? "is there no folder " + folder_of(path) + " here? Make it where all ranks see it, or give another path"
      : errno_value == ENOTDIR                        ? "a part of the path is a file, not a folder: give another path"
      : errno_value == EACCES || errno_value == EROFS ? "choose a folder that this user may write to on every host"
                                                      : "");
}

void pause_for(Duration duration) {
  const timespec nap{duration.count() / 1000000000, duration.count() % 1000000000};
  (void)::nanosleep(&nap, nullptr);
}

template <class T>
void put(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class T>
T number_at(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::string encode(const FileLogHeader& header) {
  std::string out(kMagic);
  put(out, kFormatVersion);
  put(out, header.pid);
  put(out, header.instance);
  for (const std::string& text : {header.job, header.host}) {
    const std::string kept = text.substr(0, kMaxLogText);
    put(out, std::uint32_t(kept.size()));
    out += kept;
  }
  out.resize(kHeaderBytes, '\0');
  return out;
}

// None: no store file of any version.
Result<std::optional<FileLogHeader>> read_header(int fd, const std::string& path) {
  std::array<char, kHeaderBytes> bytes{};
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (got < 0) return file_error(errno, "read", path);
  if (got < ssize_t(kHeaderBytes) || std::memcmp(bytes.data(), kMagic, 8) != 0) return std::optional<FileLogHeader>();
  if (const auto version = number_at<std::uint32_t>(bytes.data() + 8); version != kFormatVersion)
    return Error{.code = Code::kRefused,
                 .detail = "the store file " + path + " has format version " + std::to_string(version) +
                           ", this program writes " + std::to_string(kFormatVersion),
                 .hint = "start all ranks from the same release of tutti, or remove the file"};
  FileLogHeader header{.pid = number_at<std::uint32_t>(bytes.data() + 12),
                       .instance = number_at<std::uint64_t>(bytes.data() + 16)};
  std::size_t at = 24;
  for (std::string* text : {&header.job, &header.host}) {
    const auto size = number_at<std::uint32_t>(bytes.data() + at);
    if (size > kMaxLogText) return std::optional<FileLogHeader>();
    text->assign(bytes.data() + at + 4, size);
    at += 4 + size;
  }
  return std::optional<FileLogHeader>(header);
}

// Locks belong to the open file description, on single bytes: flock() would not do, because over NFS it covers the
// whole file.
constexpr off_t kOwnerByte = 0, kAccessByte = 1;

struct flock byte_lock(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool try_lock(int fd, short type, off_t byte) {
  struct flock lock = byte_lock(type, byte);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool has_living_owner(int fd) {
  struct flock lock = byte_lock(F_WRLCK, kOwnerByte);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool is_at(int fd, const std::string& path) {
  struct stat open_file, named;
  return ::fstat(fd, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

std::string whose(const FileLogHeader& header) {
  return "job \"" + header.job + "\" (pid " + std::to_string(header.pid) + " on " + header.host + ")";
}

// Whether only this user can have written the file.
Status check_private(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return file_error(errno, "look at", path);
  const auto refuse = [&](std::string why, std::string hint) {
    return Error{.code = Code::kRefused,
                 .detail = "the store file " + path + " " + std::move(why) + ", so it may be a file of another user",
                 .hint = std::move(hint)};
  };
  if (info.st_uid != ::geteuid())
    return refuse(
        "belongs to the user with id " + std::to_string(info.st_uid) + ", this process runs as " +
            std::to_string(::geteuid()),
        "start all ranks as one user, in a folder of your own; where NFS maps root to nobody, not as root, or "
        "meet at tcp://");
  if ((info.st_mode & 077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", unsigned(info.st_mode & 07777));
    return refuse("has mode " + std::string(mode) + ", which lets other users read or write it",
                  "tutti makes it with mode 0600: choose another folder or remove the file; where a file system keeps "
                  "no modes, meet at tcp://");
  }
  return {};
}

// File systems whose changes by other machines inotify does not see.
bool is_remote(int fd) {
  struct statfs info;
  if (::fstatfs(fd, &info) != 0) return false;
  constexpr std::uint64_t kLustre = 0x0BD00BD0, kGpfs = 0x47504653, kCifs = 0xFF534D42, kSmb2 = 0xFE534D42,
                          kBeeGfs = 0x19830326, kCeph = 0x00C36400, kFuse = 0x65735546;
  const auto type = std::uint64_t(info.f_type) & 0xFFFFFFFF;
  const std::uint64_t remote[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, AFS_SUPER_MAGIC, V9FS_MAGIC, kLustre, kGpfs,
                                  kCifs,           kSmb2,           kBeeGfs,         kCeph,      kFuse};
  return std::find(std::begin(remote), std::end(remote), type) != std::end(remote);
}

// An inotify descriptor on `path`; invalid where it would not tell everything.
Fd watch_changes(const std::string& path, std::uint32_t events, bool remote) {
  if (remote) return {};
  Fd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (fd && ::inotify_add_watch(fd.get(), path.c_str(), events) >= 0) return fd;
  log::debug("no inotify for " + path + ": checking every 100 ms instead");
  return {};
}

Status wait_event(const Fd& changes, Deadline deadline) {
  if (!changes) {
    pause_for(std::min(kRecheck, deadline.remaining()));
    return {};
  }
  pollfd entry{changes.get(), POLLIN, 0};
  if (::poll(&entry, 1, deadline.poll_timeout_ms()) < 0 && errno != EINTR)
    return system_error(errno, "cannot wait for a change of a file");
  return {};
}

void drain(const Fd& changes) {
  char events[4096];
  while (changes && ::read(changes.get(), events, sizeof events) > 0) continue;
}

// Takes a file whose owner has gone out of the way, unless another process just did.
Status remove_stale(const std::string& path) {
  const Fd old(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!old) return errno == ENOENT ? Status() : file_error(errno, "open", path);
  const auto header = TUTTI_TRY(read_header(old.get(), path));
  struct stat info;
  if (!header && (::fstat(old.get(), &info) != 0 || info.st_size != 0 || !S_ISREG(info.st_mode)))
    return invalid_argument(path + " exists and is not a store file", "give the path of a file that does not exist");
  if (header && has_living_owner(old.get()))
    return Error{.code = Code::kAddressInUse,
                 .detail = "the store file " + path + " is in use by " + whose(*header),
                 .hint = "end that job, or give another path"};
  if (try_lock(old.get(), F_WRLCK, kAccessByte) && is_at(old.get(), path) && ::unlink(path.c_str()) != 0 &&
      errno != ENOENT)
    return file_error(errno, "replace", path);
  return {};
}

}  // namespace

Result<std::unique_ptr<FileLog>> FileLog::create(const std::string& path, const std::string& job) {
  FileLogHeader header{.job = job.substr(0, kMaxLogText), .host = host_name(), .pid = std::uint32_t(::getpid())};
  std::random_device random;
  header.instance = std::uint64_t(random()) << 32 | random();
  const std::string aside = path + "." + std::to_string(header.instance) + ".new";
  Fd file(::open(aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return file_error(errno, "create", path);
  const auto give_up = [&](Error error) {
    (void)::unlink(aside.c_str());
    return error;
  };
  if (const Status checked = check_private(file.get(), path); !checked.ok()) return give_up(checked.error());
  const std::string bytes = encode(header);
  if (::pwrite(file.get(), bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()) ||
      !try_lock(file.get(), F_WRLCK, kOwnerByte))
    return give_up(file_error(errno, "write", path));
  const Deadline deadline = Deadline::after(kReplaceLimit);
  while (::link(aside.c_str(), path.c_str()) != 0) {
    if (errno != EEXIST) return give_up(file_error(errno, "create", path));
    if (deadline.expired())
      return give_up(
          deadline.error("a process of an earlier job holds the stale store file " + path, "remove the file"));
    if (const Status removed = remove_stale(path); !removed.ok()) return give_up(removed.error());
  }
  (void)::unlink(aside.c_str());
  return std::unique_ptr<FileLog>(new FileLog(std::move(file), path, std::move(header), /*owner=*/true));
}

Result<FileLog::Attempt> FileLog::try_join(const std::string& path, const std::string& job) {
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT) return Attempt{.why_not = "the file did not appear"};
  if (!file) return file_error(errno, "open", path);
  auto header = TUTTI_TRY(read_header(file.get(), path));
  struct stat info;
  if (!header && ::fstat(file.get(), &info) == 0 && info.st_size == 0)
    return Attempt{.why_not = "the file there is empty"};  // made by mktemp
  if (!header)
    return Error{.code = Code::kCorrupt,
                 .detail = path + " is not a store file",
                 .hint = "give the path of a file that does not exist"};
  if (!has_living_owner(file.get()))
    return Attempt{.why_not = "the file there is stale, left by " + whose(*header) + ", which has ended"};
  TUTTI_TRY(check_private(file.get(), path));
  if (header->job != job.substr(0, kMaxLogText))
    return Error{.code = Code::kRefused,
                 .detail = "the store file " + path + " belongs to " + whose(*header) + ", ours is job \"" + job + "\"",
                 .hint = "give each job its own path"};
  return Attempt{.log =
                     std::unique_ptr<FileLog>(new FileLog(std::move(file), path, *std::move(header), /*owner=*/false))};
}

Result<std::unique_ptr<FileLog>> FileLog::join(const std::string& path, const std::string& job, Deadline deadline) {
  const std::string folder = folder_of(path);
  const Fd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_fd) return file_error(errno, "reach the folder of", path);
  const Fd arrivals = watch_changes(folder, IN_CREATE | IN_MOVED_TO, is_remote(folder_fd.get()));
  while (true) {
    drain(arrivals);
    Attempt attempt = TUTTI_TRY(try_join(path, job));
    if (attempt.log) return std::move(attempt.log);
    if (deadline.expired())
      return deadline.error("no rank made the store file " + path + " (" + attempt.why_not + ")",
                            "the first rank makes it: is it running, and does it see the same folder?");
    TUTTI_TRY(wait_event(arrivals, deadline.at_most(std::chrono::seconds(5))));
  }
}

FileLog::FileLog(Fd file, std::string path, FileLogHeader header, bool owner)
    : file_(std::move(file)),
      path_(std::move(path)),
      header_(std::move(header)),
      owner_(owner),
      changes_(watch_changes("/proc/self/fd/" + std::to_string(file_.get()), IN_MODIFY, is_remote(file_.get()))),
      end_(kHeaderBytes) {}

FileLog::~FileLog() {
  if (owner_ && is_at(file_.get(), path_)) (void)::unlink(path_.c_str());
}

bool FileLog::owner_lives() const { return owner_ || has_living_owner(file_.get()); }

FileLog::Lock::~Lock() {
  if (fd_ >= 0) (void)try_lock(fd_, F_UNLCK, kAccessByte);
}

// A wait for a lock has no deadline, and nothing tells of its release; it is held for microseconds, so short pauses do.
Result<FileLog::Lock> FileLog::lock(short type, Deadline deadline) {
  for (Duration pause = kFirstLockPause;; pause = std::min(pause * 2, kLongestLockPause)) {
    if (try_lock(file_.get(), type, kAccessByte)) return Lock(file_.get());
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return file_error(errno, "lock", path_);
    if (deadline.expired())
      return deadline.error("another process holds the lock of the store file " + path_,
                            "is a rank of this job stopped?");
    pause_for(std::min(pause, deadline.remaining()));
  }
}
Result<FileLog::Lock> FileLog::lock_shared(Deadline deadline) { return lock(F_RDLCK, deadline); }
Result<FileLog::Lock> FileLog::lock_exclusive(Deadline deadline) { return lock(F_WRLCK, deadline); }

Status FileLog::read_new(const std::function<Status(std::uint64_t, std::span<const std::byte>)>& visit) {
  struct stat info;
  if (::fstat(file_.get(), &info) != 0) return file_error(errno, "read", path_);
  const auto size = std::uint64_t(info.st_size);
  if (size <= end_) return {};
  if (size > kMaxFileBytes + kMaxPayload)
    return Error{.code = Code::kLimit, .detail = "the store file " + path_ + " is too large"};
  std::vector<char> bytes(size - end_);
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::pread(file_.get(), bytes.data() + have, bytes.size() - have, off_t(end_ + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(errno, "read", path_);
    if (got == 0) break;
    have += std::size_t(got);
  }
  const char* at = bytes.data();
  for (std::size_t left = have; left >= kRecordHeader;) {
    const auto length = number_at<std::uint32_t>(at), checksum = number_at<std::uint32_t>(at + 4);
    if (length > left - kRecordHeader) break;  // cut short by the death of its writer
    const char* payload = at + kRecordHeader;
    if (crc32(0, reinterpret_cast<const unsigned char*>(payload), length) != checksum) {
      if (length == left - kRecordHeader) break;  // likewise: its size was there before its bytes
      return Error{.code = Code::kCorrupt,
                   .detail = "the store file " + path_ + " has a damaged record at byte " + std::to_string(end_)};
    }
    const std::uint64_t offset = end_;
    end_ += kRecordHeader + length;
    at += kRecordHeader + length;
    left -= kRecordHeader + length;
    TUTTI_TRY(visit(offset, std::as_bytes(std::span(payload, length))));
  }
  return {};
}

Result<std::uint64_t> FileLog::append(std::string_view payload) {
  const std::uint64_t offset = end_;
  if (payload.size() > kMaxPayload || offset + kRecordHeader + payload.size() > kMaxFileBytes)
    return Error{.code = Code::kLimit,
                 .detail = "the store file " + path_ + " has reached " + std::to_string(offset) + " bytes",
                 .hint = "a store file is for the rendezvous of ranks; for lasting traffic use tcp://"};
  std::string record;
  put(record, std::uint32_t(payload.size()));
  put(record,
      std::uint32_t(crc32(0, reinterpret_cast<const unsigned char*>(payload.data()), unsigned(payload.size()))));
  record += payload;
  if (::ftruncate(file_.get(), off_t(offset)) != 0)
    return file_error(errno, "write", path_);  // what a dead writer left
  for (std::size_t done = 0; done < record.size();) {
    const ssize_t put = ::pwrite(file_.get(), record.data() + done, record.size() - done, off_t(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return file_error(errno, "write", path_);
    done += std::size_t(put);
  }
  end_ = offset + record.size();
  return offset;
}

void FileLog::drain_changes() { drain(changes_); }
Status FileLog::wait_change(Deadline deadline) { return wait_event(changes_, deadline); }

}  // namespace tutti::store
