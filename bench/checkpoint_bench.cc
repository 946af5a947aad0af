// A checkpoint of known size against what the disk and memory allow: saving against plain parallel pwrite() and fsync()
// of as many bytes, loading against pread() of them, and what an asynchronous save, and under tutti run a copy in
// memory, keep training waiting against memcpy() into memory that is there, with the page faults meanwhile: the copy's
// own memory has to be there already.
//
//   checkpoint_bench FOLDER [MiB a rank] [rounds] [--json]
//   tutti run -n 2 -- checkpoint_bench FOLDER [MiB a rank] [rounds]
//
// --json: one line of it, for bench/compare_checkpoints.
//
// A and B alternate; the figures are medians, the ratio the median of the ratios (above 1: faster than plain). FOLDER
// is made, and its checkpoints and plain files are removed at the end.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/fd.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/io/background_saver.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/snapshot.h"
#include "tutti/checkpoint/memory/memory_copies.h"
#include "tutti/comm/collectives.h"
#include "tutti/runtime/init.h"

namespace tutti {
namespace {

constexpr std::size_t kBlock = std::size_t(8) << 20;
constexpr std::uint64_t kRows = 4096;  // of a tensor of 16 MiB

// Of this process, all its threads.
long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

class Bench {
 public:
  Bench(const Group& world, std::string folder, std::size_t mib, int rounds, bool json)
      : world_(world),
        folder_(std::move(folder)),
        rounds_(rounds),
        json_(json),
        tensors_(std::max<std::size_t>(1, mib / 16)) {
    std::filesystem::create_directories(folder_);
    for (std::size_t t = 0; t < tensors_; ++t) memory_.emplace_back(kRows * 1024, float(t + 1));
    for (std::size_t t = 0; t < tensors_; ++t) {
      const TensorShape shape{kRows * std::uint64_t(world_.size()), 1024};
      boxes_.push_back({.key = {fmt::format("layer.{}.weight", t), ""},
                        .shape = shape,
                        .box = TensorBox::rows(shape, kRows * std::uint64_t(world_.rank()), kRows),
                        .data = memory_[t].data()});
    }
  }
  ~Bench() {
    barrier(world_);
    (void)::unlink(plain_path().c_str());
    std::error_code ignored;
    if (world_.rank() == 0) std::filesystem::remove_all(folder_ + "/saved", ignored);
  }

  void run() {
    say(fmt::format("{} ranks, {} MiB each\n{:34} {:>12} {:>12} {:>8}\n", world_.size(), bytes() >> 20, "", "ours GB/s",
                    "plain GB/s", "ratio"));
    row(
        "save / pwrite + fsync", [&] { save_checkpoint(world_, saved(), boxes_, {.step = 1}).or_throw(); },
        [&] { write_plain(); });
    row(
        "load / pread, from the cache", [&] { load(VerifyLevel::kFiles); }, [&] { read_plain(); });
    row(
        "verify and load / pread, cache", [&] { load(VerifyLevel::kAll); }, [&] { read_plain(); });
    const auto cold = [&](const std::function<void()>& act) { return [this, act] { forget_pages(), act(); }; };
    row("load / pread, from the disk", cold([&] { load(VerifyLevel::kFiles); }), cold([&] { read_plain(); }));
    row("verify and load / pread, disk", cold([&] { load(VerifyLevel::kAll); }), cold([&] { read_plain(); }));
    replicated(cold);
    stalls();
    if (!json_ || world_.rank() != 0) return;
    figures_["peer"] = "tutti";
    figures_["ranks"] = world_.size();
    figures_["bytes"] = bytes() * std::size_t(world_.size());
    std::uint64_t on_disk = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(list_checkpoints(saved()).or_throw().back().path))
      on_disk += entry.file_size();
    figures_["saved bytes"] = on_disk;
    fmt::print("{}\n", figures_.dump());
  }

