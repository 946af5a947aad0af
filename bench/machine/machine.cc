#include "bench/machine/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <thread>

#include "bench/collectives/limits.h"
#include "tutti/base/env.h"
#include "tutti/base/kernels/elementwise.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/doctor/host_info.h"
#include "tutti/planning/training/cluster_units.h"
#include "tutti/planning/training/device_time.h"

namespace tutti::bench {
namespace {

constexpr double kMostOperations = 4294967296.0;
constexpr ProductKind kKinds[] = {ProductKind::kForward, ProductKind::kInputGradient, ProductKind::kWeightGradient};

// A rank as it describes itself.
struct RankFacts {
  double node, cores, memory;  // memory: of the whole host
};

// A file of /proc, whose size is not known.
std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

double memory_of_host() {
  double bytes = double(doctor::meminfo_bytes(text_of("/proc/meminfo"), "MemTotal"));
  const auto limit = doctor::cgroup_number(text_of("/proc/self/cgroup"), "/sys/fs/cgroup", "memory",
                                           "memory.limit_in_bytes", "memory.max");
  if (limit && (bytes == 0 || double(*limit) < bytes)) bytes = double(*limit);
  return bytes;
}

std::string cpu_model() {
  for (const std::string& line : split(text_of("/proc/cpuinfo"), '\n'))
    if (const std::size_t colon = line.find(':'); line.starts_with("model name") && colon != line.npos)
      return std::string(trim(line.substr(colon + 1)));
  return "unknown processor";
}

// Seconds of computing. A rank with one thread reads its CPU time, so waiting for a core does not count: that is what
// ClusterNodes::cores is for.
class ComputeClock {
 public:
  explicit ComputeClock(int threads) : alone_(threads == 1), begin_(read()) {}
  double seconds() const { return read() - begin_; }

 private:
  double read() const {
    timespec time{};
    (void)::clock_gettime(alone_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
  }
  bool alone_;
  double begin_;
};

// The largest value of all ranks.
double slowest(const Group& world, double seconds) { return all_reduce(world, seconds, ReduceOp::kMax); }

class Measuring {
 public:
  Measuring(const Group& world, std::function<void(const std::string&)> say, int rounds)
      : world_(world), say_(std::move(say)), rounds_(rounds) {}

  Result<MachineMeasure> run(const std::vector<ProductShape>& shapes) {
    find_nodes();
    const Result<ProductLibrary> library = ProductLibrary::load();
    // All ranks return, or none does.
    const double missing = all_reduce(world_, library.ok() ? 0.0 : 1.0, ReduceOp::kSum);
    if (!library.ok()) return library.error();
    if (missing > 0)
      return Error{.code = Code::kNotFound,
                   .detail = fmt::format("{:g} of {} ranks have no BLAS", missing, world_.size()),
                   .hint = "install libopenblas0-pthread on every host"};
    comment(fmt::format("rank 0 is on {}: {}", host_name(), cpu_model()));
    comment(fmt::format("products: {}; threads of a rank: {}", library->name(), threads()));
    measure_products(*library, shapes);
    measure_stream();
    measure_functions();
    measure_links();
    measure_collectives();
    check_collectives();
    return std::move(result_);
  }

 private:
  Cluster& cluster() { return result_.cluster; }
  void comment(std::string text) { result_.comments.push_back(std::move(text)); }
  void say(const std::string& part) const {
    if (world_.rank() == 0 && say_) say_(part);
  }
  static int threads() {
    const auto given = parse_int(env("OMP_NUM_THREADS").value_or(""));
    return given && *given >= 1 ? int(std::min<std::int64_t>(*given, usable_cores())) : 1;
  }

