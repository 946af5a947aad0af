// A message is one tensor, or, where sizes are negotiated, two: a fixed number of integers, and then the tensor. The
// receive of the integers is posted ahead like any other; that of the tensor follows as soon as somebody looks and
// finds them. As each peer's messages are expected in the order in which it sends them, opening all announcements up to
// the wanted one never waits for something that comes after it.
//
// Where parts travel, each rank of the tensor group has its own pipeline, and they all run one schedule. So they all
// take the same messages in the same order, and the all_gather that puts the parts together is the same call on each.
#include "tutti/parallel/pipeline/messages.h"

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr std::int64_t kMostSizes = 8;

// What is no larger lies in the link until it is taken, and is received then: on the caller's stack, which takes a few
// microseconds. To post its receive ahead would wake the group's engine thread at every action, for nothing.
constexpr std::int64_t kLiesInLink = 16 << 10;  // bytes

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
    case DType::kC64:
    case DType::kC128:
      break;
  }
  throw Exception(invalid_argument(fmt::format("pipeline: stages cannot send {}", name(dtype)),
                                   "activations are f32, f64, f16 or bf16: the others have no gradients"));
}

[[noreturn]] void fail(Error error, const StageMessage& message) {
  error.operation += (error.operation.empty() ? "" : ", ") + to_string(message);
  throw Exception(std::move(error));
}

void wait(const TensorWork& work, const StageMessage& message) {
  if (const Status status = work.wait(); !status.ok()) fail(status.error(), message);
}

}  // namespace

struct StageMessages::Incoming {
  StageMessage message;
  at::Tensor announcement{};  // how many sizes, and the sizes; defined until they were read
  at::Tensor whole{};         // what is returned; undefined until its receive is posted
  at::Tensor piece{};         // of it, flat: what this rank receives
  TensorWork work{};          // of the one that is under way
};

struct StageMessages::Outgoing {
  StageMessage message;
  TensorWork work;
};

StageMessages::StageMessages(const Group& group, MessageOptions options)
    : group_(group), options_(std::move(options)), stages_(group.size()), incoming_(std::size_t(group.size())) {
  (void)scalar_type(options_.dtype);
  TUTTI_REQUIRE(std::int64_t(options_.sizes.size()) <= kMostSizes, "pipeline: activations of ", options_.sizes.size(),
                " dimensions, expected at most ", kMostSizes);
  for (const std::int64_t size : options_.sizes)
    TUTTI_REQUIRE(size >= 0, "pipeline: activations with a size of ", size, ", expected 0 or more");
}

StageMessages::~StageMessages() = default;

void StageMessages::begin(int stages) {
  group_.status().or_throw();
  TUTTI_INVARIANT(outgoing_.empty() &&
                      std::all_of(incoming_.begin(), incoming_.end(), [](const auto& queue) { return queue.empty(); }),
                  "messages of the last step are still under way");
  stages_ = stages;
}

int StageMessages::tag(const StageMessage& message) const { return 2 * number_of(message, stages_); }

at::Tensor StageMessages::piece_of(const at::Tensor& flat) const {
  const int parts = options_.split_over ? options_.split_over.size() : 1;
  if (parts == 1 || flat.numel() % parts != 0) return flat;
  const std::int64_t length = flat.numel() / parts;
  return flat.narrow(0, options_.split_over.rank() * length, length);
}

void StageMessages::check_outgoing(const StageMessage& message, const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.layout() != at::kStrided) require_memory(tensor, to_string(message));  // refuses
  TUTTI_REQUIRE(tensor.scalar_type() == scalar_type(options_.dtype), to_string(message), " is ", describe(tensor),
                ", agreed was ", name(options_.dtype), " (MessageOptions::dtype): convert it with tensor.to()");
  if (options_.sizes.empty()) {
    TUTTI_REQUIRE(tensor.dim() <= kMostSizes, to_string(message), " is ", describe(tensor), ": at most ", kMostSizes,
                  " dimensions can be sent");
    return;
  }
  TUTTI_REQUIRE(tensor.sizes() == at::IntArrayRef(options_.sizes), to_string(message), " is ", describe(tensor),
                ", agreed was ",
                fmt::format("{}[{}] (MessageOptions::sizes): leave the sizes out, and they are negotiated",
                            name(options_.dtype), fmt::join(options_.sizes, ", ")));
}

