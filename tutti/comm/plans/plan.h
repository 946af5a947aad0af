#pragma once
// A Plan is what one rank does in a collective operation, as data. It knows nothing of links, pointers or element
// types. The executor (comm/links/executor.h) runs it over any Link; a test or the simulator runs it over arrays.
//
// A plan reads like a sequential program. Steps whose bytes do not conflict may overlap. If two steps touch the same
// bytes and one of them writes, they run in order; PlanBuilder finds these dependencies. Steps with one peer in one
// direction always run in order, because they share a byte stream. Sender and receiver may cut the stream into pieces
// of different sizes.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/plans/hosts.h"

namespace tutti::comm {

enum class Algorithm : std::uint8_t {
  kRing,
  kRecursiveDoubling,
  kBinomial,
  kChain,
  kDirect,
  kPairwise,
  kDissemination,
  kHalvingDoubling,
  kBruck,
  kMesh,
  kVanDeGeijn,
  kTwoLevel,
};
inline constexpr Algorithm kLastAlgorithm = Algorithm::kTwoLevel;
const char* name(Algorithm algorithm);  // "ring", "recursive_doubling", ...
std::vector<std::string> algorithm_names();

// The buffers of a Request (comm/request.h), and scratch memory that the executor provides.
enum class Area : std::uint8_t { kIn, kOut, kScratch };

struct Range {
  Area area = Area::kOut;
  std::size_t offset = 0;  // bytes
  std::size_t bytes = 0;
  bool operator==(const Range&) const = default;
};

enum class StepKind : std::uint8_t {
  kSend,        // from -> peer
  kRecv,        // peer -> into
  kRecvReduce,  // into = from op received bytes; `from` may be `into`
  kCopy,        // into = from
  kReduce,      // into = into op from
};

struct Step {
  StepKind kind = StepKind::kCopy;
  int peer = -1;
  Range from;
  Range into;
  std::uint32_t after_begin = 0, after_end = 0;  // this step's dependencies: a slice of Plan::after
};

struct Plan {
  Algorithm algorithm = Algorithm::kDirect;
  std::vector<Step> steps;
  std::vector<std::uint32_t> after;  // indices of earlier steps
  std::size_t scratch_bytes = 0;

  std::span<const std::uint32_t> dependencies(const Step& step) const {
    return std::span(after).subspan(step.after_begin, step.after_end - step.after_begin);
  }
};

// The input of an algorithm. `count` and the splits have the meaning they have in Request, in elements of `element`
// bytes. in_place: in and out are the same memory, or the smaller buffer is the rank's own part of the larger one.
struct Shape {
  int rank = 0;
  int size = 1;
  int root = 0;
  std::size_t count = 0;
  std::size_t element = 1;
  bool in_place = false;
  std::size_t segment = 256 << 10;  // bytes of a piece when large transfers are pipelined
  std::span<const std::size_t> in_splits{};
  std::span<const std::size_t> out_splits{};
  const Hosts* hosts = nullptr;  // the host of each rank; null if the algorithm does not use it
};

// Collects the steps in program order. Steps with a peer are kept even if they move no bytes: the first message between
// two ranks carries the header with which they check each other's call.
class PlanBuilder {
 public:
  explicit PlanBuilder(Algorithm algorithm) { plan_.algorithm = algorithm; }

  Range scratch(std::size_t bytes);  // new scratch memory
  void send(int peer, Range from);
  void recv(int peer, Range into);
  void recv_reduce(int peer, Range from, Range into);
  void copy(Range from, Range into);
  void reduce(Range from, Range into);
  // Sends added from here on start only after the last send so far has left. Byte dependencies alone would let a piece
  // of a later round overtake a piece that a peer is waiting for now.
  void next_round() { round_ = sent_; }
  Plan build() &&;

 private:
  // The steps that touched the bytes from this key up to the next one.
  struct Toucher {
    std::int64_t writer = -1;
    std::vector<std::uint32_t> readers;  // since the last write
  };
  using Touched = std::map<std::size_t, Toucher>;

  void add(Step step);
  void read(const Range& range, std::uint32_t step);
  void write(const Range& range, std::uint32_t step);
  Touched::iterator split(Touched& touched, std::size_t offset);

  Plan plan_;
  Touched touched_[3];
  std::int64_t sent_ = -1, round_ = -1;  // the last send so far; the last send before this round
};

// Part `index` if `whole` is cut into `parts` pieces of whole elements whose sizes differ by at most one element.
Range part_of(const Range& whole, std::size_t element, int parts, int index);
// The parts of all ranks in a buffer, one after another: `shape.count` elements each, or as `splits` says.
std::vector<Range> parts_of(Area area, const Shape& shape, std::span<const std::size_t> splits);
// Cuts a range into pieces of at most `segment` bytes (whole elements). An empty range gives one empty piece.
std::vector<Range> segments_of(const Range& whole, std::size_t element, std::size_t segment);

}  // namespace tutti::comm