  // Consecutive hosts that are alike are one entry.
  void find_nodes() {
    const RankFacts mine{double(world_.node()), double(usable_cores()), memory_of_host()};
    std::vector<double> all(std::size_t(world_.size()) * 3);
    const double sent[] = {mine.node, mine.cores, mine.memory};
    all_gather(world_, std::span<const double>(sent), std::span(all));
    for (int rank = 0; rank < world_.size(); ++rank) {
      const int node = int(all[std::size_t(rank) * 3]);
      if (std::size_t(node) >= ranks_of_.size()) ranks_of_.resize(std::size_t(node) + 1);
      ranks_of_[std::size_t(node)].push_back(rank);
    }
    for (const std::vector<int>& ranks : ranks_of_) {
      const double* const facts = &all[std::size_t(ranks[0]) * 3];
      const int devices = int(ranks.size());
      // Hosts report a few pages more or less.
      const double memory = std::floor(facts[2] / devices / planning::units::kGiB * 100) / 100 * planning::units::kGiB;
      auto& nodes = cluster().nodes;
      const bool alike = !nodes.empty() && nodes.back().devices == devices && nodes.back().cores == int(facts[1]) &&
                         std::abs(nodes.back().memory - memory) < 0.02 * memory;
      if (alike)
        ++nodes.back().count, nodes.back().memory = std::min(nodes.back().memory, memory);
      else
        nodes.push_back({.count = 1, .devices = devices, .memory = memory, .cores = int(facts[1])});
    }
  }

  // Lowers `alone`, the seconds of a product on rank 0 by itself, and `together`, on this rank while all ranks of a
  // host multiply. They take turns with each product, so that no rank waits for most of the time: the monitor of the
  // job would report rank 0 as slow.
  void time_product(const std::function<void()>& multiply, double& alone, double& together) const {
    constexpr double kBatch = 3e-3;  // seconds
    int calls = 0;                   // of a batch
    if (world_.rank() == 0) {
      const ComputeClock clock(threads());
      multiply();
      calls = int(std::clamp(kBatch / clock.seconds(), 1.0, 10000.0));
      alone = std::min(alone, least_of_batches(multiply, calls));
    } else {
      alone = 0;
    }
    if (ranks_of_[0].size() == 1) return;
    broadcast(world_, std::span(&calls, 1));
    together = std::min(together, least_of_batches(multiply, calls));
  }
  // The least mean of some batches, since whatever disturbs them only adds to it.
  static double least_of_batches(const std::function<void()>& multiply, int calls) {
    constexpr int kLeastBatches = 3, kMostBatches = 8;
    constexpr double kEnough = 15e-3;
    double least = 1e30;
    const ComputeClock all(threads());
    for (int batch = 0; batch < kLeastBatches || (batch < kMostBatches && all.seconds() < kEnough); ++batch) {
      const ComputeClock clock(threads());
      for (int call = 0; call < calls; ++call) multiply();
      least = std::min(least, clock.seconds() / calls);
    }
    return least;
  }

  void measure_products(const ProductLibrary& library, const std::vector<ProductShape>& shapes) {
    constexpr int kWarmUp = 64;
    // Consecutive calls have other operands, as in a training, so that they come from beyond a core's own caches.
    constexpr std::size_t kApart = 4 << 20;  // numbers, 16 MiB
    std::size_t most_a = kWarmUp * kWarmUp, most_b = most_a, most_out = most_a;
    for (const ProductShape& shape : shapes)
      for (const ProductKind kind : kKinds) {
        const ProductSizes sizes = sizes_of(kind, shape.m, shape.n, shape.k);
        most_a = std::max(most_a, sizes.a), most_b = std::max(most_b, sizes.b),
        most_out = std::max(most_out, sizes.out);
      }
    most_a += kApart, most_b += kApart, most_out += kApart;
    const std::vector<float> a(most_a, 0.5f), b(most_b, 0.25f);
    std::vector<float> out(most_out);
    library.multiply(ProductKind::kForward, kWarmUp, kWarmUp, kWarmUp, a.data(), b.data(),
                     out.data());  // starts threads
    say(fmt::format("matrix products of {} shapes, 3 kinds", shapes.size()));
    std::vector<double> alone(std::size(kKinds) * shapes.size(), 1e30), together = alone;
    for (int round = 0; round < rounds_; ++round) {
      std::size_t at = 0;
      for (const ProductShape& shape : shapes)
        for (const ProductKind kind : kKinds) {
          const ProductSizes sizes = sizes_of(kind, shape.m, shape.n, shape.k);
          const std::size_t sets = kApart / (sizes.a + sizes.b + sizes.out) + 1;
          std::size_t set = 0;
          const auto multiply = [&] {
            library.multiply(kind, shape.m, shape.n, shape.k, &a[set * sizes.a], &b[set * sizes.b],
                             &out[set * sizes.out]);
            set = (set + 1) % sets;
          };
          time_product(multiply, alone[at], together[at]);
          ++at;
        }
    }
    const auto add = [&](std::vector<double>& seconds, int busy) {
      all_reduce(world_, std::span(seconds), ReduceOp::kMax);
      std::size_t at = 0;
      for (const ProductShape& shape : shapes)
        for (const ProductKind kind : kKinds)
          cluster().device.products.push_back({kind, shape.m, shape.n, shape.k, busy, rounded(seconds[at++])});
    };
    add(alone, 1);
    if (const int here = int(ranks_of_[0].size()); here > 1) add(together, here);
    double least = 1e30;
    for (const ProductTime& product : cluster().device.products) {
      if (product.busy > 1) continue;
      const double operations = 2.0 * product.m * product.n * product.k;
      cluster().device.peak = std::max(cluster().device.peak, rounded(operations / product.seconds));
      least = std::min(least, product.seconds);
    }
    cluster().device.product_start = least;
    comment("peak_tflops: the fastest product with one rank busy; product_start_us: the shortest product");
  }

