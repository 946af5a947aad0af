// The verbs of the backend: each checks its tensors and becomes Requests.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <algorithm>

#include "backend.h"
#include "tutti/base/deadline.h"

namespace tutti::python {

using std::chrono::milliseconds;

namespace {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 14
constexpr auto kAllGatherIntoTensorCoalesced = c10d::OpType::ALLGATHER_COALESCED;
#else
constexpr auto kAllGatherIntoTensorCoalesced = c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED;
#endif

const at::Tensor& only(const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "tutti: requires a single tensor, got ", tensors.size());
  return tensors.front();
}

}  // namespace

template <class OptionsOfVerb>
TuttiBackend::WorkHandle TuttiBackend::start(CallOwner call, const OptionsOfVerb& options) {
  return start(std::move(call), options.asyncOp, options.timeout, /*is_collective=*/true);
}

TuttiBackend::WorkHandle TuttiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::BROADCAST, "tutti:broadcast", tensors);
  const at::Tensor buffer = rank_ == options.rootRank ? call->input(only(tensors)) : call->output(only(tensors));
  const Elements elements = elements_of(buffer);
  call->requests.push_back({.kind = Kind::kBroadcast,
                            .dtype = elements.dtype,
                            .root = std::int32_t(options.rootRank),
                            .out = buffer.data_ptr(),
                            .count = std::size_t(buffer.numel()) * elements.per});
  call->results = tensors;
  return start(std::move(call), options);
}

void TuttiBackend::add_all_reduce(Call& call, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const at::Tensor buffer = call.in_place(call.reducible(tensor, /*is_output=*/true));
  const DType dtype = reduced_type_of(buffer);
  const Reduction reduction = reduction_of(op);
  call.requests.push_back({.kind = Kind::kAllReduce,
                           .dtype = dtype,
                           .op = reduction.op,
                           .in = buffer.data_ptr(),
                           .out = buffer.data_ptr(),
                           .count = std::size_t(buffer.numel()),
                           .factor = reduction.factor});
  call.results.push_back(tensor);
}

TuttiBackend::WorkHandle TuttiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (only(tensors).is_sparse()) return allreduce_sparse(tensors, options);
  auto call = std::make_unique<Call>(c10d::OpType::ALLREDUCE, "tutti:all_reduce", tensors);
  add_all_reduce(*call, tensors.front(), options.reduceOp);
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::allreduce_coalesced(Tensors& tensors,
                                                           const c10d::AllreduceCoalescedOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::ALLREDUCE_COALESCED, "tutti:all_reduce", tensors);
  for (const at::Tensor& tensor : tensors) add_all_reduce(*call, tensor, options.reduceOp);
  return start(std::move(call), options);
}

