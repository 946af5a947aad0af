// Entries are (index, value) pairs. First each rank announces what it brings: an all_gather of a few numbers, from
// which every rank learns whether the tensors match and how many entries each rank has. Then an all_gather_v of indices
// and one of values send a sorted run of entries from every rank. Every rank merges the runs: entries of one index are
// added in the order of ranks. On a GPU the entries stay there, and LibTorch's operators sort and add.
#include "tutti/tensor/sparse_collectives.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/sparse_metadata.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr const char* kVerb = "all_reduce_sparse";
constexpr std::size_t kGrain = 1 << 15;  // elements that a thread adds at least

[[noreturn]] void refuse(const Group& group, Code code, std::string detail, std::string hint, int peer = -1) {
  throw Exception(Error{.code = code,
                        .detail = std::move(detail),
                        .hint = std::move(hint),
                        .group = group.name(),
                        .rank = group.rank(),
                        .operation = kVerb,
                        .peer = peer});
}

void require_kind(const Group& group, const at::Tensor& tensor) {
  const auto no = [&](std::string why, std::string hint) {
    refuse(group, Code::kInvalidArgument, describe(tensor) + why, std::move(hint));
  };
  if (!tensor.defined())
    no(" has no sizes", "a rank without entries gives torch::zeros(sizes, torch::TensorOptions(torch::kSparse))");
  if (tensor.layout() == at::kStrided)
    no(" is dense", "use all_reduce(), or tensor.to_sparse() where few elements are not zero");
  if (tensor.layout() != at::kSparse) no(" is not sparse by coordinates", "convert it with tensor.to_sparse()");
  if (!tensor.device().is_cpu() && !tensor.is_cuda())
    no(" is not on the CPU, nor on a CUDA device", "move it with tensor.to(torch::kCPU)");
  if (tensor.dim() > comm::kMostSparseDimensions)
    no(fmt::format(" has {} dimensions; expected at most {}", tensor.dim(), comm::kMostSparseDimensions),
       "use a tensor of fewer");
}

void require_op(const Group& group, DType dtype, Reduction op) {
  if (op.op != ReduceOp::kSum && op.op != ReduceOp::kAvg && op.op != ReduceOp::kPremulSum)
    refuse(group, Code::kInvalidArgument,
           fmt::format("{} of sparse tensors would need the elements that are not stored", name(op.op)),
           "use sum, avg or premul_sum, or all_reduce() with tensor.to_dense()");
  if (const Status status = comm::check_reduction(dtype, op.op); !status.ok())
    refuse(group, status.error().code, status.error().detail, "use sum, which every type has");
  if (op.op == ReduceOp::kPremulSum && !std::isfinite(op.factor))
    refuse(group, Code::kInvalidArgument, fmt::format("the factor of premul_sum is {}", op.factor),
           "give a finite number");
}

// In which values are sent and added.
at::ScalarType travelling_type(at::ScalarType type) {
  if (type == at::kHalf || type == at::kBFloat16) return at::kFloat;
  return type == at::kBool ? at::kInt : type;
}

// Entries, one a row: indices i64[n, sparse dimensions], contiguous, and values [n, dense...], contiguous.
struct Entries {
  at::Tensor indices, values;
  std::int64_t count() const { return values.size(0); }
};

// The numbers of the entries in the order of their indices; of one index, as they come. They are sorted already from
// each of `runs` (ascending, the first is 0) to the next; none: not at all.
std::vector<std::int64_t> ordered(const Entries& entries, std::vector<std::int64_t> runs) {
  std::vector<std::int64_t> order(std::size_t(entries.count()));
  std::iota(order.begin(), order.end(), 0);
  const auto* const index = entries.indices.data_ptr<std::int64_t>();
  const std::int64_t sparse = entries.indices.size(1);
  const auto before = [=](std::int64_t a, std::int64_t b) {
    const auto *x = index + a * sparse, *y = index + b * sparse;
    return std::lexicographical_compare(x, x + sparse, y, y + sparse);
  };
  if (runs.empty()) std::stable_sort(order.begin(), order.end(), before);
  while (runs.size() > 1) {
    std::vector<std::int64_t> longer;
    for (std::size_t i = 0; i < runs.size(); i += 2) {
      longer.push_back(runs[i]);
      if (i + 1 == runs.size()) break;
      const auto end = i + 2 < runs.size() ? runs[i + 2] : entries.count();
      std::inplace_merge(order.begin() + runs[i], order.begin() + runs[i + 1], order.begin() + end, before);
    }
    runs = std::move(longer);
  }
  return order;
}

