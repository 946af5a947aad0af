// Weights that come and go under tensors that stay. The parameters are views of one storage, and so is what autograd
// has saved of them for backward(). Gathering puts memory under that storage, releasing takes it away: backward() finds
// the weights that were gathered anew in its saved tensors, and autograd need not know.
//
// Gradients are packed into one flat range as they come and `.grad` is released, so there is one copy of a block's
// gradients at most. One reduce_scatter averages them: in shared memory in rank order, so the bits are those of an
// unsharded step.
#include "tutti/parallel/fully_sharded/sharded_block.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/peer_memory.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/parallel/replicas.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti::fully_sharded {
namespace {

constexpr std::int64_t kBlockLine = 64;

std::int64_t bytes_of(at::ScalarType type) { return std::int64_t(c10::elementSize(type)); }

// Takes the memory from under a storage that tensors share.
c10::DataPtr take_memory(const at::Tensor& tensor) {
  return tensor.storage().set_data_ptr(c10::DataPtr(nullptr, tensor.device()));
}
void put_memory(const at::Tensor& under, const at::Tensor& from) { under.storage().set_data_ptr(take_memory(from)); }

at::Tensor without_memory(std::int64_t count, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty({count}, options);
  take_memory(tensor);
  return tensor;
}

}  // namespace

ShardedBlock::ShardedBlock(std::string name, std::vector<NamedTensor> parameters, const Groups& groups,
                           const Types& types, int number, bool shared)
    : name_(std::move(name)), groups_(groups), parameters_(std::move(parameters)) {
  if (parameters_.empty()) return;
  const Group& group = groups_.reductions;
  const auto type = parameters_.front().tensor.scalar_type(), compute = types.compute.value_or(type);
  reduce_ = types.reduce.value_or(compute);
  const auto options = parameters_.front().tensor.options().requires_grad(false);
  const std::int64_t size = bytes_of(compute), line = kBlockLine / std::min(size, bytes_of(type)), ranks = group.size();
  std::int64_t count = 0;
  for (const auto& [parameter, tensor] : parameters_) {
    updated_dtype(tensor, "FullySharded: parameter " + parameter);
    TUTTI_REQUIRE(tensor.scalar_type() == type, "FullySharded: ", name_.empty() ? "the root" : "block " + name_,
                  " has parameters of different types, ", parameters_.front().name, " ",
                  describe(parameters_.front().tensor), " and ", parameter, " ", describe(tensor),
                  "; put them in blocks of their own");
    TUTTI_REQUIRE(tensor.device() == options.device(), "FullySharded: ", name_.empty() ? "the root" : "block " + name_,
                  " is on several devices, ", parameters_.front().name, " ", describe(parameters_.front().tensor),
                  " and ", parameter, " ", describe(tensor), "; put them in blocks of their own");
    offsets_.push_back(count);
    count += (tensor.numel() + line - 1) / line * line;
  }
  part_ = (count / line + ranks - 1) / ranks * line;

  if (shared && ranks > 1 && options.device().is_cpu()) {
    const int owner = number % int(ranks);
    std::span<std::byte> mine;
    if (group.rank() == owner) {
      // Where the heap is full no peer can reach the memory, and the block is gathered instead.
      if (auto memory = group.allocate(std::size_t(part_ * ranks * size)); memory.ok()) {
        memory_ = *std::move(memory);
        mine = {memory_.get(), std::size_t(part_ * ranks * size)};
      }
    }
    if (std::byte* const place = owners_memory(group, owner, mine).or_throw()) {
      shared_ = gathered_ = true;
      flat_ = at::from_blob(place, {part_ * ranks}, options.dtype(compute));
    }
  }
  if (!shared_) flat_ = at::empty({part_ * ranks}, options.dtype(compute));
  if (groups_.replicas) broadcast_values(groups_.replicas, parameters_);
  broadcast_values(group, parameters_);
  const Run own = {part_ * rank(), part_};
  if (compute != type) own_ = at::zeros({part_}, options);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor tensor = parameters_[i].tensor;
    const Run mine = own_run(i);
    if (compute != type && mine.count > 0)
      own_.narrow(0, offsets_[i] + mine.begin - own.begin, mine.count)
          .copy_(in_order_of_memory(tensor).narrow(0, mine.begin, mine.count));
    const at::Tensor view = view_in(flat_, i);
    if (!shared_ || rank() == number % int(ranks)) view.copy_(tensor.detach());
    tensor.set_data(view);
  }
  whole_ = compute == type ? flat_ : without_memory(part_ * ranks, options);
  sent_ = flat_.narrow(0, own.begin, own.count);
  if (shared_) {
    barrier(group);
  } else {
    sent_ = sent_.clone();
    gathered_ = true;
    release();
  }
  if (compute == type) own_ = sent_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor.requires_grad()) continue;
    const Run mine = own_run(i);
    trained_.push_back(i);
    shards_.push_back({.name = parameters_[i].name,
                       .weight = view_in(whole_, i),
                       .dtype = type == at::kFloat ? DType::kF32 : DType::kF64,
                       .large = false,
                       .mine = mine});
    const at::Tensor local = own_.narrow(0, mine.count > 0 ? offsets_[i] + mine.begin - own.begin : 0, mine.count);
    locals_.push_back(local.detach().requires_grad_());
    places_.add(
        locals_.back(),
        {.parameter = shards_.back().name, .whole = shards_.back().weight, .run = mine, .ranks = groups_.reductions});
  }
  came_.assign(shards_.size(), false);
}

