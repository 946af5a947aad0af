// Every node says which shelves it has; that makes candidates: a step of one history, of which every part is somewhere.
// From the newest on: the nodes look at every byte of the parts that they have, the work dealt out among the ranks of a
// node, and say which are good. The first candidate of which every part has a good holder is it (scattered.h reads it).
#include "tutti/checkpoint/memory/restore.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>

#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/io/scattered.h"
#include "tutti/checkpoint/io/stored_bytes.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/json_objects.h"

namespace tutti {
namespace {

using nlohmann::json;

constexpr ObjectLimit kRestoreParts{.most = std::size_t(4) << 30};

// A shelf on the node of some keeper.
struct Holder {
  int keeper = 0;
  LabelledShelf labelled;
};
struct Candidate {
  std::int64_t step = 0;
  std::uint64_t history = 0;
  std::vector<std::vector<Holder>> holders;  // by part

  bool whole() const {
    return std::none_of(holders.begin(), holders.end(), [](const auto& of_part) { return of_part.empty(); });
  }
  std::string missing() const {
    std::vector<int> parts;
    for (std::size_t part = 0; part < holders.size(); ++part)
      if (holders[part].empty()) parts.push_back(int(part));
    return ranks_words(parts);
  }
};

json to_json(const LabelledShelf& one) {
  const ShelfLabel& l = one.label;
  return {one.shelf, l.step, l.history, l.part, l.parts, l.bytes, l.manifest_bytes};
}
LabelledShelf shelf_from(const json& from) {
  return {.shelf = from.at(0),
          .label = {.step = from.at(1),
                    .history = from.at(2),
                    .part = from.at(3),
                    .parts = from.at(4),
                    .bytes = from.at(5),
                    .manifest_bytes = from.at(6)}};
}

// A part as it lies on a shelf: one file that begins where the shelf does.
Result<Manifest> manifest_on(const Shelves& shelves, const LabelledShelf& labelled) {
  const std::string text = TUTTI_TRY(shelves.read_manifest(labelled));
  Manifest manifest = TUTTI_TRY(parse_manifest_part(text));
  const bool fits = manifest.files.size() == 1 && manifest.facts.step == labelled.label.step &&
                    manifest.files[0].bytes == Shelves::kDataBegin + labelled.label.bytes;
  if (!fits) return Error{.code = Code::kCorrupt, .detail = "its manifest is of another copy"};
  return manifest;
}

Status verify(const Shelves& shelves, const LabelledShelf& labelled) {
  Manifest manifest = TUTTI_TRY(manifest_on(shelves, labelled));
  for (auto& [key, tensor] : manifest.tensors)
    for (StoredBox& box : tensor.boxes) box.offset += Shelves::begin_of(labelled.shelf);
  HeldChunks chunks;
  for (const auto& [key, tensor] : manifest.tensors)
    for (const StoredBox& stored : tensor.boxes) {
      StoredBytes bytes(shelves.memory().fd(), "kept memory, counted from its beginning", stored,
                        stored.box.elements() * size_of(tensor.dtype), manifest.chunk_bytes,
                        to_string(key) + " " + box_text(stored.box), chunks);
      for (std::uint64_t chunk = 0; chunk < bytes.chunks(); ++chunk) TUTTI_TRY(bytes.check_chunk(chunk));
    }
  return {};
}

class Restoring {
 public:
  Restoring(const Group& group, const Shelves& shelves, const CopyNeighbours& neighbours,
            std::span<const StateBox> wanted)
      : group_(group),
        shelves_(shelves),
        neighbours_(neighbours),
        wanted_(wanted),
        my_keeper_(neighbours.keeper_of[std::size_t(group.rank())]) {}

  Result<std::optional<RestoredCopy>> run() {
    for (Candidate& candidate : candidates()) {
      if (candidate.whole()) keep_good_ones(candidate);
      if (candidate.whole()) return read(candidate);
      if (group_.rank() == 0)
        log::warn(fmt::format("skipped the copy in memory of step {}: the part of {} is missing or incomplete",
                              candidate.step, candidate.missing()));
    }
    return std::optional<RestoredCopy>();
  }

 private:
  // The newest first.
  std::vector<Candidate> candidates() const {
    json mine = json::array();
    if (neighbours_.leads(group_.rank()))
      for (const LabelledShelf& one : shelves_.whole()) mine.push_back(to_json(one));
    std::map<std::pair<std::int64_t, std::uint64_t>, Candidate> found;
    const auto all = all_gather_json(group_, mine, kRestoreParts);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      for (const json& from : all[rank]) {
        const LabelledShelf one = shelf_from(from);
        Candidate& candidate = found[{one.label.step, one.label.history}];
        candidate.step = one.label.step;
        candidate.history = one.label.history;
        candidate.holders.resize(std::max<std::size_t>(candidate.holders.size(), one.label.parts));
        candidate.holders[one.label.part].push_back({neighbours_.keeper_of[rank], one});
      }
    std::vector<Candidate> sorted;
    for (auto at = found.rbegin(); at != found.rend(); ++at) sorted.push_back(std::move(at->second));
    return sorted;
  }