void StageMessages::announce(const StageMessage& message, const at::Tensor& tensor) {
  at::Tensor sizes = at::zeros({1 + kMostSizes}, at::kLong);
  std::int64_t* const values = sizes.data_ptr<std::int64_t>();
  values[0] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), values + 1);
  outgoing_.push_back({message, isend(group_, sizes, message.to, tag(message))});
}

void StageMessages::send(const StageMessage& message, const at::Tensor& tensor) {
  check_outgoing(message, tensor);
  const at::Tensor dense = tensor.detach().contiguous();
  if (options_.sizes.empty()) announce(message, dense);
  const at::Tensor piece = piece_of(dense.view({dense.numel()}));
  outgoing_.push_back({message, isend(group_, piece, message.to, tag(message) + 1)});
}

void StageMessages::make_place(Incoming& incoming, const std::vector<std::int64_t>& sizes) const {
  incoming.whole = at::empty(sizes, at::TensorOptions(options_.device).dtype(scalar_type(options_.dtype)));
  incoming.piece = piece_of(incoming.whole.view({incoming.whole.numel()}));
}

void StageMessages::receive(Incoming& incoming, const std::vector<std::int64_t>& sizes) {
  make_place(incoming, sizes);
  incoming.work = irecv(group_, incoming.piece, incoming.message.from, tag(incoming.message) + 1);
}

void StageMessages::receive_now(Incoming& incoming) {
  make_place(incoming, options_.sizes);
  try {
    recv(group_, incoming.piece, incoming.message.from, tag(incoming.message) + 1);
  } catch (const Exception& failure) {
    fail(failure.error(), incoming.message);
  }
}

// Reads the announcement, waiting for it, and makes a place for what it announces.
void StageMessages::open(Incoming& incoming) {
  if (!incoming.announcement.defined()) return;
  wait(incoming.work, incoming.message);
  const std::int64_t* const values = incoming.announcement.data_ptr<std::int64_t>();
  const bool sound = values[0] >= 0 && values[0] <= kMostSizes &&
                     std::all_of(values + 1, values + 1 + kMostSizes, [](std::int64_t size) { return size >= 0; });
  TUTTI_INVARIANT(sound, to_string(incoming.message), " was announced with ", values[0], " impossible sizes");
  receive(incoming, {values + 1, values + 1 + values[0]});
  incoming.announcement = at::Tensor();
}

void StageMessages::expect(const StageMessage& message) {
  Incoming incoming{.message = message};
  if (options_.sizes.empty()) {
    incoming.announcement = at::empty({1 + kMostSizes}, at::kLong);
    incoming.work = irecv(group_, incoming.announcement, message.from, tag(message));
  } else if (std::accumulate(options_.sizes.begin(), options_.sizes.end(), std::int64_t(size_of(options_.dtype)),
                             std::multiplies<>()) > kLiesInLink) {
    receive(incoming, options_.sizes);
  }
  incoming_[std::size_t(message.from)].push_back(std::move(incoming));
}

at::Tensor StageMessages::take(const StageMessage& message) {
  auto& queue = incoming_[std::size_t(message.from)];
  const auto wanted =
      std::find_if(queue.begin(), queue.end(), [&](const Incoming& incoming) { return incoming.message == message; });
  TUTTI_INVARIANT(wanted != queue.end(), to_string(message), " was not expected");
  for (auto incoming = queue.begin(); incoming <= wanted; ++incoming) open(*incoming);
  if (wanted->whole.defined())
    wait(wanted->work, message);
  else
    receive_now(*wanted);
  const at::Tensor whole = wanted->whole, piece = wanted->piece;
  queue.erase(wanted);
  if (piece.numel() < whole.numel()) all_gather(options_.split_over, piece, whole.view({whole.numel()}));
  return whole;
}

void StageMessages::look() {
  std::size_t ended = 0;
  for (; ended < outgoing_.size() && outgoing_[ended].work.done(); ++ended)
    wait(outgoing_[ended].work, outgoing_[ended].message);
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + std::ptrdiff_t(ended));
  if (!options_.sizes.empty()) return;
  for (auto& queue : incoming_)
    for (Incoming& incoming : queue)
      if (incoming.announcement.defined() && incoming.work.done()) open(incoming);
}

void StageMessages::finish() {
  for (const Outgoing& outgoing : outgoing_) wait(outgoing.work, outgoing.message);
  outgoing_.clear();
  for (const auto& queue : incoming_)
    TUTTI_INVARIANT(queue.empty(), to_string(queue.front().message), " was expected and never taken");
}

}  // namespace tutti