ShardedBlock::~ShardedBlock() {
  if (unsharded_) return;
  // The memory is about to be freed: better an empty parameter than one that points nowhere.
  for (auto& parameter : parameters_)
    parameter.tensor.set_data(at::empty({0}, parameter.tensor.options().requires_grad(false)));
}

Run ShardedBlock::own_run(std::size_t parameter) const {
  const std::int64_t offset = offsets_[parameter], begin = std::max(part_ * rank(), offset),
                     end = std::min(part_ * (rank() + 1), offset + parameters_[parameter].tensor.numel());
  return end > begin ? Run{begin - offset, end - begin} : Run{};
}

at::Tensor ShardedBlock::view_in(const at::Tensor& flat, std::size_t parameter) const {
  const at::Tensor& tensor = parameters_[parameter].tensor;
  return flat.as_strided(tensor.sizes(), tensor.strides(), offsets_[parameter]);
}

void ShardedBlock::set_views(const at::Tensor& flat) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor tensor = parameters_[i].tensor;
    tensor.set_data(view_in(flat, i));
  }
}

at::Tensor ShardedBlock::trained(std::size_t shard) const { return parameters_[trained_[shard]].tensor; }

std::size_t ShardedBlock::weight_bytes() const {
  if (empty()) return 0;
  const std::size_t master = mixed() ? own_.nbytes() : 0;
  if (!shared_) return master + sent_.nbytes();
  return master + (memory_ ? flat_.nbytes() : 0);
}

std::vector<StatePart> ShardedBlock::own_weights() const {
  std::vector<StatePart> parts;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    TUTTI_REQUIRE(tensor.is_contiguous(), "FullySharded: the shards of parameter ", name, ", ", describe(tensor),
                  ", cannot be named by their place: the parameter is not contiguous; use tensor.contiguous() before "
                  "FullySharded is made");
    const Run mine = own_run(i);
    const std::int64_t begin = mine.count > 0 ? offsets_[i] + mine.begin - part_ * rank() : 0;
    parts.push_back({.parameter = name,
                     .state = "",
                     .shape = tensor.sizes().vec(),
                     .begin = mine.begin,
                     .values = own_.narrow(0, begin, mine.count)});
  }
  return parts;
}

void ShardedBlock::begin_gather() {
  if (empty() || gathered_ || gathering_) return;
  gathering_ = {.memory = at::empty(flat_.sizes(), sent_.options()), .work = {}};
  gathering_->work = all_gather_async(groups_.gathers, sent_, gathering_->memory);
}

void ShardedBlock::gather() {
  if (empty() || gathered_) return;
  begin_gather();
  gathering_->work.get_on_stream();
  put_memory(flat_, gathering_->memory);
  gathering_.reset();
  gathered_ = true;
}