// One number for each index, in their order: its place in a dense tensor of the sparse dimensions.
at::Tensor places_of(const at::Tensor& indices, at::IntArrayRef sizes) {
  at::Tensor places = at::zeros({indices.size(0)}, indices.options());
  for (std::int64_t d = 0; d < indices.size(1); ++d) places.mul_(sizes[std::size_t(d)]).add_(indices.select(1, d));
  return places;
}
at::Tensor indices_of(at::Tensor places, std::int64_t sparse, at::IntArrayRef sizes) {
  std::vector<at::Tensor> columns(std::size_t(sparse), places);
  for (std::int64_t d = sparse; d-- > 1;) {
    columns[std::size_t(d)] = places.remainder(sizes[std::size_t(d)]);
    places = places.div(sizes[std::size_t(d)], "floor");
    columns[0] = places;
  }
  return columns.empty() ? at::empty({places.size(0), 0}, places.options()) : at::stack(columns, 1);
}

// As added_up_on_host(). Runs are added one after another, and none has an index twice. So no two threads of the GPU
// add to one value, and the sums have the same bits each time. The host waits once, for the number of indices.
Entries added_up_on_gpu(const Entries& entries, const std::vector<std::int64_t>& runs, at::IntArrayRef sizes) {
  if (entries.count() == 0) return entries;
  const std::int64_t sparse = entries.indices.size(1);
  if (runs.empty()) {
    const at::Tensor sum = at::_sparse_coo_tensor_unsafe(entries.indices.t(), entries.values, sizes).coalesce();
    return {sum._indices().t().contiguous(), sum._values().contiguous()};
  }
  const auto [places, order] = at::_unique(places_of(entries.indices, sizes), /*sorted=*/true, /*return_inverse=*/true);
  auto value_sizes = entries.values.sizes().vec();
  value_sizes[0] = places.size(0);
  const at::Tensor sums = at::zeros(value_sizes, entries.values.options());
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::int64_t count = (r + 1 < runs.size() ? runs[r + 1] : entries.count()) - runs[r];
    sums.index_add_(0, order.narrow(0, runs[r], count), entries.values.narrow(0, runs[r], count));
  }
  return {indices_of(places, sparse, sizes), sums};
}

Entries added_up_on_host(const Entries& entries, std::vector<std::int64_t> runs) {
  const auto order = ordered(entries, std::move(runs));
  const auto* const index = entries.indices.data_ptr<std::int64_t>();
  const std::int64_t sparse = entries.indices.size(1);
  std::vector<std::size_t> firsts;  // in `order`, of each index
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i == 0 ||
        !std::equal(index + order[i] * sparse, index + (order[i] + 1) * sparse, index + order[i - 1] * sparse))
      firsts.push_back(i);

  auto sizes = entries.values.sizes().vec();
  const auto values = checked_bytes(entries.values, "values");
  sizes[0] = std::int64_t(firsts.size());
  const Entries sum{at::empty({sizes[0], sparse}, entries.indices.options()),
                    at::empty(sizes, entries.values.options())};
  const std::size_t width = order.empty() ? 0 : values.count / order.size(), bytes = width * size_of(values.dtype);
  const auto* const from = static_cast<const std::byte*>(values.data);
  auto* const to = static_cast<std::byte*>(checked_bytes(sum.values, "sums").data);
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (auto k = std::size_t(begin); k < std::size_t(end); ++k) {
      const std::size_t past = k + 1 < firsts.size() ? firsts[k + 1] : order.size();
      std::copy_n(index + order[firsts[k]] * sparse, sparse,
                  sum.indices.data_ptr<std::int64_t>() + std::int64_t(k) * sparse);
      if (bytes == 0) continue;
      std::memcpy(to + k * bytes, from + std::size_t(order[firsts[k]]) * bytes, bytes);
      for (std::size_t i = firsts[k] + 1; i < past; ++i)
        comm::reduce_pair(values.dtype, ReduceOp::kSum, to + k * bytes, from + std::size_t(order[i]) * bytes, width);
    }
  };
  at::parallel_for(0, sizes[0], std::int64_t(kGrain / (width + 1) + 1), add);
  return sum;
}

