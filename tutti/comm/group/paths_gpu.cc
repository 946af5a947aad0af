// The paths of calls on GPUs: where a rank computes, and NCCL.
//
// Where a rank cannot take part, two ranks use one GPU, or ranks have NCCLs of different versions, NCCL waits, or fails
// with a message that names no rank. So before it is opened, every rank reports to all others whether it could take
// part, with which version, and on which GPU of which machine. A rank that could not is an error on all ranks, which
// names it, and so are versions that differ. If a GPU is shared, the group does without NCCL.
#include <map>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/comm/backends/load.h"
#include "tutti/comm/group/paths.h"

namespace tutti::comm {
namespace {

constexpr const char* kReady = "ready ";
constexpr const char* kCannot = "cannot ";
constexpr Duration kAskAgain = std::chrono::milliseconds(200);

// A call in a group of one.
class Alone final : public comm::Operation {
 public:
  explicit Alone(const Request& request) : request_(request) {}
  Result<comm::Progress> step() override {
    run_alone(request_);
    return comm::Progress::kDone;
  }
  void blockers(comm::Blockers&) const override {}

 private:
  const Request request_;
};

// An operation that the paths keep for the next call of its kind.
class Kept final : public comm::Operation {
 public:
  explicit Kept(comm::Operation& operation) : operation_(operation) {}
  Result<comm::Progress> step() override { return operation_.step(); }
  std::optional<bool> awaits_this_core() const override { return operation_.awaits_this_core(); }
  void blockers(comm::Blockers& blockers) const override { operation_.blockers(blockers); }

