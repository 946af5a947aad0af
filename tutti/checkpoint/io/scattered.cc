#include "tutti/checkpoint/io/scattered.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/file.h"
#include "tutti/checkpoint/io/fetch.h"
#include "tutti/comm/agree.h"

namespace tutti {

int RanksByPlace::local_rank(int rank) const {
  const auto& all = mates(rank);
  return int(std::find(all.begin(), all.end(), rank) - all.begin());
}

RanksByPlace ranks_by_place(const std::vector<std::string>& words) {
  RanksByPlace made;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const auto first = std::size_t(std::find(words.begin(), words.end(), words[rank]) - words.begin());
    if (first == rank) made.ranks_of.emplace_back();
    made.place_of.push_back(first == rank ? int(made.ranks_of.size()) - 1 : made.place_of[first]);
    made.ranks_of[std::size_t(made.place_of.back())].push_back(int(rank));
  }
  return made;
}

Result<CheckpointReader> read_scattered(const Group& group, std::string name, Manifest manifest,
                                        std::vector<FileHere> files, const std::vector<int>& servers,
                                        std::span<const StateBox> wanted) {
  std::vector<Fd> fetched(files.size());  // what is fetched of a file lies where it lies in it; all else is a hole
  Status room;
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (files[f].near) continue;
    fetched[f] = Fd(::memfd_create("tutti-fetched", MFD_CLOEXEC));
    if (!fetched[f] || ::ftruncate(fetched[f].get(), off_t(manifest.files[f].bytes)) != 0)
      room = system_error(errno, "cannot make room for what is fetched of " + name);
  }
  TUTTI_TRY(agree(group, room));
  const Fetching how{
      .server = [&](std::uint64_t f) { return servers[f]; },
      .read =
          [&](const FileRun& run, std::span<std::byte> into) {
            const FileHere& here = files[run.file];
            return read_all(here.near.get(), here.base + run.offset, into, name);
          },
      .take = [&](const FileRun& run, std::span<const std::byte> bytes) -> Status {
        const ssize_t kept = ::pwrite(fetched[run.file].get(), bytes.data(), bytes.size(), off_t(run.offset));
        return kept == ssize_t(bytes.size()) ? Status()
                                             : system_error(errno, "cannot keep what was fetched of " + name);
      }};
  TUTTI_TRY(fetch(group, runs_to_read(manifest, wanted, [&](std::uint64_t f) { return !files[f].near; }), how));
  std::vector<Fd> all;
  for (std::size_t f = 0; f < files.size(); ++f)
    all.push_back(files[f].near ? std::move(files[f].near) : std::move(fetched[f]));
  for (auto& [key, tensor] : manifest.tensors)
    for (StoredBox& box : tensor.boxes) box.offset += files[box.file].base;
  return CheckpointReader::of_files(std::move(name), std::move(manifest), std::move(all));
}

}  // namespace tutti