// Every rank gets the indices and values of all ranks, and adds them up in the order of the ranks. How many these are
// has to be known before the rest can be numbered among the calls of the group. So this waits until all ranks have
// called.
TuttiBackend::WorkHandle TuttiBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "tutti: all_reduce of sparse tensors can only add");
  const Deadline deadline = Deadline::after(limit_of(options.timeout));
  auto call = std::make_unique<Call>(c10d::OpType::_ALLREDUCE_SPARSE, "tutti:all_reduce", tensors);
  const at::Tensor mine = only(tensors).coalesce();
  const at::Tensor indices = call->input(mine.indices().t()), values = call->input(mine.values());
  const DType dtype = reduced_type_of(values);
  const Group group = this->group();
  const std::int64_t count = mine._nnz(), width = indices.size(1);
  std::int64_t row = 1;
  for (std::int64_t i = 1; i < values.dim(); ++i) row *= values.size(i);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size_));
  or_raise(group.run({.kind = Kind::kAllGather,
                      .dtype = DType::kI64,
                      .in = &count,
                      .out = counts.data(),
                      .count = 1,
                      .limit = std::max<Duration>(deadline.remaining(), milliseconds(1))}));
  std::int64_t all = 0;
  std::vector<std::size_t> of_indices, of_values;
  for (const std::int64_t one : counts) {
    all += one;
    of_indices.push_back(std::size_t(one * width));
    of_values.push_back(std::size_t(one * row));
  }
  auto shape = values.sizes().vec();
  shape[0] = all;
  const at::Tensor all_indices = call->output(at::empty({all, width}, indices.options()));
  const at::Tensor all_values = call->output(at::empty(shape, values.options().requires_grad(false)));
  call->requests.push_back({.kind = Kind::kAllGatherV,
                            .dtype = DType::kI64,
                            .in = indices.data_ptr(),
                            .out = all_indices.data_ptr(),
                            .count = std::size_t(count * width),
                            .out_splits = call->keep(std::move(of_indices))});
  call->requests.push_back({.kind = Kind::kAllGatherV,
                            .dtype = dtype,
                            .in = values.data_ptr(),
                            .out = all_values.data_ptr(),
                            .count = std::size_t(count * row),
                            .out_splits = call->keep(std::move(of_values))});
  call->at_end([result = tensors.front(), all_indices, all_values] {
    const at::NoGradGuard no_grad;
    result.copy_(at::sparse_coo_tensor(all_indices.t(), all_values, result.sizes()).coalesce());
  });
  call->results = tensors;
  return start(std::move(call), options.asyncOp, std::chrono::ceil<milliseconds>(deadline.remaining()),
               /*is_collective=*/true);
}

TuttiBackend::WorkHandle TuttiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::REDUCE, "tutti:reduce", tensors);
  const bool is_root = rank_ == options.rootRank;
  const at::Tensor typed = call->reducible(only(tensors), is_root);
  const at::Tensor buffer = is_root ? call->in_place(typed) : call->input(typed);
  const DType dtype = reduced_type_of(buffer);
  const Reduction reduction = reduction_of(options.reduceOp);
  call->requests.push_back({.kind = Kind::kReduce,
                            .dtype = dtype,
                            .op = reduction.op,
                            .root = std::int32_t(options.rootRank),
                            .in = buffer.data_ptr(),
                            .out = is_root ? buffer.data_ptr() : nullptr,
                            .count = std::size_t(buffer.numel()),
                            .factor = reduction.factor});
  call->results = tensors;
  return start(std::move(call), options);
}

void TuttiBackend::add_all_gather(Call& call, const Tensors& outputs, const at::Tensor& input) {
  TORCH_CHECK(int(outputs.size()) == size_, "tutti: all_gather needs a list of ", size_, " tensors, got ",
              outputs.size());
  const Elements elements = elements_of(input);
  std::vector<std::size_t> splits;
  for (const at::Tensor& output : outputs) {
    require_type("all_gather", output, input.scalar_type());
    splits.push_back(std::size_t(output.numel()) * elements.per);
  }
  const bool even = std::all_of(splits.begin(), splits.end(), [&](std::size_t split) { return split == splits[0]; });
  const std::size_t count = std::size_t(input.numel()) * elements.per;
  TORCH_CHECK(splits[std::size_t(rank_)] == count,
              "tutti: all_gather: this rank's output has another size than its input");
  Request request{.kind = even ? Kind::kAllGather : Kind::kAllGatherV,
                  .dtype = elements.dtype,
                  .in = call.input(input).data_ptr(),
                  .out = call.outputs_as_one(outputs).data_ptr(),
                  .count = count};
  if (!even) request.out_splits = call.keep(std::move(splits));
  call.requests.push_back(request);
  call.results.insert(call.results.end(), outputs.begin(), outputs.end());
}

