// The order of the graph's nodes hides the exchange of rows. forward() posts a batch, runs the bottom MLP, and waits
// for the rows. Autograd's engine runs nodes in the reverse of the order in which they were made. So backward sends the
// gradients of the rows, runs the bottom MLP, and then waits for the gradients of other ranks.
//
// DataParallel averages gradients, and the loss is divided by the samples of all ranks: its gradient is multiplied by
// the number of ranks before backward, and so the tables divide what they get by that number.
#include "tutti/models/dlrm/model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <numeric>
#include <thread>

#include "tutti/base/deadline.h"
#include "tutti/models/dlrm/initial_weights.h"
#include "tutti/models/dlrm/interaction.h"
#include "tutti/models/dlrm/mlp.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/device_region.h"
#include "tutti/tensor/rank_device.h"
#include "tutti/trace/region.h"

namespace tutti::dlrm {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

constexpr Duration kCopyPatience = std::chrono::minutes(10);

std::string dimensions_text(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

template <class T>
Rows<T> rows_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), std::size_t(tensor.stride(0))};
}

at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.size(1) == 1 || tensor.stride(1) == 1 ? tensor : tensor.contiguous();
}

template <class T>
void dot_forward(const DotShape& shape, const std::vector<at::Tensor>& vectors, const at::Tensor& out) {
  std::vector<Rows<const T>> rows;
  for (const auto& vector : vectors) rows.push_back(rows_of<const T>(vector));
  at::parallel_for(0, out.size(0), 32, [&](std::int64_t begin, std::int64_t end) {
    dot_interaction<T>(shape, rows, rows_of<T>(out), std::size_t(begin), std::size_t(end));
  });
}

template <class T>
void dot_backward(const DotShape& shape, const std::vector<at::Tensor>& vectors, const at::Tensor& gradient,
                  const std::vector<at::Tensor>& gradients) {
  std::vector<Rows<const T>> rows;
  std::vector<Rows<T>> out;
  for (const auto& vector : vectors) rows.push_back(rows_of<const T>(vector));
  for (const auto& tensor : gradients) out.push_back(rows_of<T>(tensor));
  at::parallel_for(0, gradient.size(0), 32, [&](std::int64_t begin, std::int64_t end) {
    dot_interaction_backward<T>(shape, rows, rows_of<const T>(gradient), out, std::size_t(begin), std::size_t(end));
  });
}

// Of the bottom MLP's output and the vectors of the features.
struct DotNode {
  static constexpr const char* kName = "the dot interaction of DLRM";
  using State = DotShape;

  static at::Tensor forward(AutogradContext* context, const DotShape& shape, at::TensorList inputs) {
    variable_list vectors;
    for (const auto& input : inputs) vectors.push_back(with_dense_rows(input));
    const auto out = at::empty({vectors[0].size(0), std::int64_t(shape.width())}, vectors[0].options());
    if (out.scalar_type() == at::kDouble) {
      dot_forward<double>(shape, vectors, out);
    } else {
      dot_forward<float>(shape, vectors, out);
    }
    context->save_for_backward(std::move(vectors));
    return out;
  }

  static variable_list backward(AutogradContext* context, const DotShape& shape, const variable_list& gradients) {
    const Region region("DLRM interaction backward");
    const variable_list vectors = context->get_saved_variables();
    const at::Tensor gradient = with_dense_rows(gradients[0]);
    variable_list results;
    for (const auto& vector : vectors) results.push_back(at::empty(vector.sizes(), vector.options()));
    if (gradient.scalar_type() == at::kDouble) {
      dot_backward<double>(shape, vectors, gradient, results);
    } else {
      dot_backward<float>(shape, vectors, gradient, results);
    }
    return results;
  }
};

// Marks where copies from a GPU end. end() and wait() may be called by different threads, one after the other.
class CopiesFromGpu {
 public:
  // All copies are on the current stream.
  void end(at::Device gpu) {
    copied_.emplace(c10::DeviceType::CUDA);
    copied_->record(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(gpu));
  }
  // Until the copies have ended; not at all if there were none.
  void wait() const {
    for (const auto deadline = Deadline::after(kCopyPatience); copied_ && !copied_->query();) {
      if (deadline.expired()) throw Exception(deadline.error("gradients of pooled rows do not come from the GPU"));
      std::this_thread::yield();
    }
  }

