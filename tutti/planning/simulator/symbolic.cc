// Expressions instead of values. A stretch of memory whose bytes all have the same history is a Run: "the sum of these
// ranks' inputs, added in this order, from this position on". The history is kept as two numbers of 64 bits:
//   set    the sum of a random number for each rank that was added: equal to that of all ranks only if each was added
//          once, none twice, none forgotten (but for a chance of 2^-64);
//   order  a hash of the tree of additions, left and right operand apart: equal on two ranks only if both added in the
//          same order, which gives the same bits.
// Bytes that nobody wrote, and sums of bytes that do not belong together, get a set that no sum of ranks has.
//
// A rank's memory is a map from the first address of a run to its expression; a step costs a logarithm of the number of
// runs, whatever the number of bytes. Streams are lists of runs in one pool.
#include <algorithm>
#include <map>

#include "tutti/base/error.h"
#include "tutti/planning/simulator/contents.h"

namespace tutti {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct Expression {
  std::uint64_t set = 0, order = 0;
  std::uint64_t shift = 0;  // position in the vector minus address, so that neighbours of one history are equal
  bool operator==(const Expression&) const = default;
};

constexpr std::uint64_t kUnwritten = 0x6e6f7468696e6721u, kMixedUp = 0x6d69786564757021u;

Expression of_rank(int rank, std::uint64_t shift) {
  const std::uint64_t number = mix(std::uint64_t(rank) + 0x9e3779b97f4a7c15u);
  return {number, mix(number), shift};
}

struct Run {
  std::uint64_t bytes;
  Expression value;  // shift counts from the address 0 of where the run is, or is to be, put
};

Expression sum(const Expression& left, const Expression& right) {
  if (left.shift != right.shift || left.set == kUnwritten || right.set == kUnwritten)
    return {kMixedUp, mix(left.order + right.order), left.shift};
  return {left.set + right.set, mix(left.order * 3 + mix(right.order)), left.shift};
}

class Memory {
 public:
  explicit Memory(std::uint64_t bytes) : runs_{{0, Expression{.set = kUnwritten}}}, bytes_(bytes) {}

  // The runs of a range, their shifts relative to its beginning.
  void read(std::uint64_t begin, std::uint64_t bytes, std::vector<Run>& into) const {
    TUTTI_INVARIANT(begin + bytes <= bytes_, "a step reads up to byte ", begin + bytes, " of ", bytes_);
    into.clear();
    if (bytes == 0) return;
    auto at = std::prev(runs_.upper_bound(begin));
    for (std::uint64_t done = begin; done < begin + bytes;) {
      const auto next = std::next(at);
      const std::uint64_t end = next == runs_.end() ? begin + bytes : std::min(next->first, begin + bytes);
      into.push_back({end - done, at->second});
      into.back().value.shift += begin;
      done = end;
      at = next;
    }
  }

  void write(std::uint64_t begin, const std::vector<Run>& runs) {
    std::uint64_t end = begin;
    for (const Run& run : runs) end += run.bytes;
    TUTTI_INVARIANT(end <= bytes_, "a step writes up to byte ", end, " of ", bytes_);
    if (begin == end) return;
    auto at = split(begin);
    if (const auto next = std::next(at); runs.size() == 1 && next != runs_.end() && next->first == end) {
      at->second = placed(runs[0], begin);
      return;
    }
    auto behind = runs_.erase(at, split(end));
    std::uint64_t address = begin;
    for (const Run& run : runs) {
      const Expression value = placed(run, begin);
      if (behind == runs_.begin() || std::prev(behind)->second != value) runs_.emplace_hint(behind, address, value);
      address += run.bytes;
    }
  }

 private:
  static Expression placed(const Run& run, std::uint64_t begin) {
    Expression value = run.value;
    value.shift -= begin;
    return value;
  }
  std::map<std::uint64_t, Expression>::iterator split(std::uint64_t address) {
    const auto at = runs_.lower_bound(address);
    if (at != runs_.end() && at->first == address) return at;
    return runs_.emplace_hint(at, address, std::prev(at)->second);
  }

  std::map<std::uint64_t, Expression> runs_;  // each up to the next one
  std::uint64_t bytes_;
};

// First in, first out, all in one pool.
class Streams {
 public:
  void push(std::uint32_t stream, const std::vector<Run>& runs) {
    if (stream >= ends_.size()) ends_.resize(std::max<std::size_t>(stream + 1, ends_.size() * 2));
    for (const Run& run : runs) {
      if (run.bytes == 0) continue;
      std::uint32_t node = free_;
      if (node == kNone) {
        node = std::uint32_t(nodes_.size());
        nodes_.emplace_back();
      } else {
        free_ = nodes_[node].next;
      }
      nodes_[node] = {run, kNone};
      Ends& ends = ends_[stream];
      (ends.first == kNone ? ends.first : nodes_[ends.last].next) = node;
      ends.last = node;
    }
  }