  // All ranks stream at the same time, each with its threads. The buffers are larger than any share of a cache.
  void measure_stream() {
    say("memory");
    constexpr std::size_t kCount = 16 << 20;  // floats
    constexpr int kRounds = 5;
    std::vector<float> a(kCount, 1.0f), b(kCount, 0.0f);
    const std::size_t parts = std::size_t(threads());
    double least = 1e30;
    for (int round = 0; round < kRounds; ++round) {
      barrier(world_);
      const ComputeClock clock(threads());
      std::vector<std::thread> others;
      const auto part = [&](std::size_t i) {
        const std::size_t first = kCount * i / parts, end = kCount * (i + 1) / parts;
        triad(a.data() + first, b.data() + first, end - first);
      };
      for (std::size_t i = 1; i < parts; ++i) others.emplace_back(part, i);
      part(0);
      for (std::thread& other : others) other.join();
      least = std::min(least, slowest(world_, clock.seconds()));
    }
    cluster().device.stream_bandwidth = rounded(3.0 * kCount * sizeof(float) / least);
    cluster().device.launch = 5e-6;
    comment("stream_gb_s: all ranks at once; launch_us is assumed: calling LibTorch is not measured");
  }

  // What GELU takes besides its bytes, which a cache holds here.
  void measure_functions() {
    constexpr std::size_t kCount = 4096;
    constexpr int kCalls = 100, kRounds = 20;
    std::vector<float> x(kCount, 0.5f), y(kCount);
    double least = 1e30;
    for (int round = 0; round < kRounds; ++round) {
      const ComputeClock clock(1);
      for (int call = 0; call < kCalls; ++call) {
        gelu_values(x.data(), y.data(), kCount);
        gelu_gradient(x.data(), y.data(), y.data(), kCount);
      }
      least = std::min(least, clock.seconds() / (2.0 * kCalls * kCount));
    }
    cluster().device.function = rounded(slowest(world_, least) / threads());
  }

  // Zeros in memory that the peers can read, as tensors are.
  std::shared_ptr<float[]> heap(std::size_t count) const {
    auto memory = world_.allocate_array<float>(count);
    std::fill_n(memory.get(), count, 0.0f);
    return memory;
  }
  static std::span<const float> as_input(std::span<float> data) { return data; }