 private:
  void say(const std::string& text) const {
    if (world_.rank() == 0 && !json_) fmt::print("{}", text);
  }
  std::size_t bytes() const { return tensors_ * kRows * 1024 * sizeof(float); }
  std::string saved() const { return folder_ + "/saved"; }
  std::string plain_path() const { return fmt::format("{}/plain-{}", folder_, world_.rank()); }

  // A state of which every rank has all: each reads all of it, or each its part of every tensor, which they then share.
  void replicated(const std::function<std::function<void()>(const std::function<void()>&)>& cold) {
    if (world_.size() == 1) return;
    std::vector<StateBox> whole;
    for (std::size_t t = 0; t < tensors_; ++t)
      whole.push_back({.key = boxes_[t].key, .shape = {kRows, 1024}, .data = memory_[t].data()});
    save_checkpoint(world_, saved(), whole, {.step = 1}).or_throw();
    const auto each = [&] {
      const auto reader = CheckpointReader::open(world_, saved(), VerifyLevel::kFiles).or_throw();
      for (std::size_t t = 0; t < tensors_; ++t)
        reader.read(whole[t].key, TensorBox::whole(whole[t].shape), memory_[t].data()).or_throw();
    };
    const auto shared = [&] {
      const auto reader = CheckpointReader::open(world_, saved(), VerifyLevel::kFiles).or_throw();
      const std::uint64_t rows = kRows / std::uint64_t(world_.size()), first = rows * std::uint64_t(world_.rank());
      for (std::size_t t = 0; t < tensors_; ++t) {
        const auto mine = std::span(memory_[t]).subspan(first * 1024, rows * 1024);
        reader.read(whole[t].key, TensorBox::rows(whole[t].shape, first, rows), mine.data()).or_throw();
        all_gather(world_, std::span<const float>(mine),
                   std::span(memory_[t]).first(mine.size() * std::size_t(world_.size())));
      }
    };
    row("replicated: shared / each, cache", shared, each);
    row("replicated: shared / each, disk", cold(shared), cold(each));
  }

  // The longest of all ranks, from a meeting on.
  double seconds_of(const std::function<void()>& act) {
    barrier(world_);
    const auto begin = now();
    act();
    return all_reduce(world_, seconds_since(begin), ReduceOp::kMax);
  }
  void row(const char* name, const std::function<void()>& ours, const std::function<void()>& plain) {
    std::vector<double> first, second, ratios;
    ours(), plain();
    for (int round = 0; round < rounds_; ++round) {
      first.push_back(seconds_of(ours));
      second.push_back(seconds_of(plain));
      ratios.push_back(second.back() / first.back());
    }
    const double all = double(bytes()) * world_.size() / 1e9;
    figures_[name] = {{"seconds", median(first)}, {"to_plain", median(ratios)}};
    say(fmt::format("{:34} {:12.3f} {:12.3f} {:8.2f}\n", name, all / median(first), all / median(second),
                    median(ratios)));
  }

