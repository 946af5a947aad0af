// Weights that come and go under tensors that stay. The parameters are views of one storage, and so is what autograd
// has saved of them for backward(). Gathering puts memory under that storage, releasing takes it away: backward()
// then finds in its saved tensors what was gathered anew, and nobody has to tell autograd.
//
// Gradients are packed into one flat range as they come and `.grad` is let go of, so of a block's gradients there is
// one copy at most. One reduce_scatter averages them: in shared memory in rank order, so the bits are those of an
// unsharded step.
#include "tutti/parallel/fully_sharded/sharded_block.h"

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <span>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/parallel/gradients/norm.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr std::int64_t kBlockLine = 64;

Request on(Kind kind, const at::Tensor& like, const void* in, void* out, std::int64_t count) {
  return {.kind = kind,
          .dtype = like.scalar_type() == at::kFloat ? DType::kF32 : DType::kF64,
          .op = ReduceOp::kAvg,
          .in = in,
          .out = out,
          .count = std::size_t(count)};
}

}  // namespace

struct ShardedBlock::Gathering {
  c10::DataPtr memory;
  Work work;
};
struct ShardedBlock::Reducing {
  at::Tensor packed, part;
  Work work;
};

ShardedBlock::ShardedBlock(std::string name, std::vector<NamedTensor> parameters, const Groups& groups, int number,
                           bool shared)
    : name_(std::move(name)), groups_(groups), parameters_(std::move(parameters)) {
  if (parameters_.empty()) return;
  const Group& group = groups_.reductions;
  const auto type = parameters_.front().tensor.scalar_type();
  const auto options = at::TensorOptions(type);
  const std::int64_t size = std::int64_t(options.dtype().itemsize()), line = kBlockLine / size, ranks = group.size();
  std::int64_t count = 0;
  for (const auto& [parameter, tensor] : parameters_) {
    updated_dtype(tensor, "FullySharded: parameter " + parameter);
    TUTTI_REQUIRE(tensor.scalar_type() == type, "FullySharded: block ", name_, " has parameters of different types, ",
                  parameters_.front().name, " ", describe(parameters_.front().tensor), " and ", parameter, " ",
                  describe(tensor), "; put them in blocks of their own");
    offsets_.push_back(count);
    count += (tensor.numel() + line - 1) / line * line;
  }
  part_ = (count / line + ranks - 1) / ranks * line;
  const Run own = {part_ * group.rank(), part_};

  if (shared && ranks > 1) {
    const int owner = number % int(ranks);
    std::span<std::byte> mine;
    if (group.rank() == owner) {
      // Where the heap is full nobody can reach what is not there, and the block is gathered instead.
      if (auto memory = group.allocate(std::size_t(part_ * ranks * size)); memory.ok()) {
        memory_ = *std::move(memory);
        mine = {memory_.get(), std::size_t(part_ * ranks * size)};
      }
    }
    if (std::byte* const place = owners_memory(group, owner, mine).or_throw()) {
      shared_ = gathered_ = true;
      flat_ = at::from_blob(place, {part_ * ranks}, options);
    }
  }
  if (!shared_) flat_ = at::empty({part_ * ranks}, options);
  broadcast_values(group, parameters_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor tensor = parameters_[i].tensor;
    const at::Tensor view = flat_.as_strided(tensor.sizes(), tensor.strides(), offsets_[i]);
    if (!shared_ || group.rank() == number % int(ranks)) view.copy_(tensor.detach());
    tensor.set_data(view);
    if (!tensor.requires_grad()) continue;
    Shard shard{.name = parameters_[i].name, .weight = tensor.detach(), .large = false};
    shard.dtype = type == at::kFloat ? DType::kF32 : DType::kF64;
    const std::int64_t begin = std::max(own.begin, offsets_[i]),
                       end = std::min(own.end(), offsets_[i] + tensor.numel());
    if (end > begin) shard.mine = {begin - offsets_[i], end - begin};
    trained_.push_back(i);
    shards_.push_back(std::move(shard));
  }
  came_.assign(shards_.size(), false);
  own_ = flat_.narrow(0, own.begin, own.count);
  if (shared_) {
    barrier(group);
  } else {
    own_ = own_.clone();
    gathered_ = true;
    release();
  }
}

ShardedBlock::~ShardedBlock() {
  // What lies elsewhere is about to go: better an empty parameter than one that points nowhere.
  for (auto& parameter : parameters_)
    parameter.tensor.set_data(at::empty({0}, parameter.tensor.options().requires_grad(false)));
}

at::Tensor ShardedBlock::trained(std::size_t shard) const { return parameters_[trained_[shard]].tensor; }