// Each index once, ascending. `runs`: as above; `sizes`: of the sparse tensor.
Entries added_up(const Entries& entries, std::vector<std::int64_t> runs, at::IntArrayRef sizes) {
  if (entries.values.device().is_cpu()) return added_up_on_host(entries, std::move(runs));
  return added_up_on_gpu(entries, runs, sizes);
}

}  // namespace

struct PendingSparse::State {
  Group group;
  Reduction op;
  CallSite at;
  at::ScalarType type;  // of the result
  std::vector<std::int64_t> sizes;
  Entries mine;             // each index once, in the type that is sent
  at::Tensor metadata;      // i64[1, kSparseMetadata]
  at::Tensor all_metadata;  // i64[size(), kSparseMetadata]
  TensorWork announcing;    // goes first
  at::Tensor result{};

  std::vector<comm::SparseMetadata> gathered() const;  // by rank
  void require_alike(const std::vector<comm::SparseMetadata>& all) const;
  void exchange();
};

std::vector<comm::SparseMetadata> PendingSparse::State::gathered() const {
  std::vector<comm::SparseMetadata> all;
  for (int r = 0; r < group.size(); ++r) {
    const std::int64_t* const row =
        all_metadata.data_ptr<std::int64_t>() + std::int64_t(r) * std::int64_t(comm::kSparseMetadata);
    const auto metadata =
        comm::parse_sparse_metadata(std::span<const std::int64_t, comm::kSparseMetadata>(row, comm::kSparseMetadata));
    if (!metadata.ok()) refuse(group, metadata.error().code, metadata.error().detail, metadata.error().hint, r);
    all.push_back(*metadata);
  }
  return all;
}

// Of ranks that differ one is named, the same on all.
void PendingSparse::State::require_alike(const std::vector<comm::SparseMetadata>& all) const {
  std::size_t with_entries = all.size();  // the first that has any
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].entries > 0 && with_entries == all.size()) with_entries = r;
    const bool one_tensor = all[r].is_like(all[0]);
    const bool one_split = all[r].entries == 0 || all[r].sparse_dimensions == all[with_entries].sparse_dimensions;
    if (one_tensor && one_split) continue;
    const std::size_t other = one_tensor ? with_entries : 0;
    refuse(group, Code::kMismatch,
           fmt::format("gave {}, but rank {} gave {}", to_string(all[r]), other, to_string(all[other])),
           "give sparse tensors of one size, element type, number of sparse dimensions and op on every rank", int(r));
  }
}

namespace {

// That of who has entries: others may say what they like.
std::int64_t sparse_dimensions(const std::vector<comm::SparseMetadata>& all) {
  std::int64_t most = 0;
  for (const comm::SparseMetadata& metadata : all) {
    if (metadata.entries > 0) return metadata.sparse_dimensions;
    most = std::max(most, metadata.sparse_dimensions);
  }
  return most;
}

}  // namespace