TuttiBackend::WorkHandle TuttiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::ALLGATHER, "tutti:all_gather", inputs);
  TORCH_CHECK(outputs.size() == 1, "tutti: all_gather needs one list of outputs");
  add_all_gather(*call, outputs.front(), only(inputs));
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::ALLGATHER_COALESCED, "tutti:all_gather", inputs);
  TORCH_CHECK(int(outputs.size()) == size_, "tutti: all_gather needs ", size_, " lists of outputs, got ",
              outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_input;
    for (const Tensors& list : outputs) {
      TORCH_CHECK(list.size() == inputs.size(), "tutti: all_gather: a list of outputs is not as long as the inputs");
      of_input.push_back(list[i]);
    }
    add_all_gather(*call, of_input, inputs[i]);
  }
  return start(std::move(call), options);
}

void TuttiBackend::add_all_gather_single(Call& call, const at::Tensor& output, const at::Tensor& input) {
  TORCH_CHECK(output.numel() == input.numel() * size_,
              "tutti: output tensor size must be equal to world_size times input tensor size");
  TORCH_CHECK(output.scalar_type() == input.scalar_type(),
              "tutti: output tensor must have the same type as input tensor");
  const Elements elements = elements_of(input);
  call.requests.push_back({.kind = Kind::kAllGather,
                           .dtype = elements.dtype,
                           .in = call.input(input).data_ptr(),
                           .out = call.output(output).data_ptr(),
                           .count = std::size_t(input.numel()) * elements.per});
  call.results.push_back(output);
}