  // The next `bytes`, their shifts made relative to the beginning of all of them.
  void pop(std::uint32_t stream, std::uint64_t bytes, std::vector<Run>& into) {
    into.clear();
    for (std::uint64_t done = 0; done < bytes;) {
      Ends& ends = ends_[stream];
      const std::uint32_t index = ends.first;
      TUTTI_INVARIANT(index != kNone, "a step takes bytes that were not sent");
      Node& node = nodes_[index];
      const std::uint64_t some = std::min(node.run.bytes, bytes - done);
      into.push_back({some, node.run.value});
      into.back().value.shift -= done;
      done += some;
      node.run.bytes -= some;
      node.run.value.shift += some;
      if (node.run.bytes > 0) continue;
      ends.first = node.next;
      node.next = free_;
      free_ = index;
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t(0);
  struct Node {
    Run run;
    std::uint32_t next;
  };
  struct Ends {
    std::uint32_t first = kNone, last = kNone;
  };
  std::vector<Ends> ends_;
  std::vector<Node> nodes_;
  std::uint32_t free_ = kNone;
};

class Symbolic final : public Contents {
 public:
  explicit Symbolic(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) everybody_ += of_rank(rank, 0).set;
  }

  void open(const Goal& goal, std::size_t scratch_bytes) override {
    const Placement& place = places_.emplace_back(goal, scratch_bytes);
    Memory& memory = memories_.emplace_back(place.bytes);
    for (const Goal::Piece& piece : goal.before)
      memory.write(place.at(piece.range), {{piece.range.bytes, of_rank(piece.source, piece.position)}});
  }

  // In a stream the shift of a run is the position of its first byte.
  void send(int rank, std::uint32_t stream, const Range& from) override {
    memories_[rank].read(places_[rank].at(from), from.bytes, first_);
    std::uint64_t before = 0;
    for (Run& run : first_) {
      run.value.shift += before;
      before += run.bytes;
    }
    streams_.push(stream, first_);
  }
  void recv(int rank, std::uint32_t stream, const Range& into) override {
    streams_.pop(stream, into.bytes, first_);
    memories_[rank].write(places_[rank].at(into), first_);
  }
  void recv_reduce(int rank, std::uint32_t stream, const Range& from, const Range& into) override {
    memories_[rank].read(places_[rank].at(from), from.bytes, first_);
    streams_.pop(stream, into.bytes, second_);
    add();
    memories_[rank].write(places_[rank].at(into), result_);
  }
  void copy(int rank, const Range& from, const Range& into) override {
    memories_[rank].read(places_[rank].at(from), from.bytes, first_);
    memories_[rank].write(places_[rank].at(into), first_);
  }
  void reduce(int rank, const Range& from, const Range& into) override {
    memories_[rank].read(places_[rank].at(into), into.bytes, first_);
    memories_[rank].read(places_[rank].at(from), from.bytes, second_);
    add();
    memories_[rank].write(places_[rank].at(into), result_);
  }

  std::optional<std::string> check(int rank, const Goal& goal) override {
    for (const Goal::Piece& piece : goal.after) {
      memories_[rank].read(places_[rank].at(piece.range), piece.range.bytes, first_);
      std::uint64_t done = 0;
      for (const Run& run : first_) {
        if (auto wrong = check(run, piece, done))
          return std::string(piece.range.area == Area::kIn ? "in" : "out") + " byte " +
                 std::to_string(piece.range.offset + done) + ": " + *wrong;
        done += run.bytes;
      }
    }
    return {};
  }

  bool same_bits(int rank, const Goal& goal) override {
    const Range out{Area::kOut, 0, goal.out_bytes};
    memories_[0].read(places_[0].at(out), out.bytes, first_);
    memories_[rank].read(places_[rank].at(out), out.bytes, second_);
    bool same = true;
    zip([&](std::uint64_t, const Expression& a, const Expression& b) { same &= a.order == b.order; });
    return same;
  }

 private:
  template <class Each>
  void zip(const Each& each) const {
    std::uint64_t left = 0, right = 0;  // bytes of the current runs that are done
    for (std::size_t a = 0, b = 0; a < first_.size() && b < second_.size();) {
      const std::uint64_t bytes = std::min(first_[a].bytes - left, second_[b].bytes - right);
      each(bytes, first_[a].value, second_[b].value);
      left += bytes;
      right += bytes;
      if (left == first_[a].bytes) ++a, left = 0;
      if (right == second_[b].bytes) ++b, right = 0;
    }
  }
  void add() {
    result_.clear();
    zip([&](std::uint64_t bytes, const Expression& a, const Expression& b) { result_.push_back({bytes, sum(a, b)}); });
  }

  std::optional<std::string> check(const Run& run, const Goal::Piece& piece, std::uint64_t done) const {
    const Expression& value = run.value;
    const std::uint64_t wanted = piece.source == Goal::kAll ? everybody_ : of_rank(piece.source, 0).set;
    if (value.set == kUnwritten) return "was never written";
    if (value.set == kMixedUp) return "a sum of bytes that do not belong together";
    if (value.set != wanted)
      return piece.source == Goal::kAll ? "not every rank was added once"
                                        : "not what rank " + std::to_string(piece.source) + " gave";
    if (value.shift != piece.position)
      return "holds byte " + std::to_string(value.shift + done) + " of the vector instead of " +
             std::to_string(piece.position + done);
    return {};
  }

  std::uint64_t everybody_ = 0;
  std::vector<Placement> places_;
  std::vector<Memory> memories_;
  Streams streams_;
  std::vector<Run> first_, second_, result_;
};

}  // namespace

std::unique_ptr<Contents> make_symbolic(int ranks) { return std::make_unique<Symbolic>(ranks); }

}  // namespace tutti