 private:
  std::optional<c10::Event> copied_;
};

// Pooled rows on their way to a GPU, in one copy that the host does not wait for. Their gradients come back in one
// copy. The thread that puts kernels on the stream does not wait for it, but goes on with the bottom MLP; the thread
// that sends the gradients to the ranks with the rows does.
struct RowsToGpu {
  static constexpr const char* kName = "the copy of pooled rows to a GPU";
  struct State {
    at::Device gpu;
    std::shared_ptr<CopiesFromGpu> back;
    std::vector<std::vector<std::int64_t>> sizes{};
  };

  static variable_list forward(AutogradContext* context, State& state, at::TensorList rows) {
    context->set_materialize_grads(false);
    for (const at::Tensor& of_table : rows) state.sizes.push_back(of_table.sizes().vec());
    const at::Tensor packed = at::empty({count_of(state)}, rows[0].options().pinned_memory(true));
    const variable_list parts = parts_of(state, packed);
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].copy_(rows[i]);
    return parts_of(state, packed.to(state.gpu, /*non_blocking=*/true));
  }

  static variable_list backward(AutogradContext*, const State& state, const variable_list& gradients) {
    variable_list flat;
    at::TensorOptions options;
    for (const at::Tensor& gradient : gradients)
      if (gradient.defined()) flat.push_back(gradient.reshape({-1})), options = gradient.options();
    const at::Tensor packed = at::empty({count_of(state)}, options.device(at::kCPU).pinned_memory(true));
    variable_list parts = parts_of(state, packed);
    if (flat.size() == parts.size())
      packed.copy_(at::cat(flat), /*non_blocking=*/true);
    else
      for (std::size_t i = 0; i < parts.size(); ++i)
        gradients[i].defined() ? void(parts[i].copy_(gradients[i], true)) : void(parts[i] = at::Tensor());
    state.back->end(state.gpu);
    return parts;
  }

 private:
  static std::int64_t count_of(const State& state) {
    std::int64_t count = 0;
    for (const auto& sizes : state.sizes) count += c10::multiply_integers(sizes);
    return count;
  }
  static variable_list parts_of(const State& state, const at::Tensor& packed) {
    variable_list parts;
    std::int64_t begin = 0;
    for (const auto& sizes : state.sizes) {
      const std::int64_t count = c10::multiply_integers(sizes);
      parts.push_back(packed.narrow(0, begin, count).view(sizes));
      begin += count;
    }
    return parts;
  }
};

variable_list on_gpu(at::Device gpu, const std::vector<at::Tensor>& rows) {
  const auto back = std::make_shared<CopiesFromGpu>();
  for (const at::Tensor& of_table : rows)
    if (of_table.requires_grad()) of_table.register_hook([back](const at::Tensor&) { back->wait(); });
  return autograd::apply_node<RowsToGpu>({gpu, back}, at::TensorList(rows));
}

// The interaction by ATen's operators.
at::Tensor dot_by_operators(const DotShape& shape, const std::vector<at::Tensor>& vectors) {
  const at::Tensor all = at::stack(vectors, 1);  // [samples, vectors, dim]
  const at::Tensor products = all.matmul(all.transpose(1, 2)).flatten(1);
  const auto count = std::int64_t(shape.vectors);
  const at::Tensor pairs = at::tril_indices(count, count, shape.itself ? 0 : -1, all.options().dtype(at::kLong));
  return at::cat({vectors[0], products.index_select(1, pairs[0] * count + pairs[1])}, 1);
}

DotShape dot_shape(const Architecture& architecture) {
  return {std::size_t(architecture.vectors()), std::size_t(architecture.dim), architecture.itself};
}

UpdateRule dense_rule(const ModelOptions& options) {
  if (options.optimizer == OptimizerKind::kSgd) return SgdOptions{.lr = options.tables.lr};
  return AdagradOptions{.lr = options.tables.lr};  // what row-wise Adagrad is for weights that are not rows
}