TuttiBackend::WorkHandle TuttiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::_ALLGATHER_BASE, "tutti:_all_gather_base", Tensors{input});
  add_all_gather_single(*call, output, input);
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::AllgatherOptions& options) {
  auto call = std::make_unique<Call>(kAllGatherIntoTensorCoalesced, "tutti:all_gather", inputs);
  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: all_gather: ", outputs.size(), " outputs for ", inputs.size(),
              " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) add_all_gather_single(*call, outputs[i], inputs[i]);
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::GatherOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::GATHER, "tutti:gather", inputs);
  const at::Tensor input = call->input(only(inputs));
  const Elements elements = elements_of(input);
  Request request{.kind = Kind::kGather,
                  .dtype = elements.dtype,
                  .root = std::int32_t(options.rootRank),
                  .in = input.data_ptr(),
                  .count = std::size_t(input.numel()) * elements.per};
  if (rank_ == options.rootRank) {
    TORCH_CHECK(outputs.size() == 1 && int(outputs.front().size()) == size_,
                "tutti: gather: the root needs one list of ", size_, " tensors");
    for (const at::Tensor& output : outputs.front())
      TORCH_CHECK(output.numel() == input.numel() && output.scalar_type() == input.scalar_type(),
                  "tutti: gather: an output has another size or type than the input");
    request.out = call->outputs_as_one(outputs.front()).data_ptr();
    call->results = outputs.front();
  } else {
    TORCH_CHECK(outputs.empty() || outputs.front().empty(), "tutti: gather: requires empty output on non-root");
  }
  call->requests.push_back(request);
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                     const c10d::GatherOptions& options) {
  const bool is_root = rank_ == options.rootRank;
  auto call = std::make_unique<Call>(c10d::OpType::GATHER, "tutti:gather_single", Tensors{input});
  const at::Tensor in = call->input(input);
  const Elements elements = elements_of(in);
  if (is_root) {
    require_type("gather_single", output, input.scalar_type());
    TORCH_CHECK(output.numel() == input.numel() * size_, "tutti: gather_single: the root's output has ", output.numel(),
                " elements, and needs ", input.numel(), " for each of ", size_, " ranks");
    call->results.push_back(output);
  }
  call->requests.push_back({.kind = Kind::kGather,
                            .dtype = elements.dtype,
                            .root = std::int32_t(options.rootRank),
                            .in = in.data_ptr(),
                            .out = is_root ? call->output(output).data_ptr() : nullptr,
                            .count = std::size_t(input.numel()) * elements.per});
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ScatterOptions& options) {
  const bool is_root = rank_ == options.rootRank;
  auto call = std::make_unique<Call>(c10d::OpType::SCATTER, "tutti:scatter",
                                     is_root && !inputs.empty() ? inputs.front() : Tensors());
  const at::Tensor output = call->output(only(outputs));
  const Elements elements = elements_of(output);
  Request request{.kind = Kind::kScatter,
                  .dtype = elements.dtype,
                  .root = std::int32_t(options.rootRank),
                  .out = output.data_ptr(),
                  .count = std::size_t(output.numel()) * elements.per};
  if (is_root) {
    TORCH_CHECK(inputs.size() == 1 && int(inputs.front().size()) == size_,
                "tutti: scatter: the root needs one list of ", size_, " tensors");
    for (const at::Tensor& input : inputs.front())
      TORCH_CHECK(input.numel() == output.numel() && input.scalar_type() == output.scalar_type(),
                  "tutti: scatter: an input has another size or type than the output");
    request.in = call->inputs_as_one(inputs.front()).data_ptr();
  }
  call->requests.push_back(request);
  call->results = outputs;
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(inputs.size() == 1 && int(inputs.front().size()) == size_, "tutti: reduce_scatter needs one list of ",
              size_, " tensors");
  auto call = std::make_unique<Call>(c10d::OpType::REDUCE_SCATTER, "tutti:reduce_scatter", inputs.front());
  for (const at::Tensor& input : inputs.front()) require_type("reduce_scatter", input, only(outputs).scalar_type());
  const at::Tensor output = call->reducible(outputs.front(), /*is_output=*/true);
  Tensors parts;
  for (const at::Tensor& input : inputs.front()) parts.push_back(call->reducible(input, /*is_output=*/false));
  const Reduction reduction = reduction_of(options.reduceOp);
  std::vector<std::size_t> splits;
  for (const at::Tensor& input : inputs.front()) splits.push_back(std::size_t(input.numel()));
  TORCH_CHECK(splits[std::size_t(rank_)] == std::size_t(output.numel()), "tutti: reduce_scatter: the output has ",
              output.numel(), " elements, and this rank's input ", splits[std::size_t(rank_)]);
  const bool even = std::all_of(splits.begin(), splits.end(), [&](std::size_t split) { return split == splits[0]; });
  Request request{.kind = even ? Kind::kReduceScatter : Kind::kReduceScatterV,
                  .dtype = reduced_type_of(output),
                  .op = reduction.op,
                  .in = call->inputs_as_one(parts).data_ptr(),
                  .out = call->output(output).data_ptr(),
                  .count = std::size_t(outputs.front().numel()),
                  .factor = reduction.factor};
  if (!even) request.in_splits = call->keep(std::move(splits));
  call->requests.push_back(request);
  call->results = outputs;
  return start(std::move(call), options);
}

void TuttiBackend::add_reduce_scatter_single(Call& call, const at::Tensor& output, const at::Tensor& input,
                                             const c10d::ReduceOp& op) {
  TORCH_CHECK(input.numel() == output.numel() * size_,
              "tutti: input tensor must be the same size as output size times world size");
  TORCH_CHECK(output.scalar_type() == input.scalar_type(),
              "tutti: output tensor must have the same type as input tensor");
  const at::Tensor in = call.reducible(input, /*is_output=*/false);
  const at::Tensor out = call.reducible(output, /*is_output=*/true);
  const Reduction reduction = reduction_of(op);
  call.requests.push_back({.kind = Kind::kReduceScatter,
                           .dtype = reduced_type_of(in),
                           .op = reduction.op,
                           .in = call.input(in).data_ptr(),
                           .out = call.output(out).data_ptr(),
                           .count = std::size_t(output.numel()),
                           .factor = reduction.factor});
  call.results.push_back(output);
}