  // The link of two ranks, on every rank.
  ClusterLink measure_link(int first, int second) {
    constexpr int kTrips = 3000, kShort = 200, kBatches = 5;
    constexpr std::size_t kLong = 1 << 20;  // floats
    constexpr int kTag = 1;
    std::vector<double> figures(3);
    const auto memory = heap(kLong), short_memory = heap(2);
    const std::span<float> data(memory.get(), kLong), word(short_memory.get(), 2);
    if (world_.rank() == first) {
      double latency = 1e30;
      for (int i = 0; i < kTrips; ++i) {
        const auto begin = now();
        send(world_, as_input(word), second, kTag);
        recv(world_, word, second, kTag);
        latency = std::min(latency, seconds_since(begin) / 2);
      }
      double overhead = 1e30, transfer = 1e30;
      for (int batch = 0; batch < kBatches; ++batch) {
        const auto begin = now();
        for (int i = 0; i < kShort; ++i) send(world_, as_input(word), second, kTag);
        recv(world_, word, second, kTag);
        overhead = std::min(overhead, std::max(0.0, seconds_since(begin) - 2 * latency) / kShort);
      }
      for (int batch = 0; batch < kBatches; ++batch) {
        const auto begin = now();
        for (int i = 0; i < kLongMessages; ++i) send(world_, as_input(data), second, kTag);
        recv(world_, word, second, kTag);
        transfer = std::min(transfer, std::max(1e-9, seconds_since(begin) - 2 * latency));
      }
      figures = {std::max(0.0, latency - overhead), double(kLongMessages * kLong * sizeof(float)) / transfer, overhead};
    } else if (world_.rank() == second) {
      for (int i = 0; i < kTrips; ++i) {
        recv(world_, word, first, kTag);
        send(world_, as_input(word), first, kTag);
      }
      for (int batch = 0; batch < kBatches; ++batch) {
        for (int i = 0; i < kShort; ++i) recv(world_, word, first, kTag);
        send(world_, as_input(word), first, kTag);
      }
      for (int batch = 0; batch < kBatches; ++batch) {
        for (int i = 0; i < kLongMessages; ++i) recv(world_, data, first, kTag);
        send(world_, as_input(word), first, kTag);
      }
    }
    broadcast(world_, std::span(figures), first);
    return {rounded(figures[0]), rounded(figures[1]), rounded(figures[2])};
  }

  // Bytes per second from host 0 to host 1 when all their ranks send.
  double measure_cards() {
    const std::size_t pairs = std::min(ranks_of_[0].size(), ranks_of_[1].size());
    constexpr std::size_t kLong = 1 << 20;
    constexpr int kTag = 2, kBatches = 3;
    const auto memory = heap(kLong);
    const std::span<float> data(memory.get(), kLong);
    double least = 1e30;
    for (int batch = 0; batch < kBatches; ++batch) {
      barrier(world_);
      const auto begin = now();
      for (std::size_t i = 0; i < pairs; ++i) {
        for (int message = 0; message < kLongMessages; ++message) {
          if (world_.rank() == ranks_of_[0][i]) send(world_, as_input(data), ranks_of_[1][i], kTag);
          if (world_.rank() == ranks_of_[1][i]) recv(world_, data, ranks_of_[0][i], kTag);
        }
      }
      least = std::min(least, slowest(world_, seconds_since(begin)));
    }
    return double(pairs * kLongMessages * kLong * sizeof(float)) / least;
  }

  // The first host with several ranks; null: there is none.
  const std::vector<int>* host_that_is_shared() const {
    for (const std::vector<int>& ranks : ranks_of_)
      if (ranks.size() > 1) return &ranks;
    return nullptr;
  }

  void measure_links() {
    say("links");
    ClusterNetwork& network = cluster().network;
    if (const std::vector<int>* const shared = host_that_is_shared())
      network.inside = measure_link((*shared)[0], (*shared)[1]);
    if (ranks_of_.size() < 2) return;
    std::size_t slow_host = 1;
    for (std::size_t host = 1; host < ranks_of_.size(); ++host) {
      const ClusterLink link = measure_link(ranks_of_[0][0], ranks_of_[host][0]);
      ClusterLink& worst = network.between;
      if (host == 1 || link.bandwidth < worst.bandwidth) slow_host = host, worst.bandwidth = link.bandwidth;
      worst.latency = std::max(worst.latency, link.latency);
      worst.overhead = std::max(worst.overhead, link.overhead);
    }
    if (ranks_of_.size() > 2) comment(fmt::format("network.between: the slowest host is number {}", slow_host));
    if (std::min(ranks_of_[0].size(), ranks_of_[1].size()) < 2) return;
    const double together = rounded(measure_cards());
    comment(fmt::format("from host 0 to host 1: {:.3g} GB/s by one pair of ranks, {:.3g} GB/s by all pairs at once",
                        network.between.bandwidth / planning::units::kGigabyte, together / planning::units::kGigabyte));
    network.between.bandwidth = std::max(network.between.bandwidth, together);
  }

