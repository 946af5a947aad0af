// Peer: Gloo's collectives on vectors of float, by the method of `tutti bench` (docs/reference/benchmarks.md), with the
// keys of its --json.
//
//   peer_gloo --ranks N [--rounds R] [--warm-up W] [--rewrite] OP:BYTES...      starts its ranks, on this host
//   peer_gloo --ranks N --rank R --store FOLDER --address ADDRESS ...           is one of them, bound to this address
//
// The ranks meet through files in a folder. Gloo has no reduce_scatter. Calls in a round are fewer than those of the
// others, since one takes a hundred times as long.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Settings {
  int ranks = 0, rank = -1, rounds = 7, warm_up = 1;
  bool rewrite = false;
  std::string store, address = "127.0.0.1";
  struct Item {
    std::string operation;
    std::size_t bytes = 0;
  };
  std::vector<Item> items;
};

using Reduce = void (*)(void*, const void*, const void*, std::size_t);

class Peer {
 public:
  Peer(const Settings& settings, int rank, const std::string& folder) : settings_(settings), ranks_(settings.ranks) {
    gloo::transport::tcp::attr attr;
    attr.hostname = settings.address;
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks_);
    gloo::rendezvous::FileStore store(folder);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
    context->connectFullMesh(store, device);
    context_ = context;
    std::size_t most = 8;
    for (const auto& item : settings.items) most = std::max(most, item.bytes);
    a_.resize(most / 4 + 2), b_.resize(most / 4 + 2);
  }

  void measure(const Settings::Item& item) {
    const std::size_t count = item.bytes / 4;
    const int calls = calls_in_a_round(item.bytes);
    std::vector<double> seconds;
    for (int round = -settings_.warm_up; round < settings_.rounds; ++round) {
      std::fill_n(a_.begin(), count, 0.f), std::fill_n(b_.begin(), count, 0.f);
      barrier();
      double sum = 0, begin = now();
      for (int i = 0; i < calls; ++i) {
        if (settings_.rewrite) rewrite(count), barrier(), begin = now();
        call(item.operation, count);
        if (settings_.rewrite) sum += now() - begin;
      }
      const double slowest = maximum((settings_.rewrite ? sum : now() - begin) / calls);
      if (round >= 0) seconds.push_back(slowest);
    }
    std::sort(seconds.begin(), seconds.end());
    if (context_->rank != 0) return;
    std::printf("{\"peer\":\"gloo\",\"op\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"us\":%.3f,\"us_min\":%.3f}\n",
                item.operation.c_str(), ranks_, item.bytes, seconds[seconds.size() / 2] * 1e6, seconds[0] * 1e6);
    std::fflush(stdout);
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  int calls_in_a_round(std::size_t bytes) const {
    if (ranks_ > 2) return bytes <= 262144 ? 10 : 2;
    return bytes <= 4096 ? 200 : bytes <= 262144 ? 50 : bytes <= (4u << 20) ? 8 : 2;
  }
  // Each word is read, and written as it was.
  void rewrite(std::size_t count) {
    std::uint32_t all_ones = ~std::uint32_t(0);
    __asm__ volatile("" : "+r"(all_ones));
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t word;
      std::memcpy(&word, &a_[i], 4);
      word &= all_ones;
      std::memcpy(&a_[i], &word, 4);
    }
    __asm__ volatile("" : : "r"(a_.data()) : "memory");
  }
  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  double maximum(double value) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    options.setReduceFunction(static_cast<Reduce>(&gloo::max<double>));
    gloo::allreduce(options);
    return value;
  }

  void call(const std::string& operation, std::size_t count) {
    const std::size_t part = count / std::size_t(ranks_);
    float *const a = a_.data(), *const b = b_.data();
    if (operation == "all_reduce") {
      gloo::AllreduceOptions options(context_);
      options.setOutput(a, count);
      options.setReduceFunction(static_cast<Reduce>(&gloo::sum<float>));
      gloo::allreduce(options);
    } else if (operation == "reduce") {
      gloo::ReduceOptions options(context_);
      options.setInput(a, count);
      options.setOutput(b, count);
      options.setRoot(0);
      options.setReduceFunction(static_cast<Reduce>(&gloo::sum<float>));
      gloo::reduce(options);
    } else if (operation == "broadcast") {
      gloo::BroadcastOptions options(context_);
      options.setOutput(a, count);
      options.setRoot(0);
      gloo::broadcast(options);
    } else if (operation == "all_gather") {
      gloo::AllgatherOptions options(context_);
      options.setInput(a, part);
      options.setOutput(b, part * ranks_);
      gloo::allgather(options);
    } else if (operation == "gather") {
      gloo::GatherOptions options(context_);
      options.setInput(a, part);
      if (context_->rank == 0) options.setOutput(b, part * ranks_);
      options.setRoot(0);
      gloo::gather(options);
    } else if (operation == "scatter") {
      gloo::ScatterOptions options(context_);
      std::vector<float*> parts;
      for (int r = 0; r < ranks_ && context_->rank == 0; ++r) parts.push_back(a + r * part);
      if (context_->rank == 0) options.setInputs(parts, part);
      options.setOutput(b, part);
      options.setRoot(0);
      gloo::scatter(options);
    } else if (operation == "all_to_all") {
      gloo::AlltoallOptions options(context_);
      options.setInput(a, part * ranks_);
      options.setOutput(b, part * ranks_);
      gloo::alltoall(options);
    } else if (operation == "send_recv" || operation == "ping_pong") {
      messages(operation == "send_recv", count * sizeof(float));
    } else if (operation == "barrier") {
      barrier();
    } else {
      throw std::runtime_error("Gloo has no " + operation);
    }
  }

  void messages(bool in_a_ring, std::size_t bytes) {
    const int rank = context_->rank, partner = rank ^ 1;
    const int to = in_a_ring ? (rank + 1) % ranks_ : partner, from = in_a_ring ? (rank + ranks_ - 1) % ranks_ : partner;
    if (to >= ranks_ || ranks_ == 1) return;
    if (bytes_ != bytes) {
      in_ = context_->createUnboundBuffer(a_.data(), bytes), out_ = context_->createUnboundBuffer(b_.data(), bytes);
      bytes_ = bytes;
    }
    if (in_a_ring) out_->recv(from, 0);
    if (in_a_ring || rank % 2 == 0) in_->send(to, 0), in_->waitSend();
    if (!in_a_ring) out_->recv(from, 0);
    out_->waitRecv();
    if (!in_a_ring && rank % 2 == 1) in_->send(to, 0), in_->waitSend();
  }

  const Settings& settings_;
  const int ranks_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<float> a_, b_;
  std::unique_ptr<gloo::transport::UnboundBuffer> in_, out_;
  std::size_t bytes_ = 0;
};