EmbeddingOptions table_options(const Architecture& architecture, const ModelOptions& options, int ranks) {
  auto made = options.tables;
  made.gradient_scale /= ranks;
  made.dtype = options.type == RealType::kFloat64 ? DType::kF64 : DType::kF32;
  switch (options.optimizer) {
    case OptimizerKind::kSgd:
      made.rule = TableRule::kSgd;
      break;
    case OptimizerKind::kRowWiseAdagrad:
      made.rule = TableRule::kRowWiseAdagrad;
      break;
    case OptimizerKind::kAdagrad:
      made.rule = TableRule::kAdagrad;
      break;
  }
  switch (architecture.pooling) {
    case WeightedPooling::kNone:
      made.row_weights = RowWeights::kNone;
      break;
    case WeightedPooling::kFixed:
      made.row_weights = RowWeights::kFixed;
      break;
    case WeightedPooling::kLearned:
      made.row_weights = RowWeights::kLearned;
      break;
  }
  return made;
}

}  // namespace

// What every rank has whole, and what trains it.
struct Model::Dense {
  std::shared_ptr<DenseHalf> module;
  std::optional<DataParallel<DenseHalf>> parallel;  // of several ranks
  std::optional<Optimizer> optimizer;
  at::Tensor predictions;  // from forward() to learn()

  at::Tensor forward(const at::Tensor& dense, const std::function<at::Tensor(const at::Tensor&)>& interact) {
    return parallel ? parallel->forward(dense, interact) : module->forward(dense, interact);
  }
};

Model::Model(const Group& world, const Architecture& architecture, TablePlacement placement,
             const ModelOptions& options)
    : architecture_(architecture),
      type_(options.type == RealType::kFloat64 ? at::kDouble : at::kFloat),
      device_(options.device),
      dense_(std::make_unique<Dense>()) {
  if (world && world.size() > 1) table_group_ = world.split(0, world.rank(), "tables").or_throw();
  install_caching_allocator();
  dense_->module = std::make_shared<DenseHalf>(architecture_, type_);
  dense_->module->to(device_);
  if (table_group_) {
    DataParallelOptions parallel;
    parallel.allow_empty_batches = true;
    parallel.finite_check = FiniteCheck::kOff;  // the trainer checks the loss
    dense_->parallel.emplace(dense_->module, world.split(0, world.rank(), "dense").or_throw(), parallel);
  }
  dense_->optimizer.emplace(*dense_->module, dense_rule(options));
  if (options.packed_bits == 32) {
    tables_ = std::make_unique<ShardedEmbeddings>(
        table_specs(architecture_, 1), std::move(placement), table_group_,
        table_options(architecture_, options, table_group_ ? table_group_.size() : 1));
    return;
  }
  TUTTI_REQUIRE(!table_group_ && architecture_.pooling == WeightedPooling::kNone,
                "packed tables are for one process and for rows that all weigh the same");
  for (const auto& table : architecture_.tables) packed_.emplace_back(table.rows, table.dim, options.packed_bits);
}

Model::~Model() = default;

ShardedEmbeddings& Model::tables() {
  TUTTI_INVARIANT(tables_ != nullptr, "packed tables cannot be trained");
  return *tables_;
}