 private:
  comm::Operation& operation_;
};

// NCCL refuses versions that differ in any number.
Error versions_differ(const std::map<std::string, std::vector<int>>& ranks_with) {
  std::vector<std::string> parts;
  for (const auto& [version, ranks] : ranks_with)
    parts.push_back(ranks_words(ranks) + (ranks.size() == 1 ? " has " : " have ") + version);
  return Error{.code = Code::kMismatch,
               .detail = "the ranks have NCCLs of different versions: " + join(parts, ", "),
               .hint = "install the same one on all hosts, or name its folder: TUTTI_CUDA_PATH"};
}

}  // namespace

std::string Paths::device() const {
  if (const auto chosen = env("TUTTI_DEVICE")) return *chosen;
  const int gpus = int(visible_gpus(current_environment()).size());
  if (gpus == 0) return "cpu";
  return "cuda:" + std::to_string(process_.world[std::size_t(process_.rank)].machine_rank % gpus);
}

// The CPU's part of a call on a GPU.
Result<std::unique_ptr<comm::Operation>> Paths::start_for_device(const Request& request, std::uint64_t sequence) {
  if (size() == 1) return std::unique_ptr<comm::Operation>(std::make_unique<Alone>(request));
  comm::StartedOperation started = TUTTI_TRY(start(request, sequence));
  if (started.owned) return std::move(started.owned);
  return std::unique_ptr<comm::Operation>(std::make_unique<Kept>(*started.operation));
}

Result<comm::StartedOperation> Paths::start_on_device(const Request& request, std::uint64_t sequence,
                                                      cuda::Event ready) {
  return comm::StartedOperation(TUTTI_TRY(cuda_.start(request, sequence, std::move(ready))));
}

Status Paths::run_alone_on_device(const Request& request) {
  MutexLock lock(alone_mutex_);
  return cuda_.run_alone(request, request.limit.count() ? request.limit : limit_);
}

Result<int> Paths::nccl_device() const {
  const std::string text = device();
  const std::optional<std::int64_t> number = text == "cuda"              ? 0
                                             : text.starts_with("cuda:") ? parse_int(text.substr(5))
                                                                         : std::nullopt;
  if (number && *number >= 0 && *number < 1024) return int(*number);
  if (text != "cpu" || env("TUTTI_DEVICE"))
    return Error{.code = Code::kUsage,
                 .detail = "TUTTI_DEVICE is \"" + text + "\", but the engine nccl needs a GPU",
                 .hint = "such as cuda:0"};
  return Error{
      .code = Code::kUnsupported,
      .detail = "the engine nccl needs a GPU, and no GPU is visible to this rank",
      .hint = "nvidia-smi shows the GPUs, CUDA_VISIBLE_DEVICES may hide them; without one leave cuda:nccl out"};
}

// The version of NCCL, and the GPU that this rank would use: "2.27.3 HOST BUS".
Result<std::string> Paths::nccl_probe(const comm::BackendSetup& setup, int device) const {
  char bus[64] = "";
  TUTTI_TRY(setup.cuda->check(setup.cuda->cudaDeviceGetPCIBusId(bus, sizeof bus, device), "name the GPU"));
  return TUTTI_TRY(comm::probe_backend("nccl", setup)) + " " + boot_id() + " " + bus;
}

Status Paths::open_nccl(Deadline deadline) {
  if (process_.cuda_engine != "nccl") return {};
  comm::BackendSetup setup = backend_setup("nccl", deadline);
  // NCCL leaves the others waiting for a rank that fails, so that rank says so in the store.
  const std::string failed_key = setup.key + "failed";
  setup.is_anybody_lost = [this, failed_key, asked = now()]() mutable {
    if (peers_.is_anybody_lost()) return true;
    if (now() - asked < kAskAgain) return false;
    asked = now();
    const auto failed = process_.store->check({failed_key});
    return failed.ok() && *failed;
  };
  const auto probe = [&]() -> Result<std::string> {
    setup.device = TUTTI_TRY(nccl_device());
    setup.cuda = TUTTI_TRY(cuda::runtime_with(setup.device));
    return nccl_probe(setup, setup.device);
  };
  const Result<std::string> mine = probe();
  const std::string word = mine.ok() ? kReady + *mine : kCannot + to_string(mine.error());
  const auto told = process_.store->gather_all(setup.key + "gpus", rank(), size(), word, deadline);
  if (!mine.ok()) return opening_failed("nccl", mine.error());
  if (!told.ok()) return opening_failed("nccl", told.error());

  std::map<std::string, std::vector<int>> ranks_on, ranks_with;
  for (int r = 0; r < size(); ++r) {
    const std::string& theirs = (*told)[std::size_t(r)];
    if (!theirs.starts_with(kReady))
      return opening_failed("nccl", Error{.code = Code::kUnsupported,
                                          .detail = "cannot take part: " + theirs.substr(std::string(kCannot).size()),
                                          .peer = r});
    const std::string found = theirs.substr(std::string(kReady).size());
    const std::size_t space = found.find(' ');
    ranks_with[found.substr(0, space)].push_back(r);
    ranks_on[found.substr(space + 1)].push_back(r);
  }
  for (const auto& [gpu, ranks] : ranks_on) {
    if (ranks.size() == 1) continue;
    if (rank() == 0)
      log::warn(ranks_words(ranks) + " of group " + spec_.name + " compute on one GPU (" +
                gpu.substr(gpu.rfind(' ') + 1) + "), which NCCL refuses: calls on GPU memory do not use it");
    return {};
  }
  if (ranks_with.size() > 1) return opening_failed("nccl", versions_differ(ranks_with));
  const cuda::OnDevice current(*setup.cuda, setup.device);
  auto opened = comm::open_backend("nccl", setup);
  if (!opened.ok()) {
    Error error = opened.error();
    if (const auto told = process_.store->check({failed_key}); told.ok() && *told && error.code == Code::kPeerLost) {
      const auto theirs = process_.store->get(failed_key, Deadline::after(kAskAgain));
      const std::size_t space = theirs.ok() ? theirs->find(' ') : std::string::npos;
      if (space != std::string::npos && theirs->substr(0, space) != std::to_string(rank()))
        error = Error{.code = Code::kAborted,
                      .detail = "could not open it: " + theirs->substr(space + 1),
                      .peer = int(parse_int(theirs->substr(0, space)).value_or(-1))};
    } else {
      (void)process_.store->set(failed_key, std::to_string(rank()) + " " + to_string(error));
    }
    return opening_failed("nccl", error);
  }
  return cuda_.carry_by(*std::move(opened), setup.device);
}

}  // namespace tutti::comm
