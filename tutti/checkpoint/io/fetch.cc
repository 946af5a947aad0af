// In rounds, so that memory is bounded: every rank tells all what it wants next, reads what others want of it, and then
// all of it travels at once. The last round is that in which nobody wants anything.
#include "tutti/checkpoint/io/fetch.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tutti/checkpoint/io/shard_file.h"
#include "tutti/checkpoint/io/stored_bytes.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/objects.h"

namespace tutti {
namespace {

constexpr std::uint64_t kLongestRun = std::uint64_t(8) << 20;
constexpr std::uint64_t kMemory = std::uint64_t(256) << 20;

// Chunks of a stored box that are needed.
using Chunks = std::vector<bool>;

void mark(const StoredTensor& tensor, const StoredBox& stored, const TensorBox& box, std::uint64_t chunk_bytes,
          Chunks& chunks) {
  const std::uint64_t element = size_of(tensor.dtype);
  (void)for_each_run(stored.box, box, true, [&](std::uint64_t at, std::uint64_t, std::uint64_t count) {
    const std::uint64_t first = at * element / chunk_bytes, last = ((at + count) * element - 1) / chunk_bytes;
    std::fill(chunks.begin() + std::ptrdiff_t(first), chunks.begin() + std::ptrdiff_t(last + 1), true);
    return Status();
  });
}

void add_runs(const StoredBox& stored, std::uint64_t bytes, std::uint64_t chunk_bytes, const Chunks& chunks,
              std::vector<FileRun>& runs) {
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    if (!chunks[chunk]) continue;
    const std::uint64_t begin = chunk * chunk_bytes, end = std::min(bytes, begin + chunk_bytes);
    const bool follows = !runs.empty() && runs.back().file == stored.file &&
                         runs.back().offset + runs.back().bytes == stored.offset + begin &&
                         runs.back().bytes + (end - begin) <= kLongestRun;
    if (follows) {
      runs.back().bytes += end - begin;
    } else {
      runs.push_back({stored.file, stored.offset + begin, end - begin});
    }
  }
}

std::string as_text(std::span<const FileRun> runs) {
  return {reinterpret_cast<const char*>(runs.data()), runs.size_bytes()};
}
std::vector<FileRun> from_text(const std::string& text) {
  std::vector<FileRun> runs(text.size() / sizeof(FileRun));
  if (!runs.empty()) std::memcpy(runs.data(), text.data(), runs.size() * sizeof(FileRun));
  return runs;
}

struct Parcel {
  FileRun run;
  int peer;
  std::vector<std::uint8_t> bytes;
};

Status serve(const std::vector<std::vector<FileRun>>& all, int me, const Fetching& how, std::vector<Parcel>& out) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const FileRun& run : all[rank]) {
      if (how.server(run.file) != me) continue;
      out.push_back({run, int(rank), std::vector<std::uint8_t>(run.bytes)});
      TUTTI_TRY(how.read(run, std::as_writable_bytes(std::span(out.back().bytes))));
    }
  return {};
}

}  // namespace

std::vector<FileRun> runs_to_read(const Manifest& manifest, std::span<const StateBox> wanted,
                                  const std::function<bool(std::uint64_t file)>& far) {
  std::map<const StoredBox*, Chunks> needed;
  for (const StateBox& want : wanted) {
    const auto found = manifest.tensors.find(want.key);
    if (found == manifest.tensors.end()) continue;
    const bool as_given = found->second.shape == want.shape;
    const TensorBox box = as_given ? box_of(want) : TensorBox::whole(found->second.shape);
    for (const StoredBox& stored : found->second.boxes) {
      if (!far(stored.file) || stored.crc32c.empty()) continue;
      auto& chunks = needed.try_emplace(&stored, stored.crc32c.size()).first->second;
      mark(found->second, stored, box, manifest.chunk_bytes, chunks);
    }
  }
  std::vector<FileRun> runs;
  for (const auto& [key, tensor] : manifest.tensors)
    for (const StoredBox& stored : tensor.boxes)
      if (const auto at = needed.find(&stored); at != needed.end())
        add_runs(stored, stored.box.elements() * size_of(tensor.dtype), manifest.chunk_bytes, at->second, runs);
  std::stable_sort(runs.begin(), runs.end(), [](const FileRun& a, const FileRun& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  });
  return runs;
}

Status fetch(const Group& group, const std::vector<FileRun>& wanted, const Fetching& how) {
  const std::uint64_t at_once = std::max(kLongestRun, kMemory / std::uint64_t(group.size()));
  std::size_t done = 0;
  for (;;) {
    std::size_t end = done;
    for (std::uint64_t bytes = 0; end < wanted.size() && (bytes += wanted[end].bytes) <= at_once;) ++end;
    const auto mine = std::span(wanted).subspan(done, end - done);
    std::vector<std::vector<FileRun>> all;
    bool any = false;
    for (const std::string& text : all_gather_bytes(group, as_text(mine))) {
      all.push_back(from_text(text));
      any = any || !all.back().empty();
    }
    if (!any) return {};

    std::vector<Parcel> out, in;
    TUTTI_TRY(agree(group, serve(all, group.rank(), how, out)));
    std::vector<Request> batch;
    for (const FileRun& run : mine) in.push_back({run, how.server(run.file), std::vector<std::uint8_t>(run.bytes)});
    for (Parcel& parcel : out)
      batch.push_back(requests::send(std::span<const std::uint8_t>(parcel.bytes), parcel.peer));
    for (Parcel& parcel : in) batch.push_back(requests::recv(std::span(parcel.bytes), parcel.peer));
    batch_isend_irecv(group, batch).get();
    Status taken;
    for (const Parcel& parcel : in)
      if (taken.ok()) taken = how.take(parcel.run, std::as_bytes(std::span(parcel.bytes)));
    TUTTI_TRY(agree(group, taken));
    done = end;
  }
}

}  // namespace tutti
