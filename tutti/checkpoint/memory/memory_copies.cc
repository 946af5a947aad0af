// What training waits for is memcpy() into pages that are there. All else is the thread's: digests, the label that
// makes the copy count, and the way to the next node. A copy is begun only when the one before has ended on every rank,
// which the all_reduce of the plan tells: so of the two shelves of a pair one is whole at any moment, and of the same
// step on all ranks.
//
// After a restart the shelf that the run went on from is the last to be overwritten, and what other worlds than this
// one have left is given back when there is a newer copy.
#include "tutti/checkpoint/memory/memory_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "tutti/base/clock.h"
#include "tutti/base/crc32c.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/shard_file.h"
#include "tutti/checkpoint/io/snapshot.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/json_objects.h"

namespace tutti {
namespace {

constexpr std::uint64_t kPiece = std::uint64_t(64) << 20;  // of a copy on its way, for each deadline

Result<Shelves> open_shelves() {
  auto memory = KeptMemory::open_given();
  if (memory.ok()) return Shelves(*std::move(memory));
  if (memory.error().code != Code::kNotFound) return memory.error();
  return Error{
      .code = Code::kUsage,
      .detail = fmt::format("copies of the state in memory are kept by the agent of tutti run, and this rank on "
                            "host {} has none",
                            host_name()),
      .hint =
          "start the job with `tutti run --max-restarts N`, without a limit of ulimit -f, or leave out "
          "--memory-copy-interval"};
}

// Equal on all ranks, or thrown.
Shelves shelves_for(const Group& group) {
  auto shelves = open_shelves();
  agree(group, shelves.status()).or_throw();
  return *std::move(shelves);
}

Group group_for_carrying(const Group& group) {
  return group.size() > 1 ? group.split(0, group.rank(), "memory copies").or_throw() : group;
}

CopyNeighbours meet_neighbours(const Group& group, const KeptMemory& memory) {
  std::vector<RankPlace> places;
  for (const auto& place : all_gather_json(group, {memory.keeper(), boot_id()}))
    places.push_back({.keeper = place.at(0), .machine = place.at(1)});
  CopyNeighbours made = neighbours_of(places);
  for (const auto& ranks : made.ranks_of)
    if (ranks.size() > std::size_t(Shelves::kRanks))
      throw Exception(Error{.code = Code::kUnsupported,
                            .detail = fmt::format("{} ranks are on one node; copies in memory are kept for {}",
                                                  ranks.size(), Shelves::kRanks)});
  for (int rank = 0; rank < group.size(); ++rank)
    if (const auto guests = made.guests_of(rank); guests.size() > std::size_t(Shelves::kGuests))
      throw Exception(
          Error{.code = Code::kUnsupported,
                .detail = fmt::format("rank {} would keep copies of {} ranks of another node; {} are the most", rank,
                                      guests.size(), Shelves::kGuests),
                .hint = "start as many ranks on each node"});
  return made;
}

std::uint64_t new_history(const Group& group) {
  std::random_device random;
  std::uint64_t word = std::uint64_t(random()) << 32 | random();
  auto words = std::span(reinterpret_cast<std::int64_t*>(&word), 1);
  broadcast(group, words);
  return word;
}

// Large elements first, so that each tensor is aligned.
std::vector<std::size_t> in_order(std::span<const StateBox> boxes, std::vector<std::size_t> chosen) {
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](std::size_t a, std::size_t b) { return size_of(boxes[a].dtype) > size_of(boxes[b].dtype); });
  return chosen;
}

std::span<const std::uint8_t> octets(const void* data, std::size_t size) {
  return {static_cast<const std::uint8_t*>(data), size};
}
std::span<std::uint8_t> octets(void* data, std::size_t size) { return {static_cast<std::uint8_t*>(data), size}; }

}  // namespace

std::string to_json(const MemoryCopiesStats& stats) {
  return nlohmann::ordered_json{{"taken", stats.taken},
                                {"failed", stats.failed},
                                {"newest", stats.newest},
                                {"waited_seconds", stats.waited_seconds},
                                {"copy_seconds", stats.copy_seconds},
                                {"copied_bytes", stats.copied_bytes},
                                {"sent_bytes", stats.sent_bytes}}
      .dump();
}

MemoryCopies::MemoryCopies(const Group& group, bool restarted)
    : group_(group),
      carrying_(group_for_carrying(group)),
      shelves_(shelves_for(group)),
      neighbours_(meet_neighbours(group, shelves_.memory())),
      history_(new_history(group)),
      thread_([this](Job& job) { finish(job); }) {
  pairs_.push_back({.rank = group_.rank()});
  for (const int guest : neighbours_.guests_of(group_.rank()))
    pairs_.push_back({.rank = guest, .number = int(pairs_.size())});
  Status cleared;
  if (!restarted && neighbours_.leads(group_.rank())) cleared = shelves_.clear_all_but({});
  agree(group_, cleared).or_throw();
}

MemoryCopies::~MemoryCopies() = default;

bool MemoryCopies::has_neighbour() const { return neighbours_.ranks_of.size() > 1; }