TuttiBackend::WorkHandle TuttiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::_REDUCE_SCATTER_BASE, "tutti:_reduce_scatter_base", Tensors{input});
  add_reduce_scatter_single(*call, output, input, options.reduceOp);
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::ReduceScatterOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "tutti:reduce_scatter", inputs);
  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: reduce_scatter: ", outputs.size(), " outputs for ",
              inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    add_reduce_scatter_single(*call, outputs[i], inputs[i], options.reduceOp);
  return start(std::move(call), options);
}

// Rows of the first dimension, as elements: those given, or the same number for each rank.
std::vector<std::size_t> TuttiBackend::splits_of(const at::Tensor& tensor,
                                                 const std::vector<std::int64_t>& rows) const {
  const std::int64_t all = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::size_t row = all == 0 ? 0 : std::size_t(tensor.numel() / all) * elements_of(tensor).per;
  if (rows.empty()) {
    TORCH_CHECK(all % size_ == 0, "tutti: Tensor's dim 0 does not divide equally across group size");
    return std::vector<std::size_t>(std::size_t(size_), std::size_t(all / size_) * row);
  }
  TORCH_CHECK(int(rows.size()) == size_, "tutti: Number of tensor splits not equal to group size");
  std::int64_t sum = 0;
  std::vector<std::size_t> splits;
  for (const std::int64_t count : rows) {
    TORCH_CHECK(count >= 0, "tutti: a split has ", count, " rows");
    sum += count;
    splits.push_back(std::size_t(count) * row);
  }
  TORCH_CHECK(sum == all, "tutti: Split sizes doesn't match total dim 0 size");
  return splits;
}

// What this rank sends to itself.
void TuttiBackend::require_same_own_part(const Request& all_to_all) const {
  const std::size_t in = all_to_all.in_splits[std::size_t(rank_)], out = all_to_all.out_splits[std::size_t(rank_)];
  TORCH_CHECK(in == out, "tutti: all_to_all: rank ", rank_, " sends ", in, " elements to itself, and receives ", out,
              ": its own part has to be of one size");
}

TuttiBackend::WorkHandle TuttiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                     std::vector<std::int64_t>& output_rows,
                                                     std::vector<std::int64_t>& input_rows,
                                                     const c10d::AllToAllOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::ALLTOALL_BASE, "tutti:all_to_all", Tensors{input});
  TORCH_CHECK(input.scalar_type() == output.scalar_type(), "tutti: all_to_all: Tensors are not equal in data type");
  const Elements elements = elements_of(input);
  Request request{.kind = Kind::kAllToAll,
                  .dtype = elements.dtype,
                  .in = call->input(input).data_ptr(),
                  .out = call->output(output).data_ptr()};
  if (output_rows.empty() && input_rows.empty() && input.numel() == output.numel()) {
    TORCH_CHECK((input.dim() == 0 ? 1 : input.size(0)) % size_ == 0,
                "tutti: Tensor's dim 0 does not divide equally across group size");
    request.count = std::size_t(input.numel()) * elements.per / std::size_t(size_);
  } else {
    request.in_splits = call->keep(splits_of(input, input_rows));
    request.out_splits = call->keep(splits_of(output, output_rows));
    require_same_own_part(request);
  }
  call->requests.push_back(request);
  call->results.push_back(output);
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllToAllOptions& options) {
  TORCH_CHECK(int(outputs.size()) == size_ && int(inputs.size()) == size_, "tutti: all_to_all needs two lists of ",
              size_, " tensors, got ", inputs.size(), " inputs and ", outputs.size(), " outputs");
  auto call = std::make_unique<Call>(c10d::OpType::ALLTOALL, "tutti:all_to_all", inputs);
  for (const Tensors* tensors : {&inputs, &outputs})
    for (const at::Tensor& tensor : *tensors) require_type("all_to_all", tensor, inputs.front().scalar_type());
  const Elements elements = elements_of(inputs.front());
  std::vector<std::size_t> in, out;
  for (const at::Tensor& tensor : inputs) in.push_back(std::size_t(tensor.numel()) * elements.per);
  for (const at::Tensor& tensor : outputs) out.push_back(std::size_t(tensor.numel()) * elements.per);
  call->requests.push_back({.kind = Kind::kAllToAll,
                            .dtype = elements.dtype,
                            .in = call->inputs_as_one(inputs).data_ptr(),
                            .out = call->outputs_as_one(outputs).data_ptr(),
                            .in_splits = call->keep(std::move(in)),
                            .out_splits = call->keep(std::move(out))});
  require_same_own_part(call->requests.back());
  call->results = outputs;
  return start(std::move(call), options);
}