  // Of a call on the ranks of `group`. Each call has other data, as the calls of a training step have, so that they
  // come from memory.
  double time_all_reduce(const Group& group, std::size_t bytes) {
    constexpr int kBatches = 9;
    constexpr double kBatch = 5e-3;
    constexpr std::size_t kAll = (64 << 20) / sizeof(float);
    const std::size_t count = bytes / sizeof(float), parts = std::max<std::size_t>(kAll / count, 1);
    const auto memory = heap(parts * count);
    std::size_t part = 0;
    const auto call = [&] {
      all_reduce(group, std::span(memory.get() + part * count, count));
      part = (part + 1) % parts;
    };
    call();
    const auto first = now();
    call();
    const int calls = int(std::clamp(kBatch / slowest(group, seconds_since(first)), 1.0, 2000.0));
    double least = 1e30;
    for (int batch = 0; batch < kBatches; ++batch) {
      barrier(group);
      const auto begin = now();
      for (int i = 0; i < calls; ++i) call();
      least = std::min(least, slowest(group, seconds_since(begin)) / calls);
    }
    return least;
  }

  // As the planner predicts it for ranks that are numbered host by host.
  double predicted_all_reduce(int ranks, std::size_t bytes) {
    const int here = std::min(ranks, int(ranks_of_[0].size()));
    return planning::collective_time(cluster().network, planning::ClusterVerb::kAllReduce,
                                     {.size = ranks, .here = here}, double(bytes));
  }

  // The ranks of a host reduce in memory that all of them read, which is faster than messages are, and a training
  // spends more time in collectives. So these give the bandwidth inside a host.
  void measure_collectives() {
    if (world_.size() < 2) return;
    say("all_reduce");
    constexpr std::size_t kTiny = 8, kBucket = 16 << 20;
    ClusterNetwork& network = cluster().network;
    const bool inside = network.inside.bandwidth > 0;
    const std::vector<int>& shared = inside ? *host_that_is_shared() : ranks_of_[0];
    const Group group = inside ? world_.new_group(shared).or_throw() : world_;
    std::vector<double> figures(2);
    if (group) {
      const int ranks = group.size();
      figures[0] = std::max(0.0, time_all_reduce(group, kTiny) - predicted_all_reduce(ranks, kTiny));
      network.start = figures[0];
      const double passing = 2.0 * (ranks - 1) / ranks * double(kBucket);
      const double waiting = predicted_all_reduce(ranks, 0);
      if (inside) figures[1] = passing / std::max(1e-6, time_all_reduce(group, kBucket) - waiting);
    }
    broadcast(world_, std::span(figures), shared[0]);
    network.start = rounded(figures[0]);
    if (!inside) return;
    comment(fmt::format("inside a host: messages of 4 MiB pass at {:.3g} GB/s, an all_reduce of 16 MiB at {:.3g} GB/s",
                        network.inside.bandwidth / planning::units::kGigabyte,
                        figures[1] / planning::units::kGigabyte));
    network.inside.bandwidth = rounded(figures[1]);
  }

  // The figures against calls of all ranks.
  void check_collectives() {
    if (world_.size() < 2) return;
    for (const std::size_t bytes : {std::size_t(64) << 10, std::size_t(1) << 20, std::size_t(64) << 20})
      comment(fmt::format("all_reduce of {}: measured {}, by these figures {}", bytes_text(bytes),
                          seconds_text(time_all_reduce(world_, bytes)),
                          seconds_text(predicted_all_reduce(world_.size(), bytes))));
  }

  // To four digits: more would only be noise.
  static double rounded(double value) { return *parse_double(fmt::format("{:.4g}", value)); }

  static constexpr int kLongMessages = 8;
  const Group& world_;
  std::function<void(const std::string&)> say_;
  int rounds_;
  std::vector<std::vector<int>> ranks_of_;  // by host
  MachineMeasure result_;
};

}  // namespace

std::vector<ProductShape> usual_shapes() {
  constexpr int kSizes[] = {64, 256, 1024, 4096};
  std::vector<ProductShape> shapes;
  for (const int m : kSizes)
    for (const int n : kSizes)
      for (const int k : kSizes)
        if (2.0 * m * n * k <= kMostOperations) shapes.push_back({m, n, k});
  return shapes;
}

Result<MachineMeasure> measure_machine(const Group& world, const std::vector<ProductShape>& shapes,
                                       const std::function<void(const std::string&)>& say, int rounds) {
  return Measuring(world, say, rounds).run(shapes);
}

}  // namespace tutti::bench