  // Those with a byte that has changed go.
  void keep_good_ones(Candidate& candidate) const {
    json bad = json::array();  // [part, number among its holders, why]
    const auto mates = neighbours_.ranks_of[std::size_t(my_keeper_)].size();
    for (std::size_t part = 0; part < candidate.holders.size(); ++part)
      for (std::size_t h = 0; h < candidate.holders[part].size(); ++h) {
        const Holder& holder = candidate.holders[part][h];
        const bool for_me =
            holder.keeper == my_keeper_ && std::size_t(neighbours_.local_rank(group_.rank())) == part % mates;
        if (!for_me) continue;
        if (const Status good = verify(shelves_, holder.labelled); !good.ok())
          bad.push_back({part, h, host_name() + ": " + good.error().detail});
      }
    std::vector<std::pair<std::size_t, std::size_t>> gone;
    for (const json& of_rank : all_gather_json(group_, bad, kRestoreParts))
      for (const json& one : of_rank) {
        gone.emplace_back(one.at(0), one.at(1));
        if (group_.rank() == 0)
          log::warn(fmt::format("the copy in memory of step {}, of rank {}, on {}", candidate.step,
                                one.at(0).get<int>(), one.at(2).get<std::string>()));
      }
    std::sort(gone.rbegin(), gone.rend());
    for (const auto& [part, number] : gone)
      candidate.holders[part].erase(candidate.holders[part].begin() + std::ptrdiff_t(number));
  }

  // What this rank reads a part from: its own node, if that has it. The rank that serves it to others.
  const Holder& holder_for(const Candidate& candidate, std::size_t part, int keeper) const {
    for (const Holder& holder : candidate.holders[part])
      if (holder.keeper == keeper) return holder;
    return candidate.holders[part].front();
  }
  int server_of(const Candidate& candidate, std::size_t part) const {
    const auto& ranks = neighbours_.ranks_of[std::size_t(candidate.holders[part].front().keeper)];
    return ranks[part % ranks.size()];
  }

  // The manifests of all parts as one, which is whole. Equal on all ranks.
  Result<Manifest> manifest_of(const Candidate& candidate) const {
    json mine = json::object();  // part -> text
    Status read;
    for (std::size_t part = 0; part < candidate.holders.size(); ++part) {
      if (server_of(candidate, part) != group_.rank()) continue;
      auto text = shelves_.read_manifest(candidate.holders[part].front().labelled);
      if (text.ok()) {
        mine[std::to_string(part)] = *std::move(text);
      } else {
        read = text.status();
      }
    }
    TUTTI_TRY(agree(group_, read));
    std::map<int, std::string> texts;
    for (const json& of_rank : all_gather_json(group_, mine, kRestoreParts))
      for (const auto& [part, text] : of_rank.items()) texts[std::stoi(part)] = text.get<std::string>();
    Manifest whole;
    for (const auto& [part, text] : texts) {
      Manifest manifest = TUTTI_TRY(parse_manifest_part(text));
      if (part == 0) whole.facts = manifest.facts;
      merge(whole, std::move(manifest));
    }
    // All the rules of a manifest hold for it.
    return parse_manifest(TUTTI_TRY(compose_manifest(whole)));
  }

  Result<std::optional<RestoredCopy>> read(const Candidate& candidate) const {
    Manifest manifest = TUTTI_TRY(manifest_of(candidate));
    std::vector<FileHere> files;
    std::vector<int> servers;
    Status open;
    for (std::size_t part = 0; part < manifest.files.size(); ++part) {
      servers.push_back(server_of(candidate, part));
      const Holder& holder = holder_for(candidate, part, my_keeper_);
      files.emplace_back();
      if (holder.keeper != my_keeper_) continue;
      files.back() = {.near = Fd(::fcntl(shelves_.memory().fd(), F_DUPFD_CLOEXEC, 0)),
                      .base = Shelves::begin_of(holder.labelled.shelf)};
      if (!files.back().near) open = system_error(errno, "cannot open the kept memory once more");
    }
    TUTTI_TRY(agree(group_, open));
    auto reader = TUTTI_TRY(read_scattered(group_, fmt::format("the copy in memory of step {}", candidate.step),
                                           std::move(manifest), std::move(files), servers, wanted_));
    return std::optional(
        RestoredCopy{.reader = std::move(reader), .step = candidate.step, .history = candidate.history});
  }

  const Group& group_;
  const Shelves& shelves_;
  const CopyNeighbours& neighbours_;
  const std::span<const StateBox> wanted_;
  const int my_keeper_;
};

}  // namespace

Result<std::optional<RestoredCopy>> newest_copy(const Group& group, const Shelves& shelves,
                                                const CopyNeighbours& neighbours, std::span<const StateBox> wanted) {
  return Restoring(group, shelves, neighbours, wanted).run();
}

}  // namespace tutti