int be_rank(const Settings& settings, int rank, const std::string& folder) {
  try {
    Peer peer(settings, rank, folder);
    for (const auto& item : settings.items) peer.measure(item);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_gloo: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

// Ends with this process, whatever becomes of it.
int start_ranks(const Settings& settings) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-gloo-XXXXXX").string();
  if (!::mkdtemp(folder.data())) return std::perror("peer_gloo: mkdtemp"), 1;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::_exit(be_rank(settings, rank, folder));
    }
    ranks.push_back(pid);
  }
  int worst = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    int status = 0;
    ::wait(&status);
    if (status != 0 && worst == 0)
      for (const pid_t pid : ranks) ::kill(pid, SIGTERM);  // they would wait for the one that failed
    worst |= status;
  }
  std::filesystem::remove_all(folder);
  return worst != 0;
}

int usage() {
  std::fprintf(stderr,
               "usage: peer_gloo --ranks N [--rank R --store FOLDER --address ADDRESS] [--rounds R] [--warm-up W] "
               "[--rewrite] OP:BYTES...\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--rewrite") {
      settings.rewrite = true;
    } else if (word.rfind("--", 0) == 0) {
      if (++i == argc) return usage();
      if (word == "--ranks")
        settings.ranks = std::atoi(argv[i]);
      else if (word == "--rank")
        settings.rank = std::atoi(argv[i]);
      else if (word == "--rounds")
        settings.rounds = std::atoi(argv[i]);
      else if (word == "--warm-up")
        settings.warm_up = std::atoi(argv[i]);
      else if (word == "--store")
        settings.store = argv[i];
      else if (word == "--address")
        settings.address = argv[i];
      else
        return usage();
    } else {
      const std::size_t colon = word.find(':');
      settings.items.push_back(
          {word.substr(0, colon), colon == std::string::npos ? 0 : std::stoull(word.substr(colon + 1))});
    }
  }
  if (settings.ranks < 1 || settings.rounds < 1 || settings.items.empty()) return usage();
  return settings.rank >= 0 ? be_rank(settings, settings.rank, settings.store) : start_ranks(settings);
}
