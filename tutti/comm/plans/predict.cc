// Every algorithm is modeled as a sum of exchanges, in which all ranks send some bytes over some distance at once. The
// cost of an exchange depends on how many ranks of a host send through its card. At distance d (in ranks) that is
// min(d, ranks of the host). So near exchanges are cheap on hosts with many ranks, and far exchanges share the card.
//
// Long transfers flow in segments. A chain or ring of segments costs the sum of the latencies once, plus the bytes over
// the slowest link. Consecutive exchanges are counted as if each waited for the one before. The simulator shows that
// this is within a third of its result for the algorithms that the table would choose.
#include "tutti/comm/plans/predict.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tutti/base/error.h"

namespace tutti::comm {
namespace {

constexpr double kSegment = Shape{}.segment;
constexpr double kCrowding = 1.5;  // slowdown when all carriers of all hosts send at once: they wait for each other's
                                   // cards

class Costs {
 public:
  Costs(const Hosts& hosts, const Network& network)
      : net_(network),
        n_(hosts.ranks()),
        h_(hosts.count()),
        most_(std::max(1, hosts.most())),
        fewest_(hosts.fewest()) {}

  int ranks() const { return n_; }
  int hosts() const { return h_; }
  int most() const { return most_; }
  int shares() const { return std::max(1, fewest_); }
  double add(double bytes) const { return bytes / net_.add_bandwidth; }

  double inside(double bytes, int messages = 1) const {
    return net_.inside.latency + messages * net_.inside.overhead + bytes / net_.inside.bandwidth;
  }
  // `flows` ranks of a host each send `bytes` to other hosts.
  double between(double bytes, int flows, int messages = 1) const {
    const double each_card = std::ceil(double(flows) / net_.cards);
    return net_.between.latency + each_card * (messages * net_.between.overhead + bytes / net_.between.bandwidth);
  }
  // Every rank sends `bytes` to the rank `distance` after it.
  double shift(int distance, double bytes) const {
    if (h_ < 2) return inside(bytes);
    const int flows = std::min(distance, most_);
    return std::max(between(bytes, flows), distance < most_ ? inside(bytes) : 0);
  }
  // Every rank exchanges with the rank whose number differs in one bit.
  double swap(int bit, double bytes) const {
    if (h_ < 2 || (bit < most_ && most_ % (2 * bit) == 0)) return inside(bytes);
    return between(bytes, std::min(bit, most_));
  }
  // Every rank sends every other rank a message of `bytes` at once.
  double everybody(double bytes) const {
    const int here = most_ - 1, away = n_ - most_;
    const double near = here > 0 ? inside(here * bytes, here) : 0;
    return std::max(near, away > 0 ? between(away * bytes, most_, away) : 0);
  }
  // One rank sends, or receives, all the bytes.
  double at_one(double bytes, int messages) const {
    return h_ < 2 ? inside(bytes, messages) : between(bytes, 1, messages);
  }
  // Every rank passes on `steps` parts around a ring, each as soon as it has arrived (and been added).
  double ring(int steps, double part, bool adds) const {
    const double lone = std::min(part, kSegment), added = adds ? add(lone) : 0;
    const double near = inside(lone) + added, far = between(lone, 1) + added;
    if (h_ < 2) return steps * (near + (part - lone) / net_.inside.bandwidth);
    const double crossing = double(h_) / n_;
    if (net_.crowded && crossing < 1)
      return steps * (crossing * far + (1 - crossing) * near + (adds ? add(part) : 0) +
                      part * (1 / net_.inside.bandwidth + 1 / net_.between.bandwidth));
    const double slowest = std::max(crossing < 1 ? near - net_.inside.latency : 0, far - net_.between.latency);
    const double waits = steps * (crossing * far + (1 - crossing) * near), flow = steps * slowest;
    return std::max(waits, flow) +
           steps * (part - lone) /
               (crossing < 1 ? std::min(net_.inside.bandwidth, net_.between.bandwidth) : net_.between.bandwidth);
  }
  // What adding costs a chain of `hops` beside its transfers: each hop adds the first segment; from then on the slower
  // of adding and transferring counts. Some rank adds each segment `times` times.
  double chained_adds(int hops, double bytes, int times) const {
    const double lone = std::min(bytes, kSegment), segments = std::max(1.0, std::ceil(bytes / kSegment));
    const double transfer = lone / (h_ < 2 ? net_.inside.bandwidth : net_.between.bandwidth);
    return hops * add(lone) + (segments - 1) * std::max(0.0, times * add(lone) - transfer);
  }
  // The segments of `bytes` pass through `hops` ranks in rank order.
  double pipe(int hops, double bytes) const {
    const double lone = std::min(bytes, kSegment);
    const int crossing = h_ < 2 ? 0 : std::max(1, int(std::lround(double(hops) * h_ / n_)));
    const double near = inside(lone), far = h_ < 2 ? 0 : between(lone, 1);
    const double slowest = std::max(crossing < hops ? near : 0, far);
    const double segments = std::max(1.0, std::ceil(bytes / kSegment));
    const double latency = h_ < 2 ? net_.inside.latency : net_.between.latency;
    return (hops - crossing) * near + crossing * far + (segments - 1) * (slowest - latency);
  }