std::byte* ShardedBlock::own_weight(const Shard& shard) const {
  const std::int64_t offset = offsets_[trained_[std::size_t(&shard - shards_.data())]] + shard.mine.begin;
  return static_cast<std::byte*>(own_.data_ptr()) + (offset - part_ * groups_.reductions.rank()) * element_bytes();
}

std::size_t ShardedBlock::weight_bytes() const {
  if (!shared_) return empty() ? 0 : own_.nbytes();
  return memory_ ? flat_.nbytes() : 0;
}

void ShardedBlock::begin_gather() {
  if (empty() || gathered_ || gathering_) return;
  gathering_ = std::make_unique<Gathering>();
  gathering_->memory = c10::GetCPUAllocator()->allocate(flat_.nbytes());
  gathering_->work =
      groups_.gathers.submit(on(Kind::kAllGather, own_, own_.data_ptr(), gathering_->memory.get(), part_));
}

void ShardedBlock::gather() {
  if (empty() || gathered_) return;
  begin_gather();
  gathering_->work.get();
  flat_.storage().set_data_ptr(std::move(gathering_->memory));
  gathering_.reset();
  gathered_ = true;
}

void ShardedBlock::release() {
  if (empty() || shared_) return;
  if (gathering_) gathering_->work.get();
  gathering_.reset();
  if (gathered_) flat_.storage().set_data_ptr(c10::DataPtr(nullptr, c10::DeviceType::CPU));
  gathered_ = false;
}

void ShardedBlock::keep_own_part() {
  if (!empty() && !shared_ && gathered_) own_.copy_(flat_.narrow(0, part_ * groups_.reductions.rank(), part_));
}

void ShardedBlock::take_gradient(std::size_t shard, NonFiniteWatch& watch, std::size_t number) {
  at::Tensor parameter = trained(shard);
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) return;
  TUTTI_REQUIRE(gradient.layout() == at::kStrided, "FullySharded: the gradient of ", shards_[shard].name,
                " is sparse; expected a dense one");
  if (!packed_.defined()) packed_ = at::empty(flat_.sizes(), options());
  const auto place = packed_.as_strided(parameter.sizes(), parameter.strides(), offsets_[trained_[shard]]);
  if (came_[shard]) {
    place.add_(gradient);
  } else {
    place.copy_(gradient);
  }
  came_[shard] = true;
  gradient = at::Tensor();
  const auto dtype = parameter.scalar_type() == at::kDouble ? DType::kF64 : DType::kF32;
  if (!squares_of(dtype, place.data_ptr(), std::size_t(parameter.numel())).finite())
    watch.note(groups_.reductions, {number, groups_.reductions.rank()});
}

void ShardedBlock::begin_reduce() {
  if (shards_.empty()) return;
  if (!packed_.defined()) packed_ = at::empty(flat_.sizes(), options());
  std::int64_t filled = 0;  // the gaps between what came
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (!came_[k]) continue;
    const std::int64_t offset = offsets_[trained_[k]];
    packed_.narrow(0, filled, offset - filled).zero_();
    filled = offset + shards_[k].weight.numel();
  }
  packed_.narrow(0, filled, packed_.numel() - filled).zero_();
  came_.assign(shards_.size(), false);
  end_reduce();
  reducing_ = std::make_unique<Reducing>();
  reducing_->packed = std::exchange(packed_, {});
  reducing_->part = at::empty({part_}, options());
  const auto request = on(Kind::kReduceScatter, own_, reducing_->packed.data_ptr(), reducing_->part.data_ptr(), part_);
  if (!shared_ && groups_.reductions.size() > 1) {
    reducing_->work = groups_.reductions.submit(request);
  } else {
    groups_.reductions.run(request).or_throw();
    end_reduce();
  }
}

void ShardedBlock::end_reduce() {
  if (!reducing_) return;
  reducing_->work.get();
  if (averages_.defined())
    averages_.add_(reducing_->part);
  else
    averages_ = std::move(reducing_->part);
  reducing_.reset();
}

void ShardedBlock::place_averages() {
  for (auto& shard : shards_) {
    shard.averaged = true;
    shard.mine_average =
        static_cast<std::byte*>(averages_.data_ptr()) + (own_weight(shard) - static_cast<std::byte*>(own_.data_ptr()));
  }
}

void ShardedBlock::forget_gradients() {
  end_reduce();
  averages_ = packed_ = at::Tensor();
  came_.assign(shards_.size(), false);
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    shards_[k].end_step();
    trained(k).mutable_grad() = at::Tensor();
  }
}

}  // namespace tutti
