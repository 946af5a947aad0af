// Rank 0 puts a file with a name that nobody can have guessed into the folder, and all others look for it: a folder of
// the same name on a disk of their own does not have it. Each rank also makes a file of its own, which a folder that is
// read-only, full or another user's refuses.
#include "tutti/checkpoint/folder/shared_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/base/machine.h"
#include "tutti/checkpoint/folder/node_folders.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/objects.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// A file that goes with the object.
class ProbeFile {
 public:
  static Result<ProbeFile> create(const std::string& path) {
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd)
      return system_error(errno, fmt::format("cannot make a file in the folder {}", folder_of(path)),
                          "give a folder that this user may write to, on every node");
    return ProbeFile(path);
  }
  ProbeFile(ProbeFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ProbeFile& operator=(ProbeFile&&) = delete;
  ~ProbeFile() {
    if (!path_.empty()) (void)::unlink(path_.c_str());
  }
  static std::string folder_of(const std::string& path) { return fs::path(path).parent_path().string(); }

 private:
  explicit ProbeFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string random_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string probe_path(const std::string& folder, const std::string& word, int rank) {
  return fmt::format("{}/.probe-{}-{}", folder, word, rank);
}

Status look_for(const std::string& folder, const std::string& word, const std::string& host) {
  if (::access(probe_path(folder, word, 0).c_str(), F_OK) == 0) return {};
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the folder {} on host {} is not the one of rank 0 on host {}: what rank 0 wrote "
                                     "there cannot be seen",
                                     folder, host_name(), host),
               .hint =
                   "checkpoints need a folder that all nodes share; or let each node keep what its ranks write: "
                   "--save-dir-per-node (in a program: CheckpointerOptions::folder_per_node)"};
}

}  // namespace

Status check_shared_folder(const Group& group, const std::string& folder) {
  try {
    const int rank = group ? group.rank() : 0;
    std::string word = random_word() + " " + host_name();
    std::optional<ProbeFile> mine;
    const auto prove = [&](const std::string& random) -> Status {
      TUTTI_TRY(make_folder(folder));
      mine.emplace(TUTTI_TRY(ProbeFile::create(probe_path(folder, random, rank))));
      return {};
    };
    if (!group || group.size() == 1) return prove(word.substr(0, word.find(' ')));
    Status good;
    if (rank == 0) good = prove(word.substr(0, word.find(' ')));
    TUTTI_TRY(agree(group, good));
    broadcast_bytes(group, word);
    const std::string random = word.substr(0, word.find(' '));
    if (rank != 0) {
      good = look_for(folder, random, word.substr(random.size() + 1));
      if (good.ok()) good = prove(random);
    }
    return agree(group, good);  // and only then does rank 0's file go
  } catch (const Exception& error) {
    return error.error();
  }
}

// Each rank sees the files of those whose folder is its own, and takes the word of the lowest of them.
Result<NodeFolders> meet_node_folders(const Group& group, const std::string& folder) {
  try {
    std::string word = random_word();
    broadcast_bytes(group, word);
    std::optional<ProbeFile> mine;
    const auto prove = [&]() -> Status {
      TUTTI_TRY(make_folder(folder));
      mine.emplace(TUTTI_TRY(ProbeFile::create(probe_path(folder, word, group.rank()))));
      return {};
    };
    TUTTI_TRY(agree(group, told_with_host(prove())));
    int lowest = 0;
    while (lowest < group.rank() && ::access(probe_path(folder, word, lowest).c_str(), F_OK) != 0) ++lowest;
    NodeFolders made{.hosts = all_gather_bytes(group, host_name())};
    made.places = ranks_by_place(all_gather_bytes(group, std::to_string(lowest)));
    return made;
  } catch (const Exception& error) {
    return error.error();
  }
}

}  // namespace tutti