TuttiBackend::WorkHandle TuttiBackend::barrier(const c10d::BarrierOptions& options) {
  auto call = std::make_unique<Call>(c10d::OpType::BARRIER, "tutti:barrier", Tensors());
  call->requests.push_back({.kind = Kind::kBarrier});
  return start(std::move(call), options);
}

// With the sentences that PyTorch's users know. A limit of 0 means at once.
void TuttiBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds limit = std::max(limit_of(options.timeout), milliseconds(1));
  const Status status = group().monitored_barrier(limit);
  if (status.ok()) return;
  Error error = status.error();
  std::string late;
  for (const int r : error.ranks) late += (late.empty() ? "" : ", ") + std::to_string(r);
  std::string sentence = "Rank " + std::to_string(rank_);
  if (rank_ != 0) {
    sentence += " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. ";
  } else if (options.timeout == milliseconds(0) || late.empty()) {
    sentence += " timed out in monitoredBarrier. ";
  } else if (wait_all_ranks) {
    sentence = "Ranks " + late + " failed to pass monitoredBarrier. ";
  } else {
    sentence = "Rank " + std::to_string(error.ranks.front()) + " failed to pass monitoredBarrier. ";
  }
  error.detail = sentence + error.detail;
  raise(error);
}

TuttiBackend::WorkHandle TuttiBackend::send(Tensors& tensors, int peer, int tag) {
  auto call = std::make_unique<Call>(c10d::OpType::SEND, "tutti:send", tensors);
  const at::Tensor input = call->input(only(tensors));
  const Elements elements = elements_of(input);
  call->requests.push_back({.kind = Kind::kSend,
                            .dtype = elements.dtype,
                            .root = peer,
                            .tag = tag,
                            .in = input.data_ptr(),
                            .count = std::size_t(input.numel()) * elements.per});
  return start(std::move(call), /*asynchronous=*/true, c10d::kUnsetTimeout, /*is_collective=*/false);
}

TuttiBackend::WorkHandle TuttiBackend::recv(Tensors& tensors, int peer, int tag) {
  return receive(std::make_unique<Call>(c10d::OpType::RECV, "tutti:recv", tensors), tensors, peer, tag);
}

TuttiBackend::WorkHandle TuttiBackend::recvAnysource(Tensors& tensors, int tag) {
  auto call = std::make_unique<Call>(c10d::OpType::RECVANYSOURCE, "tutti:recvAnySource", tensors);
  return receive(std::move(call), tensors, kAnySource, tag);
}

TuttiBackend::WorkHandle TuttiBackend::receive(CallOwner call, Tensors& tensors, int peer, int tag) {
  const at::Tensor output = call->output(only(tensors));
  const Elements elements = elements_of(output);
  call->requests.push_back({.kind = Kind::kRecv,
                            .dtype = elements.dtype,
                            .root = peer,
                            .tag = tag,
                            .out = output.data_ptr(),
                            .count = std::size_t(output.numel()) * elements.per,
                            .source = peer == kAnySource ? &call->source : nullptr});
  call->results = tensors;
  return start(std::move(call), /*asynchronous=*/true, c10d::kUnsetTimeout, /*is_collective=*/false);
}

}  // namespace tutti::python