 private:
  const Network& net_;
  int n_, h_, most_, fewest_;
};

int power_below(int n) { return int(std::bit_floor(unsigned(n))); }

// The phases of bruck.cc; `part` is the bytes of one rank's part.
double gather_bruck(const Costs& c, double part) {
  double time = 0;
  for (int d = 1; d < c.ranks(); d *= 2) time += c.shift(d, std::min(d, c.ranks() - d) * part);
  return time;
}
double reduce_scatter_bruck(const Costs& c, double part) {
  double added = 0;
  for (int d = 1; d < c.ranks(); d *= 2) added += c.add(std::min(d, c.ranks() - d) * part);
  return gather_bruck(c, part) + added;
}

// A group that consists of one level only: `n` ranks on `n` hosts if `apart`, otherwise all on one host.
Costs level(int n, bool apart, const Network& network) {
  const std::vector<int> sizes = apart ? std::vector<int>(std::size_t(n), 1) : std::vector<int>{n};
  return Costs(Hosts::of_sizes(sizes), network);
}

// For a long vector this costs more than a chain: an inner rank of a tree sends the vector once per child.
double tree(const Costs& c, double bytes, bool adds) {
  double time = 0;
  for (int d = power_below(std::max(1, c.ranks() - 1)); d >= 1 && c.ranks() > 1; d /= 2)
    time += (d >= c.most() && c.hosts() > 1 ? c.between(bytes, 1) : c.inside(bytes)) + (adds ? c.add(bytes) : 0);
  return time;
}

double scatter_tree(const Costs& c, double bytes) {
  double time = 0;
  for (int d = int(std::bit_ceil(unsigned(c.ranks()))) / 2; d >= 1; d /= 2)
    time += c.at_one(bytes * std::min(d, c.ranks() - d) / c.ranks(), 1);
  return time;
}

double all_reduce(Algorithm algorithm, const Costs& c, double bytes, const Network& network) {
  const int n = c.ranks(), power = power_below(n);
  const double part = bytes / n, folded = n == power ? 0 : c.shift(1, bytes) + c.shift(1, bytes) + c.add(bytes);
  double time = 0;
  switch (algorithm) {
    case Algorithm::kRecursiveDoubling:
      for (int d = 1; d < power; d *= 2) time += c.swap(d, bytes) + c.add(bytes);
      return time + folded;
    case Algorithm::kHalvingDoubling:
      for (int d = 1; d < power; d *= 2) {
        const double half = bytes / (2.0 * d);
        time += 2 * c.swap(d, half) + c.add(half);
      }
      return time + folded;
    case Algorithm::kBruck:
      return reduce_scatter_bruck(c, part) + gather_bruck(c, part);
    case Algorithm::kMesh:
      return 2 * c.everybody(part) + c.add(bytes - part);
    case Algorithm::kRing:
      return c.ring(n - 1, part, true) + c.ring(n - 1, part, false);
    case Algorithm::kTwoLevel: {
      const double piece = bytes / c.most(), shard = bytes / c.shares();
      const Costs here = level(c.most(), false, network);
      double between = 0;
      if (c.hosts() > 1) {
        // All carriers of a host share its card.
        const double h = c.hosts(), hops = std::ceil(std::log2(h)), long_shard = 32 << 10;
        between = shard < long_shard ? hops * (c.between(shard, c.shares()) + c.add(shard))
                                     : 2 * hops * c.between(0, c.shares()) +
                                           2 * (h - 1) / h * bytes / network.between.bandwidth + c.add(shard);
      }
      const double inside = c.most() > 1 ? 2 * here.everybody(piece) + c.add(bytes - piece) : 0;
      const double handed = c.shares() != c.most() ? 2 * c.inside(shard) : 0;
      return inside + between + handed;
    }
    case Algorithm::kBinomial:
    case Algorithm::kChain:
    case Algorithm::kDirect:
    case Algorithm::kPairwise:
    case Algorithm::kDissemination:
    case Algorithm::kVanDeGeijn:
      break;  // not all-reduce algorithms
  }
  return 0;
}

// A broadcast or a reduce.
double rooted(Algorithm algorithm, const Costs& c, double bytes, bool adds, const Network& network) {
  const int n = c.ranks();
  const double part = bytes / n;
  if (algorithm == Algorithm::kBinomial) return tree(c, bytes, adds);
  if (algorithm == Algorithm::kChain) return c.pipe(n - 1, bytes) + (adds ? c.chained_adds(n - 1, bytes, 1) : 0);
  if (algorithm == Algorithm::kVanDeGeijn)
    return scatter_tree(c, bytes) + (adds ? reduce_scatter_bruck(c, part) : gather_bruck(c, part));
  const Costs here = level(c.most(), false, network), away = level(c.hosts(), true, network);
  if (bytes < kSegment) return tree(away, bytes, adds) + tree(here, bytes, adds);
  const double added = adds ? c.chained_adds(c.hosts() + c.most() - 2, bytes, c.most() > 1 ? 2 : 1) : 0;
  return away.pipe(std::max(1, c.hosts() - 1), bytes) + here.pipe(std::max(1, c.most() - 1), kSegment) + added;
}

// An all_gather or a reduce_scatter.
double gathered(Algorithm algorithm, const Costs& c, double bytes, bool adds, const Network& network) {
  const int n = c.ranks();
  const double part = bytes / n;
  if (algorithm == Algorithm::kBruck) return adds ? reduce_scatter_bruck(c, part) : gather_bruck(c, part);
  if (algorithm == Algorithm::kMesh) return c.everybody(part) + (adds ? c.add(bytes - part) : 0);
  if (algorithm == Algorithm::kRing) return c.ring(n - 1, part, adds);
  const double own = part * c.most();  // bytes of one host's parts
  if (adds) {
    const double share = bytes / c.shares(),
                 away = kCrowding * c.between((c.hosts() - 1) * own / c.shares(), c.shares(), c.hosts() - 1);
    return (c.most() > 1 ? c.inside((c.shares() - 1) * share + (c.most() - c.shares()) * share, c.most() - 1) +
                               c.add((c.most() - 1) * share)
                         : 0) +
           away + c.add((c.hosts() - 1) * own / c.shares()) + (c.shares() != c.most() ? c.inside(part) : 0);
  }
  const Costs here = level(c.most(), false, network), away = level(c.hosts(), true, network);
  return gather_bruck(away, own / c.shares()) +
         (c.shares() - 1) * (bytes - own) / c.shares() / network.between.bandwidth +
         (c.most() > 1 ? here.everybody(bytes / c.most()) : 0) + (c.shares() != c.most() ? c.inside(part) : 0);
}

}  // namespace

double predict(Algorithm algorithm, Kind kind, const Hosts& hosts, std::size_t vector, const Network& network) {
  const Costs c(hosts, network);
  const int n = c.ranks();
  const double bytes = double(vector), part = n > 0 ? bytes / n : 0;
  if (n < 2) return 0;
  const bool adds = is_reduction(kind), gives = gives_parts(kind), gets = gets_parts(kind);
  if (verb(kind).combine == Verb::Combine::kNothing) {
    double time = 0;
    for (int d = 1; d < n; d *= 2) time += c.shift(d, 1);
    return time;
  }
  if (is_point_to_point(kind)) return c.at_one(bytes, 1);
  if (is_scan(kind)) {
    if (algorithm == Algorithm::kChain) return c.pipe(n - 1, bytes) + c.chained_adds(n - 1, bytes, 1);
    double time = verb(kind).combine == Verb::Combine::kReduceBefore ? c.shift(1, bytes) : 0;
    for (int d = 1; d < n; d *= 2) time += c.shift(d, bytes) + c.add(bytes);
    return time;
  }
  if (!gives && !gets)
    return has_root(kind) ? rooted(algorithm, c, bytes, adds, network) : all_reduce(algorithm, c, bytes, network);
  if (has_root(kind)) return c.at_one(bytes - part, n - 1);
  if (!gives || !gets) return gathered(algorithm, c, bytes, adds, network);
  if (algorithm != Algorithm::kBruck) return c.everybody(part);  // all_to_all
  double time = 0;
  for (int d = 1; d < n; d *= 2) time += c.shift(d, bytes / 2) + 2 * bytes / 2 / network.copy_bandwidth;
  return time;
}

}  // namespace tutti::comm