int MemoryCopies::shelf_of(const Pair& pair) const {
  return Shelves::number(neighbours_.local_rank(group_.rank()), pair.number, pair.next);
}

Result<std::optional<CheckpointReader>> MemoryCopies::newest(std::span<const StateBox> wanted) {
  try {
    auto found = TUTTI_TRY(newest_copy(group_, shelves_, neighbours_, wanted));
    if (!found) return std::optional<CheckpointReader>();
    restored_ = {found->step, found->history};
    return std::optional(std::move(found->reader));
  } catch (const Exception& error) {
    return error.error();
  }
}

Status MemoryCopies::prepare(std::span<const StateBox> boxes) {
  try {
    wait();
    if (TUTTI_TRY(planned_.update(group_, boxes, {}, {}))) TUTTI_TRY(make_room(boxes));
    return {};
  } catch (const Exception& error) {
    return error.error();
  }
}

// For what this rank copies, and for what its guests will send. Equal on all ranks.
Status MemoryCopies::make_room(std::span<const StateBox> boxes) {
  std::int64_t mine = 0;
  for (const std::size_t number : planned_.part().boxes) mine += std::int64_t(bytes_of(boxes[number]));
  std::vector<std::int64_t> all(std::size_t(group_.size()));
  all_gather(group_, std::span<const std::int64_t>(&mine, 1), std::span(all));
  Status there;
  for (Pair& pair : pairs_)
    if (there.ok()) there = fit(pair, std::uint64_t(all[std::size_t(pair.rank)]));
  return agree(group_, there);
}

Status MemoryCopies::fit(Pair& pair, std::uint64_t bytes) {
  pair.bytes = bytes;
  const int first = Shelves::number(neighbours_.local_rank(group_.rank()), pair.number, 0);
  for (int which = 0; which < 2; ++which) {
    pair.memory[which] = Mapping();  // the old one goes first
    pair.memory[which] = TUTTI_TRY(shelves_.map(first + which, bytes));
  }
  if (restored_)
    for (const LabelledShelf& one : shelves_.whole())
      if (std::pair(one.label.step, one.label.history) == *restored_ && one.shelf - first == pair.next)
        pair.next = 1 - pair.next;
  return {};
}

Status MemoryCopies::take(std::span<const StateBox> boxes, const CheckpointFacts& facts) {
  const auto asked = now();
  wait();
  const auto begun = now();
  try {
    if (facts.step < 0) return invalid_argument(fmt::format("checkpoint: the step {} is negative", facts.step));
    if (TUTTI_TRY(planned_.update(group_, boxes, facts, {}))) TUTTI_TRY(make_room(boxes));
    clear_old_ones();
  } catch (const Exception& error) {
    return error.error();
  }
  const auto planned = now();
  auto manifest = copy(boxes, facts);
  const auto copied = now();
  {
    const MutexLock lock(mutex_);
    stats_.waited_seconds += to_seconds(begun - asked);
    stats_.copy_seconds += to_seconds(copied - planned);
    stats_.copied_bytes += pairs_[0].bytes;
  }
  Job job{.facts = facts, .copied = manifest.status()};
  if (manifest.ok()) job.manifest = *std::move(manifest);
  thread_.begin(std::move(job));
  return {};
}

// Into the next shelf; where everything lies there.
Result<Manifest> MemoryCopies::copy(std::span<const StateBox> boxes, const CheckpointFacts& facts) {
  const Pair& own = pairs_[0];
  TUTTI_TRY(shelves_.begin(shelf_of(own)));
  Manifest manifest{.facts = facts};
  manifest.files.push_back({.name = fmt::format("part-{:05}-of-{:05}", group_.rank() + 1, group_.size()),
                            .bytes = Shelves::kDataBegin + own.bytes,
                            .header_bytes = Shelves::kDataBegin});
  std::uint64_t at = 0;
  for (const std::size_t number : in_order(boxes, planned_.part().boxes)) {
    const StateBox& saved = boxes[number];
    TUTTI_TRY(copy_box(saved, own.memory[own.next].data() + at));
    StoredTensor& tensor = manifest.tensors[saved.key];
    tensor.dtype = saved.dtype;
    tensor.shape = saved.shape;
    tensor.boxes.push_back({.box = box_of(saved), .offset = Shelves::kDataBegin + at});
    at += bytes_of(saved);
  }
  return manifest;
}

// Once there is a copy of this world.
void MemoryCopies::clear_old_ones() {
  if (cleared_ || stats().newest < 0) return;
  cleared_ = true;
  if (!neighbours_.leads(group_.rank())) return;
  std::vector<int> kept;
  const auto& mates = neighbours_.ranks_of[std::size_t(neighbours_.keeper_of[std::size_t(group_.rank())])];
  for (std::size_t local = 0; local < mates.size(); ++local)
    for (int pair = 0; pair <= int(neighbours_.guests_of(mates[local]).size()); ++pair)
      for (const int which : {0, 1}) kept.push_back(Shelves::number(int(local), pair, which));
  if (const Status done = shelves_.clear_all_but(kept); !done.ok()) log::warn(to_string(done.error()));
}

