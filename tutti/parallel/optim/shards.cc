// A large parameter is cut for itself. Small ones are cut as if they were one: each begins on a cache line of one flat
// range, the range is cut evenly, and of each parameter a rank has what lies in its part, often nothing. So however
// many small ones a model has, a rank keeps one part in n of their state, and where weights travel they travel
// together.
#include "tutti/parallel/optim/shards.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <span>

#include "tutti/base/error.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/group_tensor.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

constexpr std::int64_t kLine = 64;

// Where the heap is full, and on a GPU, ordinary memory: the weights then travel by collectives.
at::Tensor shared_memory(const Group& group, std::int64_t count, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return at::empty({count}, options);
  auto memory = group.allocate(std::size_t(count) * options.dtype().itemsize());
  if (!memory.ok()) return at::empty({count}, options);
  auto* const data = (*memory).get();
  return at::from_blob(
      data, {count}, [keep = *std::move(memory)](void*) {}, options);
}

void move_to(const at::Tensor& parameter, const at::Tensor& flat, std::int64_t offset) {
  const at::Tensor moved = alias_of(flat, offset, parameter.sizes(), parameter.strides());
  moved.copy_(parameter.detach());
  at::Tensor(parameter).set_data(moved);
}

Run common(Run a, Run b) {
  const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end(), b.end());
  return end > begin ? Run{begin, end - begin} : Run{};
}

using Numbers = std::vector<std::size_t>;  // of parameters

// The small parameters, those of one type on one device together.
std::vector<Numbers> small_by_kind(const std::vector<at::Tensor>& parameters, const Shards& shards) {
  std::vector<Numbers> kinds;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (shards.all[i].large) continue;
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Numbers& numbers) {
      const at::Tensor& first = parameters[numbers.front()];
      return first.scalar_type() == parameters[i].scalar_type() && first.device() == parameters[i].device();
    });
    (kind == kinds.end() ? kinds.emplace_back() : *kind).push_back(i);
  }
  return kinds;
}

void pack_small(const Group& group, const std::vector<at::Tensor>& parameters, const Numbers& small, Shards& shards) {
  struct Member {
    std::size_t parameter;
    std::int64_t offset;
  };
  std::vector<Member> members;
  std::int64_t count = 0;
  const auto options = parameters[small.front()].options().requires_grad(false);
  const std::int64_t line = kLine / std::int64_t(options.dtype().itemsize()), ranks = group.size();
  for (const std::size_t i : small) {
    members.push_back({i, count});
    count += (parameters[i].numel() + line - 1) / line * line;
  }
  if (count == 0) return;
  Pack pack{.part = (count / line + ranks - 1) / ranks * line};
  pack.weights = shared_memory(group, pack.part * ranks, options).zero_();
  const Run mine = {pack.part * group.rank(), pack.part};
  for (const auto& [parameter, offset] : members) {
    move_to(parameters[parameter], pack.weights, offset);
    Run& own = shards.all[parameter].mine = common(mine, {offset, parameters[parameter].numel()});
    if (own.count > 0) own.begin -= offset;
  }
  shards.packs.push_back(std::move(pack));
}

}  // namespace

Cut cut_evenly(std::int64_t count, std::int64_t element_bytes, int ranks) {
  const std::int64_t line = kLine / element_bytes;
  return {.part = count / ranks / line * line, .ranks = ranks, .count = count};
}

void Shard::end_step() {
  gradient = mine_average = tail_average = at::Tensor();
  averaged = false;
}

Shards make_shards(const Group& group, const std::string& rule, const std::vector<std::string>& names,
                   const std::vector<at::Tensor>& parameters, const std::vector<bool>& large) {
  Shards shards;
  const bool alone = group.size() == 1;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string role = rule + ": parameter " + names[i];
    Shard shard{.name = names[i], .dtype = updated_dtype(parameters[i], role), .large = large[i] || alone};
    if (shard.large) {
      const auto cut = cut_evenly(parameters[i].numel(), shard.element_bytes(), group.size());
      shard.mine = cut.of(group.rank());
      shard.tail = cut.tail();
    }
    shards.all.push_back(std::move(shard));
  }
  if (!alone) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (shards.all[i].large)
        move_to(parameters[i],
                shared_memory(group, parameters[i].numel(), parameters[i].options().requires_grad(false)), 0);
    }
    for (const auto& small : small_by_kind(parameters, shards)) pack_small(group, parameters, small, shards);
    release_idle_tensor_memory();  // where the parameters were: a step makes fewer blocks of their sizes
  }

  std::vector<std::span<std::byte>> buffers;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    shards.all[i].weight = parameters[i].detach();
    buffers.push_back(host_bytes(parameters[i]));
  }
  const auto memory = peer_memory(group, buffers).or_throw();
  const auto ranks = std::size_t(group.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto* const places = memory.data() + i * ranks;
    if (places[0]) shards.all[i].weights.assign(places, places + ranks);
  }
  return shards;
}

}  // namespace tutti