void ShardedBlock::release() {
  if (empty() || shared_) return;
  if (gathering_) gathering_->work.get_on_stream();
  gathering_.reset();
  if (gathered_) take_memory(flat_);
  gathered_ = false;
}

void ShardedBlock::publish() {
  if (!empty() && mixed()) sent_.copy_(own_);
}

void ShardedBlock::begin_whole() {
  if (empty()) return;
  if (!mixed()) {
    begin_gather();
    if (gathering_) gathering_->work.get();  // the host will read the weights, or keep them
    return gather();
  }
  const at::Tensor gathered = at::empty(whole_.sizes(), own_.options());
  all_gather(groups_.gathers, own_, gathered);
  put_memory(whole_, gathered);
  set_views(whole_);
}

void ShardedBlock::take_own_part() { own_.copy_(whole_.narrow(0, part_ * rank(), part_)); }

void ShardedBlock::end_whole() {
  if (empty()) return;
  if (mixed()) {
    take_own_part();
    set_views(flat_);
    take_memory(whole_);
    publish();
  } else if (!shared_ && gathered_) {
    take_own_part();
    release();
  }
}

void ShardedBlock::unshard() {
  if (empty()) return;
  if (shared_ && !mixed()) {
    for (auto& parameter : parameters_) parameter.tensor.set_data(parameter.tensor.detach().clone());
  } else {
    begin_whole();
  }
  unsharded_ = true;
}

at::Tensor ShardedBlock::take_gradient(std::size_t shard) {
  at::Tensor parameter = trained(shard);
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) return {};
  TUTTI_REQUIRE(gradient.layout() == at::kStrided, "FullySharded: the gradient of ", shards_[shard].name,
                " is sparse; expected a dense one");
  if (!packed_.defined()) packed_ = at::empty(flat_.sizes(), own_.options().dtype(reduce_));
  const auto place = view_in(packed_, trained_[shard]);
  if (came_[shard]) {
    place.add_(gradient);
  } else {
    place.copy_(gradient);
  }
  came_[shard] = true;
  gradient = at::Tensor();
  return place;
}

void ShardedBlock::begin_reduce() {
  if (shards_.empty()) return;
  if (!packed_.defined()) packed_ = at::empty(flat_.sizes(), own_.options().dtype(reduce_));
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
  reducing_ = {.packed = std::exchange(packed_, {}), .part = {}, .work = {}};
  reducing_->part = at::empty({part_}, reducing_->packed.options());
  if (!shared_ && groups_.reductions.size() > 1) {
    reducing_->work = reduce_scatter_async(groups_.reductions, reducing_->packed, reducing_->part, ReduceOp::kAvg);
  } else {
    reduce_scatter(groups_.reductions, reducing_->packed, reducing_->part, ReduceOp::kAvg);
    pass_on_reduce();
  }
}

void ShardedBlock::pass_on_reduce() {
  if (!reducing_ || reducing_->passed_on) return;
  reducing_->work.get_on_stream();
  reducing_->packed = at::Tensor();
  reducing_->passed_on = true;
  if (groups_.replicas)
    reducing_->work = all_reduce_async(groups_.replicas, reducing_->part, ReduceOp::kAvg);
  else
    end_reduce();
}

void ShardedBlock::end_reduce() {
  if (!reducing_) return;
  if (!reducing_->passed_on) return pass_on_reduce(), end_reduce();
  if (groups_.replicas) reducing_->work.get_on_stream();
  if (averages_.defined())
    averages_.add_(reducing_->part);
  else
    averages_ = reducing_->part.to(own_.scalar_type());
  reducing_.reset();
}

at::Tensor ShardedBlock::average_of(std::size_t shard) const {
  const Run mine = shards_[shard].mine;
  return averages_.narrow(0, mine.count > 0 ? offsets_[trained_[shard]] + mine.begin - part_ * rank() : 0, mine.count);
}

void ShardedBlock::place_averages() {
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    shards_[k].averaged = true;
    shards_[k].mine_average = average_of(k);
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

}  // namespace tutti::fully_sharded