  // As with checkpoints the old bytes go when the new ones are there: else their pages in memory would be taken again,
  // which is faster than any save can be.
  void write_plain() {
    const std::string fresh = plain_path() + ".new";
    (void)::unlink(fresh.c_str());
    const Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) throw Exception(system_error(errno, "cannot create " + fresh));
    for (const auto& tensor : memory_) {
      const auto all = std::as_bytes(std::span(tensor));
      for (std::size_t at = 0; at < all.size(); at += kBlock)
        write_all(fd.get(), all.subspan(at, std::min(kBlock, all.size() - at)), plain_path()).or_throw();
    }
    if (::fsync(fd.get()) != 0) throw Exception(system_error(errno, "cannot flush " + fresh));
    if (::rename(fresh.c_str(), plain_path().c_str()) != 0)
      throw Exception(system_error(errno, "cannot rename " + fresh));
  }
  void read_plain() {
    const Fd fd = open_file(plain_path()).or_throw();
    std::uint64_t at = 0;
    for (auto& tensor : memory_) {
      const auto all = std::as_writable_bytes(std::span(tensor));
      for (std::size_t done = 0; done < all.size(); done += kBlock)
        read_all(fd.get(), at + done, all.subspan(done, std::min(kBlock, all.size() - done)), plain_path()).or_throw();
      at += all.size();
    }
  }
  void load(VerifyLevel level) {
    const auto reader = CheckpointReader::open(world_, saved(), level).or_throw();
    for (std::size_t t = 0; t < tensors_; ++t) reader.read(boxes_[t].key, boxes_[t].box, memory_[t].data()).or_throw();
  }
  // What the system keeps of the files in memory.
  void forget_pages() {
    std::vector<std::string> paths = {plain_path()};
    std::error_code ignored;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(saved(), ignored))
      if (entry.is_regular_file()) paths.push_back(entry.path());
    for (const auto& path : paths) {
      const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (fd) (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
    barrier(world_);
  }

  // What training waits for. Each save is written, and each copy in memory whole, before the next is asked for: so that
  // a stall is a copy and nothing else.
  void stalls() {
    BackgroundSaver saver(world_, saved(), {.keep = 1});
    saver.prepare(boxes_).or_throw();
    std::int64_t step = 2;
    stall(
        "an asynchronous save", [&] { saver.save(boxes_, {.step = step++}).or_throw(); },
        [&] { saver.finish().or_throw(); });
    if (!KeptMemory::open_given().ok()) return;  // not started by tutti run
    MemoryCopies copies(world_, false);
    copies.prepare(boxes_).or_throw();
    stall(
        "a copy in memory that outlives the ranks", [&] { copies.take(boxes_, {.step = step++}).or_throw(); },
        [&] { copies.wait(); });
  }
  void stall(const char* name, const std::function<void()>& begin, const std::function<void()>& end) {
    PrefaultedMemory copy;
    copy.reserve(bytes()).or_throw();
    std::vector<double> stalls, copies, whole, ratios, faulted;
    for (int round = 0; round < rounds_; ++round) {
      copies.push_back(seconds_of([&] {
        std::byte* at = copy.data();
        for (const auto& tensor : memory_) {
          std::memcpy(at, tensor.data(), tensor.size() * sizeof(float));
          at += tensor.size() * sizeof(float);
        }
      }));
      const long before = faults();
      stalls.push_back(seconds_of(begin));
      faulted.push_back(all_reduce(world_, double(faults() - before), ReduceOp::kMax));
      ratios.push_back(stalls.back() / copies.back());
      whole.push_back(seconds_of(end));
    }
    figures_[fmt::format("stall of {}", name)] = {
        {"seconds", median(stalls)}, {"to_memcpy", median(ratios)}, {"page_faults", faulted}};
    say(fmt::format("stall of {} {:8.2f} ms, memcpy {:8.2f} ms: {:.2f} times; {:.0f} ms later it is done\n", name,
                    median(stalls) * 1e3, median(copies) * 1e3, median(ratios), median(whole) * 1e3));
    say(fmt::format(
        "  page faults in it: {:.0f} in the first, {:.0f} in the middle one of {}, {:.0f} at most; the copy "
        "has {} pages\n",
        faulted.front(), median(faulted), rounds_, *std::max_element(faulted.begin(), faulted.end()),
        bytes() / std::size_t(::sysconf(_SC_PAGESIZE))));
  }

  const Group& world_;
  const std::string folder_;
  const int rounds_;
  const bool json_;
  const std::size_t tensors_;
  nlohmann::ordered_json figures_;
  std::vector<std::vector<float>> memory_;
  std::vector<StateBox> boxes_;
};

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool json = std::erase(arguments, "--json") > 0;
  if (arguments.empty()) {
    fmt::print(stderr, "usage: checkpoint_bench FOLDER [MiB a rank] [rounds] [--json]\n");
    return 2;
  }
  try {
    const auto world = tutti::init();
    const auto mib = arguments.size() > 1 ? std::max(1L, std::atol(arguments[1].c_str())) : 256L;
    const auto rounds = arguments.size() > 2 ? std::max(1, std::atoi(arguments[2].c_str())) : 7;
    tutti::Bench(world, arguments[0], std::size_t(mib), rounds, json).run();
  } catch (const tutti::Exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
