// Expressions instead of values. A stretch of memory whose bytes all have the same history is an ElementRun: "the sum
// of these ranks' inputs, added in this order, from this position on". Two 64-bit numbers represent the history:
//   set    the sum of one random number per added rank. It equals the sum over all ranks only if each rank was added
//          exactly once (with an error probability of 2^-64).
//   order  a hash of the tree of additions that distinguishes left and right operands. It is equal on two ranks only if
//          both added in the same order, which gives the same bits.
// Bytes that no step wrote, and sums that contain such bytes or mix positions, get a set that no sum of ranks has.
//
// The runs that one step wrote form one block of the rank's memory. So a step costs one search among the blocks and a
// little per run, whatever the number of bytes. (At the end each of 4,096 ranks may hold 4,096 runs, one for each rank
// that added up a part.)
#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/comm/plans/simulator/contents.h"
#include "tutti/comm/plans/simulator/pool.h"

namespace tutti::comm {
namespace {

std::uint64_t mixed_position(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct ElementRun {
  std::uint64_t bytes;
  std::uint64_t set, order;
  std::uint64_t position;  // of the first byte, in the vector
};
using ElementRuns = std::pmr::vector<ElementRun>;  // all from one Pool, so that they can be moved instead of copied

constexpr std::uint64_t kUnwritten = 0x6e6f7468696e6721u, kMixedUp = 0x6d69786564757021u;

ElementRun of_rank(int rank, std::uint64_t bytes, std::uint64_t position) {
  const std::uint64_t number = mixed_position(std::uint64_t(rank) + 0x9e3779b97f4a7c15u);
  return {bytes, number, mixed_position(number), position};
}

ElementRun sum(std::uint64_t bytes, const ElementRun& left, const ElementRun& right) {
  if (left.position != right.position || left.set == kUnwritten || right.set == kUnwritten)
    return {bytes, kMixedUp, mixed_position(left.order + right.order), left.position};
  return {bytes, left.set + right.set, mixed_position(left.order * 3 + mixed_position(right.order)), left.position};
}

void append(ElementRuns& runs, const ElementRun& run) {
  if (!runs.empty()) {
    ElementRun& last = runs.back();
    if (last.set == run.set && last.order == run.order && last.position + last.bytes == run.position) {
      last.bytes += run.bytes;
      return;
    }
  }
  runs.push_back(run);
}

// Bytes `from` to `from + bytes` of a run.
ElementRun part(const ElementRun& run, std::uint64_t from, std::uint64_t bytes) {
  return {bytes, run.set, run.order, run.position + from};
}

// A rank's memory: sorted block addresses, and the runs of each block. They are two arrays so that a search touches
// little memory. Thousands of ranks take turns, and none of them finds its memory in the cache.
class Memory {
 public:
  Memory(std::uint64_t bytes, Pool& pool) : begins_(1, 0, &pool), blocks_(1, &pool), bytes_(bytes) {
    blocks_[0].push_back({bytes, kUnwritten, 0, 0});
  }

  void read(std::uint64_t begin, std::uint64_t bytes, ElementRuns& into) const {
    TUTTI_INVARIANT(begin + bytes <= bytes_, "a step reads up to byte ", begin + bytes, " of ", bytes_);
    into.clear();
    if (bytes == 0) return;
    for (std::size_t block = at(begin); block < begins_.size() && begins_[block] < begin + bytes; ++block) {
      std::uint64_t address = begins_[block];
      for (const ElementRun& run : blocks_[block]) {
        const std::uint64_t end = address + run.bytes;
        if (address >= begin + bytes) break;
        if (end > begin) {
          const std::uint64_t from = std::max(address, begin), to = std::min(end, begin + bytes);
          append(into, part(run, from - address, to - from));
        }
        address = end;
      }
    }
  }

  void write(std::uint64_t begin, ElementRuns runs) {
    std::uint64_t end = begin;
    for (const ElementRun& run : runs) end += run.bytes;
    TUTTI_INVARIANT(end <= bytes_, "a step writes up to byte ", end, " of ", bytes_);
    if (begin == end) return;
    const std::size_t first = split(begin), behind = end < bytes_ ? split(end) : begins_.size();
    blocks_[first] = std::move(runs);
    begins_.erase(begins_.begin() + std::ptrdiff_t(first) + 1, begins_.begin() + std::ptrdiff_t(behind));
    blocks_.erase(blocks_.begin() + std::ptrdiff_t(first) + 1, blocks_.begin() + std::ptrdiff_t(behind));
  }

 private:
  // The block that contains this address.
  std::size_t at(std::uint64_t address) const {
    return std::size_t(std::upper_bound(begins_.begin(), begins_.end(), address) - begins_.begin()) - 1;
  }
  // The block that begins at this address. Splits the block that contains the address if necessary.
  std::size_t split(std::uint64_t address) {
    const std::size_t block = at(address);
    if (begins_[block] == address) return block;
    ElementRuns& runs = blocks_[block];
    ElementRuns behind(runs.get_allocator());
    std::uint64_t run_begins = begins_[block];
    auto run = runs.begin();
    for (; run_begins + run->bytes <= address; ++run) run_begins += run->bytes;
    const std::uint64_t stays = address - run_begins;  // the part of the split run that stays in the first block
    behind.reserve(std::size_t(runs.end() - run));
    behind.push_back(part(*run, stays, run->bytes - stays));
    behind.insert(behind.end(), run + 1, runs.end());
    run->bytes = stays;
    runs.erase(stays > 0 ? run + 1 : run, runs.end());
    begins_.insert(begins_.begin() + std::ptrdiff_t(block) + 1, address);
    blocks_.insert(blocks_.begin() + std::ptrdiff_t(block) + 1, std::move(behind));
    return block + 1;
  }

  std::pmr::vector<std::uint64_t> begins_;
  std::pmr::vector<ElementRuns> blocks_;
  std::uint64_t bytes_;
};

// A FIFO of sent runs per stream. All streams share one pool of packets.
class ElementStreams {
 public:
  explicit ElementStreams(Pool& pool) : pool_(pool) {}

  void push(std::uint32_t stream, ElementRuns runs) {
    if (runs.empty()) return;
    if (stream >= ends_.size()) ends_.resize(std::max<std::size_t>(stream + 1, ends_.size() * 2));
    std::uint32_t packet = free_;
    if (packet == kNone) {
      packet = std::uint32_t(packets_.size());
      packets_.push_back({ElementRuns(&pool_)});
    } else {
      free_ = packets_[packet].next;
    }
    std::uint64_t bytes = 0;
    for (const ElementRun& run : runs) bytes += run.bytes;
    packets_[packet] = {std::move(runs), bytes, 0, kNone};
    Ends& ends = ends_[stream];
    (ends.first == kNone ? ends.first : packets_[ends.last].next) = packet;
    ends.last = packet;
  }

  ElementRuns pop(std::uint32_t stream, std::uint64_t bytes) {
    ElementRuns runs(&pool_);
    while (bytes > 0) {
      Ends& ends = ends_[stream];
      const std::uint32_t index = ends.first;
      TUTTI_INVARIANT(index != kNone, "a step takes bytes that were not sent");
      Packet& packet = packets_[index];
      if (runs.empty() && packet.taken == 0 && packet.bytes == bytes) {  // exactly the rest of a message
        runs = std::move(packet.runs);
        bytes = 0;
        remove_first(ends);
        break;
      }
      for (; packet.taken < packet.runs.size() && bytes > 0;) {
        ElementRun& run = packet.runs[packet.taken];
        const std::uint64_t some = std::min(run.bytes, bytes);
        append(runs, part(run, 0, some));
        bytes -= some;
        packet.bytes -= some;
        if (some == run.bytes)
          ++packet.taken;
        else
          run = part(run, some, run.bytes - some);
      }
      if (packet.taken < packet.runs.size()) break;
      remove_first(ends);
    }
    return runs;
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t(0);
  struct Packet {
    ElementRuns runs;
    std::uint64_t bytes = 0;  // not yet taken
    std::size_t taken = 0;    // runs
    std::uint32_t next = kNone;
  };
  struct Ends {
    std::uint32_t first = kNone, last = kNone;
  };

  void remove_first(Ends& ends) {
    const std::uint32_t index = ends.first;
    Packet& packet = packets_[index];
    ends.first = packet.next;
    packet = {ElementRuns(&pool_), 0, 0, free_};
    free_ = index;
  }

  Pool& pool_;
  std::vector<Ends> ends_;
  std::vector<Packet> packets_;
  std::uint32_t free_ = kNone;
};

class Symbolic final : public Contents {
 public:
  Symbolic(int ranks, Pool& pool) : pool_(pool), streams_(pool), first_(&pool) {
    for (int rank = 0; rank < ranks; ++rank) before_.push_back(before_.back() + of_rank(rank, 0, 0).set);
  }

  void open(const Goal& goal, std::size_t scratch_bytes) override {
    const Placement& place = places_.emplace_back(goal, scratch_bytes);
    Memory& memory = memories_.emplace_back(place.bytes, pool_);
    for (const Goal::Term& piece : goal.before)
      memory.write(place.at(piece.range),
                   ElementRuns({of_rank(piece.source, piece.range.bytes, piece.position)}, &pool_));
  }

  void send(int rank, std::uint32_t stream, const Range& from) override { streams_.push(stream, read(rank, from)); }
  void recv(int rank, std::uint32_t stream, const Range& into) override {
    write(rank, into, streams_.pop(stream, into.bytes));
  }
  void recv_reduce(int rank, std::uint32_t stream, const Range& from, const Range& into) override {
    write(rank, into, sums(read(rank, from), streams_.pop(stream, into.bytes)));
  }
  void copy(int rank, const Range& from, const Range& into) override { write(rank, into, read(rank, from)); }
  void reduce(int rank, const Range& from, const Range& into) override {
    write(rank, into, sums(read(rank, into), read(rank, from)));
  }

  std::optional<std::string> check(int rank, const Goal& goal) override {
    for (const Goal::Term& piece : goal.after) {
      std::uint64_t done = 0;
      for (const ElementRun& run : read(rank, piece.range)) {
        if (auto wrong = check(run, piece, piece.position + done))
          return std::string(piece.range.area == Area::kIn ? "in" : "out") + " byte " +
                 std::to_string(piece.range.offset + done) + ": " + *wrong;
        done += run.bytes;
      }
    }
    return {};
  }

  bool same_bits(int rank, const Goal& goal) override {
    const Range out{Area::kOut, 0, goal.out_bytes};
    if (rank == 0) first_ = read(0, out);
    bool same = true;
    zip(first_, read(rank, out),
        [&](std::uint64_t, const ElementRun& a, const ElementRun& b) { same &= a.order == b.order; });
    return same;
  }

 private:
  ElementRuns read(int rank, const Range& range) {
    ElementRuns runs(&pool_);
    memories_[rank].read(places_[rank].at(range), range.bytes, runs);
    return runs;
  }
  void write(int rank, const Range& range, ElementRuns runs) {
    runs.shrink_to_fit();
    memories_[rank].write(places_[rank].at(range), std::move(runs));
  }

  // Calls `each` for every stretch in which neither side changes.
  template <class Each>
  static void zip(const ElementRuns& left, const ElementRuns& right, const Each& each) {
    std::uint64_t of_left = 0, of_right = 0;  // bytes of the current runs that are done
    for (std::size_t a = 0, b = 0; a < left.size() && b < right.size();) {
      const std::uint64_t bytes = std::min(left[a].bytes - of_left, right[b].bytes - of_right);
      each(bytes, part(left[a], of_left, bytes), part(right[b], of_right, bytes));
      of_left += bytes;
      of_right += bytes;
      if (of_left == left[a].bytes) ++a, of_left = 0;
      if (of_right == right[b].bytes) ++b, of_right = 0;
    }
  }
  static ElementRuns sums(const ElementRuns& left, const ElementRuns& right) {
    ElementRuns result(left.get_allocator());
    zip(left, right,
        [&](std::uint64_t bytes, const ElementRun& a, const ElementRun& b) { append(result, sum(bytes, a, b)); });
    return result;
  }

  std::optional<std::string> check(const ElementRun& run, const Goal::Term& piece, std::uint64_t position) const {
    const std::uint64_t wanted = before_[std::size_t(piece.source + piece.ranks)] - before_[std::size_t(piece.source)];
    if (run.set == kUnwritten) return "was never written";
    if (run.set == kMixedUp) return "a sum of bytes that do not belong together";
    if (run.set != wanted)
      return piece.ranks == 1 ? "not what rank " + std::to_string(piece.source) + " gave"
                              : "not every rank was added once";
    if (run.position != position)
      return "holds byte " + std::to_string(run.position) + " of the vector instead of " + std::to_string(position);
    return {};
  }

  Pool& pool_;
  std::vector<std::uint64_t> before_{0};  // by rank: the sum of the sets of all lower ranks
  std::vector<Placement> places_;
  std::vector<Memory> memories_;
  ElementStreams streams_;
  ElementRuns first_;  // the final output of rank 0
};

}  // namespace

std::unique_ptr<Contents> make_symbolic(int ranks, Pool& pool) { return std::make_unique<Symbolic>(ranks, pool); }

}  // namespace tutti::comm