void PendingSparse::State::exchange() {
  const at::NoGradGuard no_grad;
  announcing.get();
  const std::vector<comm::SparseMetadata> announced = gathered();
  require_alike(announced);
  const std::int64_t sparse = sparse_dimensions(announced);
  std::vector<std::int64_t> value_sizes(sizes.begin() + sparse, sizes.end()), runs;
  std::int64_t width = 1, count = 0;
  for (const auto extent : value_sizes) width *= extent;
  std::vector<std::size_t> index_splits, value_splits;
  for (int r = 0; r < group.size(); ++r) {
    const std::int64_t here = announced[std::size_t(r)].entries;
    runs.push_back(count);
    count += here;
    index_splits.push_back(std::size_t(here * sparse));
    value_splits.push_back(std::size_t(here * width));
  }
  value_sizes.insert(value_sizes.begin(), count);
  const Entries all{at::empty({count, sparse}, mine.indices.options()), at::empty(value_sizes, mine.values.options())};
  if (count > 0) {
    const TensorWork works[] = {all_gather_v_async(group, mine.indices, all.indices, index_splits, at),
                                all_gather_v_async(group, mine.values, all.values, value_splits, at)};
    for (const auto& work : works) work.get();
  }
  const Entries sum = added_up(all, runs, sizes);
  if (op.op == ReduceOp::kAvg && at::isIntegralType(sum.values.scalar_type(), true))
    sum.values.div_(group.size(), "trunc");
  else if (op.op == ReduceOp::kAvg)
    sum.values.div_(group.size());
  const at::Tensor indices = sum.indices.t(), values = sum.values.to(type);
  const auto options = values.options().layout(at::kSparse);
  // On a GPU the indices, which come from sparse tensors of these sizes, are not checked: the host would wait for that.
  result = values.device().is_cpu() ? at::sparse_coo_tensor(indices, values, sizes, options)
                                    : at::_sparse_coo_tensor_unsafe(indices, values, sizes, options);
  result._coalesced_(true);
}

at::Tensor PendingSparse::get() const {
  TUTTI_REQUIRE(state_, "get() of a PendingSparse that no call has returned");
  if (!state_->result.defined()) state_->exchange();
  return state_->result;
}

PendingSparse all_reduce_sparse_async(const Group& group, const at::Tensor& tensor, Reduction op, CallSite at) {
  (void)group.rank();  // throws if there is no group
  require_kind(group, tensor);
  const at::NoGradGuard no_grad;
  const auto given = tensor.detach()._values().resolve_conj().resolve_neg().contiguous();
  const DType dtype = bytes_anywhere(given, fmt::format("values of {}", kVerb)).dtype;
  require_op(group, dtype, op);
  Entries mine{tensor.detach()._indices().t().contiguous(), given.to(travelling_type(given.scalar_type()))};
  if (op.op == ReduceOp::kPremulSum) mine.values = at::mul(mine.values, op.factor);
  if (!tensor.is_coalesced()) mine = added_up(mine, {}, tensor.sizes());

  const comm::SparseRow metadata = comm::to_row({.entries = mine.count(),
                                                 .dtype = dtype,
                                                 .op = op.op,
                                                 .sparse_dimensions = tensor.sparse_dim(),
                                                 .sizes = tensor.sizes()});
  const auto width = std::int64_t(comm::kSparseMetadata);
  const auto own_metadata = at::tensor(at::ArrayRef<std::int64_t>(metadata), at::kLong).view({1, width}),
             all_metadata = at::empty({group.size(), width}, at::kLong);
  const std::shared_ptr<PendingSparse::State> state(
      new PendingSparse::State{.group = group,
                               .op = op,
                               .at = at,
                               .type = tensor.scalar_type(),
                               .sizes = tensor.sizes().vec(),
                               .mine = mine,
                               .metadata = own_metadata,
                               .all_metadata = all_metadata,
                               .announcing = all_gather_async(group, own_metadata, all_metadata, at)});
  return PendingSparse(state);
}

at::Tensor all_reduce_sparse(const Group& group, const at::Tensor& tensor, Reduction op, CallSite at) {
  return all_reduce_sparse_async(group, tensor, op, at).get();
}

}  // namespace tutti