std::vector<std::size_t> Model::my_tables() const {
  if (tables_) return tables_->my_tables();
  std::vector<std::size_t> all(packed_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<std::pair<std::size_t, TableShard>> Model::my_shards() const {
  if (tables_) return tables_->my_shards();
  std::vector<std::pair<std::size_t, TableShard>> shards;
  for (std::size_t i = 0; i < packed_.size(); ++i)
    shards.push_back({i, {.rows = {0, architecture_.tables[i].rows}, .columns = {0, packed_[i].dim()}}});
  return shards;
}

std::int64_t Model::columns(std::size_t table, TableArray array) const {
  if (tables_) return tables_->columns(table, array);
  return array == TableArray::kRows ? packed_[table].dim() : 0;
}

void Model::write_rows(std::size_t table, std::int64_t first, const at::Tensor& rows, TableArray array) {
  if (tables_) {
    tables_->write_rows(table, first, rows, array);
  } else {
    packed_[table].set_rows(first, rows);
  }
}

at::Tensor Model::read_rows(std::size_t table, std::int64_t first, std::int64_t count) const {
  return tables_ ? tables_->read_rows(table, first, count) : packed_[table].rows(first, count);
}

std::size_t Model::packed_bytes() const {
  std::size_t bytes = 0;
  for (const auto& table : packed_) bytes += table.bytes();
  return bytes;
}

void Model::draw_weights(std::uint32_t seed) {
  NumpyRandom stream(seed);
  const auto mine = my_tables();
  std::vector<bool> wanted(architecture_.tables.size());
  for (auto table : mine) wanted[table] = true;
  const auto real = [](std::span<const double> values, std::vector<std::int64_t> shape) {
    return at::from_blob(const_cast<double*>(values.data()), shape, at::kDouble);
  };
  draw_tables(
      stream, architecture_, seed, [&](std::size_t table) { return wanted[table]; },
      [&](std::size_t table, std::int64_t row, std::span<const double> values) {
        const auto dim = architecture_.tables[table].dim;
        write_rows(table, row, real(values, {std::int64_t(values.size()) / dim, dim}));
      });
  const at::NoGradGuard no_grad;
  for (const auto& [mlp, sizes] : {std::pair(dense_->module->bottom(), &architecture_.bottom),
                                   std::pair(dense_->module->top(), &architecture_.top)}) {
    const auto parameters = mlp->parameters();
    auto next = parameters.begin();  // weight, bias, weight, ... as they are drawn
    draw_layers(stream, *sizes, [&](std::span<const double> values, std::int64_t out, std::int64_t in) {
      (next++)->copy_(in > 0 ? real(values, {out, in}) : real(values, {out}));
    });
  }
  const auto& projections = dense_->module->projections();
  for (std::size_t i = 0; i < projections.size(); ++i) {
    if (!projections[i].defined()) continue;
    const auto columns = architecture_.tables[architecture_.features[i].table].dim;
    const auto values = draw_projection(seed, i, architecture_.dim, columns);
    projections[i].copy_(real(values, {architecture_.dim, columns}));
  }
}

std::vector<DenseTensor> Model::dense() const {
  std::vector<DenseTensor> dense;
  for (const auto& [name, parameter] : parameters_of(*dense_->module)) dense.push_back({name, parameter.detach(), {}});
  for (const auto& part : dense_->optimizer->own_state()) {
    if (part.state != "sum") continue;
    for (auto& tensor : dense)
      if (tensor.name == part.parameter) tensor.squares = part.values.view(tensor.value.sizes());
  }
  return dense;
}

std::vector<at::Tensor> Model::vectors_of(std::vector<at::Tensor> rows) const {
  if (!device_.is_cpu()) rows = on_gpu(device_, rows);
  std::vector<at::Tensor> vectors;
  for (std::size_t i = 0; i < architecture_.features.size(); ++i) {
    const auto& feature = architecture_.features[i];
    const auto& first = rows[feature.table];
    switch (feature.kind) {
      case FeatureKind::kPlain:
        vectors.push_back(first);
        break;
      case FeatureKind::kProjected:
        vectors.push_back(first.mm(dense_->module->projections()[i].t()));
        break;
      case FeatureKind::kQuotientRemainder:
        switch (architecture_.qr_operation) {
          case QrOperation::kMult:
            vectors.push_back(first * rows[feature.table + 1]);
            break;
          case QrOperation::kAdd:
            vectors.push_back(first + rows[feature.table + 1]);
            break;
          case QrOperation::kConcat:
            vectors.push_back(at::cat({first, rows[feature.table + 1]}, 1));
            break;
        }
        break;
    }
  }
  return vectors;
}

at::Tensor Model::interact(const at::Tensor& x, const std::vector<at::Tensor>& vectors) const {
  const DeviceRegion region("DLRM interaction forward", device_, [&] { return dimensions_text(x); });
  std::vector<at::Tensor> all = {x};
  all.insert(all.end(), vectors.begin(), vectors.end());
  if (architecture_.interaction == Interaction::kCat) return at::cat(all, 1);
  if (!device_.is_cpu()) return dot_by_operators(dot_shape(architecture_), all);
  return autograd::apply_node<DotNode>(dot_shape(architecture_), at::TensorList(all));
}

ShardedEmbeddings::Pending Model::post(const ModelBatch& batch) {
  const Region region("DLRM embedding forward", [&] { return fmt::format("{} samples", batch.samples); });
  return tables_->post(batch.samples, batch.lookups, batch.number);
}

std::vector<at::Tensor> Model::wait(const ShardedEmbeddings::Pending& pending) {
  const DeviceRegion region("DLRM alltoall_wait_fwd_single", device_);
  return vectors_of(tables_->wait(pending));
}

at::Tensor Model::forward(const ModelBatch& batch) {
  const DeviceRegion region("DLRM forward", device_, [&] { return dimensions_text(batch.dense); });
  const auto pending = post(batch);
  dense_->predictions =
      dense_->forward(copied_to(batch.dense, device_), [&](const at::Tensor& x) { return interact(x, wait(pending)); });
  return dense_->predictions.detach().cpu();
}

std::vector<at::Tensor> Model::pooled(const ModelBatch& batch) const {
  const Region region("DLRM embedding forward", [&] { return fmt::format("{} samples", batch.samples); });
  std::vector<at::Tensor> rows;
  for (std::size_t table = 0; table < packed_.size(); ++table)
    rows.push_back(packed_[table].pool(batch.lookups[table]).to(type_));
  return rows;
}

at::Tensor Model::predict(const ModelBatch& batch) {
  const DeviceRegion region("DLRM forward", device_, [&] { return dimensions_text(batch.dense); });
  const at::NoGradGuard no_grad;
  const auto pending = tables_ ? post(batch) : ShardedEmbeddings::Pending();
  const at::Tensor dense = copied_to(batch.dense, device_);
  const auto x = small_bottom_ ? small_bottom_->infer(dense) : dense_->module->bottom()->forward(dense);
  const auto joined = interact(x, tables_ ? wait(pending) : vectors_of(pooled(batch)));
  return (small_top_ ? small_top_->infer(joined) : dense_->module->top()->forward(joined)).cpu();
}

void Model::quantise(int mlp_bits, int table_bits) {
  if (mlp_bits != 32) {
    small_bottom_ = std::make_unique<QuantisedMlp>(*dense_->module->bottom(), mlp_bits);
    small_top_ = std::make_unique<QuantisedMlp>(*dense_->module->top(), mlp_bits);
  }
  if (table_bits == 32 || !packed_.empty()) return;
  constexpr std::int64_t kRowsAtOnce = 4096;
  for (std::size_t table = 0; table < architecture_.tables.size(); ++table) {
    const auto rows = architecture_.tables[table].rows;
    for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
      const auto values = tables_->read_rows(table, first, std::min(kRowsAtOnce, rows - first));
      round_rows(values, table_bits);
      tables_->write_rows(table, first, values);
    }
  }
}

void Model::learn(const at::Tensor& gradient, double learning_rate) {
  const DeviceRegion region("DLRM backward", device_, [&] { return dimensions_text(gradient); });
  tables_->set_lr(learning_rate);
  std::exchange(dense_->predictions, at::Tensor())
      .backward(copied_to(table_group_ ? gradient * double(table_group_.size()) : gradient, device_));
  if (dense_->parallel) {
    const DeviceRegion reduce("DLRM all_reduce of MLPs", device_);
    dense_->parallel->finish();
  }
  const DeviceRegion step("DLRM optimizer step", device_);
  dense_->optimizer->set_lr(learning_rate);
  dense_->optimizer->step();
  dense_->parallel ? dense_->parallel->zero_grad() : dense_->optimizer->zero_grad();
}

}  // namespace tutti::dlrm