MemoryCopiesStats MemoryCopies::stats() {
  const MutexLock lock(mutex_);
  return stats_;
}

void MemoryCopies::finish(Job& job) {
  Status ended;
  try {
    ended = complete(job);
  } catch (const Exception& error) {
    ended = error.error();
  }
  note(job.facts.step, ended);
}

// Equal on all ranks.
Status MemoryCopies::complete(Job& job) {
  std::string text;
  TUTTI_TRY(agree(carrying_, job.copied.ok() ? finish_own(job, text) : job.copied));
  if (has_neighbour()) TUTTI_TRY(agree(carrying_, hand_on(job, text)));
  for (Pair& pair : pairs_) pair.next = 1 - pair.next;
  return {};
}

Status MemoryCopies::finish_own(Job& job, std::string& text) {
  const Pair& own = pairs_[0];
  for (auto& [key, tensor] : job.manifest.tensors)
    for (StoredBox& stored : tensor.boxes) {
      const std::uint64_t bytes = stored.box.elements() * size_of(tensor.dtype);
      const std::byte* const data = own.memory[own.next].data() + (stored.offset - Shelves::kDataBegin);
      for (std::uint64_t at = 0; at < bytes; at += job.manifest.chunk_bytes)
        stored.crc32c.push_back(crc32c({data + at, std::min(job.manifest.chunk_bytes, bytes - at)}));
    }
  text = TUTTI_TRY(compose_manifest(job.manifest));
  TUTTI_TRY(shelves_.write_manifest(shelf_of(own), own.bytes, text));
  return shelves_.finish(shelf_of(own), {.step = job.facts.step,
                                         .history = history_,
                                         .part = std::uint32_t(group_.rank()),
                                         .parts = std::uint32_t(group_.size()),
                                         .bytes = own.bytes,
                                         .manifest_bytes = text.size()});
}

// To the next node, and from those for whom this rank keeps copies: first how long the manifests are, then the bytes
// from memory to memory, then the manifests.
Status MemoryCopies::hand_on(const Job& job, const std::string& text) {
  const int receiver = neighbours_.receiver_of[std::size_t(group_.rank())];
  const auto guests = std::span(pairs_).subspan(1);
  const auto exchange = [&](std::span<const std::uint8_t> mine,
                            const std::function<std::span<std::uint8_t>(std::size_t)>& theirs) {
    std::vector<Request> batch;
    if (!mine.empty()) batch.push_back(requests::send(mine, receiver));
    for (std::size_t g = 0; g < guests.size(); ++g)
      if (const auto into = theirs(g); !into.empty()) batch.push_back(requests::recv(into, guests[g].rank));
    batch_isend_irecv(carrying_, batch).get();
  };
  Status good;
  for (const Pair& guest : guests)
    if (good.ok()) good = shelves_.begin(shelf_of(guest));
  const std::uint64_t size = text.size();
  std::vector<std::uint64_t> sizes(guests.size());
  exchange(octets(&size, sizeof size), [&](std::size_t g) { return octets(&sizes[g], sizeof size); });

  std::uint64_t most = pairs_[0].bytes;
  for (const Pair& guest : guests) most = std::max(most, guest.bytes);
  const auto piece_of = [](const Pair& pair, std::uint64_t at) {
    return octets(pair.memory[pair.next].data() + at, std::min(kPiece, pair.bytes - std::min(at, pair.bytes)));
  };
  for (std::uint64_t at = 0; at < most; at += kPiece)
    exchange(piece_of(pairs_[0], at), [&](std::size_t g) { return piece_of(guests[g], at); });

  std::vector<std::string> texts;
  for (const std::uint64_t theirs : sizes) texts.emplace_back(theirs, '\0');
  exchange(octets(text.data(), text.size()), [&](std::size_t g) { return octets(texts[g].data(), texts[g].size()); });
  for (std::size_t g = 0; g < guests.size() && good.ok(); ++g) {
    good = shelves_.write_manifest(shelf_of(guests[g]), guests[g].bytes, texts[g]);
    if (good.ok())
      good = shelves_.finish(shelf_of(guests[g]), {.step = job.facts.step,
                                                   .history = history_,
                                                   .part = std::uint32_t(guests[g].rank),
                                                   .parts = std::uint32_t(group_.size()),
                                                   .bytes = guests[g].bytes,
                                                   .manifest_bytes = sizes[g]});
  }
  const MutexLock lock(mutex_);
  stats_.sent_bytes += pairs_[0].bytes + text.size();
  return good;
}

void MemoryCopies::note(std::int64_t step, const Status& ended) {
  const MutexLock lock(mutex_);
  if (ended.ok()) {
    ++stats_.taken;
    stats_.newest = step;
    return;
  }
  ++stats_.failed;
  if (group_.rank() == 0)
    log::error(fmt::format("the copy in memory of step {} was not taken; training continues: {}", step,
                           to_string(ended.error())));
}

}  // namespace tutti
