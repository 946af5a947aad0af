// Autograd has one task here: to run three things in the right order. A batch is posted, the bottom MLP computes, the
// rows are awaited; backward has to send the gradients of the rows, run the bottom MLP back meanwhile, and then wait
// for the gradients of others. Autograd's engine runs nodes in the reverse of the order in which they were made, so a
// node for the bottom MLP, made between post() and wait(), is enough. All else is called by hand, and its gradients are
// written where they belong.
#include "tutti/models/dlrm/model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "tutti/models/dlrm/initial_weights.h"
#include "tutti/models/dlrm/interaction.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/collectives.h"
#include "tutti/trace/region.h"

namespace tutti::dlrm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::string dimensions_text(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

// The bottom MLP as a node. The anchor is an empty tensor that requires a gradient: without it there would be no node.
struct BottomNode : torch::autograd::Function<BottomNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*anchor*/, const at::Tensor& dense, Mlp* mlp) {
    const Region region("DLRM bottom nlp forward", [&] { return dimensions_text(dense); });
    context->saved_data["mlp"] = std::int64_t(reinterpret_cast<std::intptr_t>(mlp));
    return mlp->forward(dense);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Region region("DLRM bottom nlp backward");
    auto* mlp = reinterpret_cast<Mlp*>(std::intptr_t(context->saved_data["mlp"].toInt()));
    mlp->backward(gradients[0], false);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

std::vector<DenseParameters::Entry> dense_entries(const Architecture& architecture) {
  auto entries = Mlp::entries("bot_l", architecture.bottom);
  const auto top = Mlp::entries("top_l", architecture.top);
  entries.insert(entries.end(), top.begin(), top.end());
  for (std::size_t i = 0; i < architecture.features.size(); ++i) {
    const auto& feature = architecture.features[i];
    if (feature.kind == FeatureKind::kProjected) {
      entries.push_back({.name = fmt::format("emb_l.{}.proj.weight", i),
                         .shape = {architecture.dim, architecture.tables[feature.table].dim}});
    }
  }
  return entries;
}

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

DotShape dot_shape(const Architecture& architecture) {
  return {std::size_t(architecture.vectors()), std::size_t(architecture.dim), architecture.itself};
}

EmbeddingOptions table_options(const Architecture& architecture, const ModelOptions& options) {
  auto made = options.tables;
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

std::vector<TableSpec> table_specs(const Architecture& architecture, double lookups) {
  std::vector<TableSpec> specs(architecture.tables.size());
  for (std::size_t i = 0; i < architecture.features.size(); ++i) {
    const auto& feature = architecture.features[i];
    const auto spec = [&](std::size_t table, const char* part) {
      const auto& shape = architecture.tables[table];
      specs[table] = {
          .name = fmt::format("table_{}{}", i, part), .rows = shape.rows, .dim = shape.dim, .lookups = lookups};
    };
    const bool divided = feature.kind == FeatureKind::kQuotientRemainder;
    spec(feature.table, divided ? "_quotient" : "");
    if (divided) spec(feature.table + 1, "_remainder");
  }
  return specs;
}

// Of a batch, from forward() to learn().
struct Model::Kept {
  at::Tensor x;                     // of the bottom MLP, part of the graph
  std::vector<at::Tensor> vectors;  // of the features, likewise
};

Model::Model(const Group& world, const Architecture& architecture, TablePlacement placement,
             const ModelOptions& options)
    : architecture_(architecture),
      type_(options.type == RealType::kFloat64 ? at::kDouble : at::kFloat),
      kept_(std::make_unique<Kept>()) {
  if (world && world.size() > 1) {
    dense_group_ = world.split(0, world.rank(), "dense").or_throw();
    table_group_ = world.split(0, world.rank(), "tables").or_throw();
  }
  install_caching_allocator();
  {
    std::unique_ptr<HeapTensors> heap;  // the all_reduce then works where the gradients lie
    if (dense_group_) heap = std::make_unique<HeapTensors>(dense_group_);
    dense_ = std::make_unique<DenseParameters>(type_, options.optimizer, dense_entries(architecture_));
  }
  bottom_ = std::make_unique<Mlp>(*dense_, "bot_l", architecture_.bottom, false);
  top_ = std::make_unique<Mlp>(*dense_, "top_l", architecture_.top, true);
  projections_.resize(architecture_.features.size());
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    if (architecture_.features[i].kind != FeatureKind::kProjected) continue;
    auto& entry = dense_->find(fmt::format("emb_l.{}.proj.weight", i));
    projections_[i] = entry.value.detach().requires_grad_();
    projections_[i].mutable_grad() = entry.gradient;  // autograd adds to it in place
  }
  if (options.packed_bits == 32) {
    tables_ = std::make_unique<ShardedEmbeddings>(table_specs(architecture_, 1), std::move(placement), table_group_,
                                                  table_options(architecture_, options));
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
  auto entry = dense_->entries().begin();  // bottom, then top, as they are drawn
  for (const auto* sizes : {&architecture_.bottom, &architecture_.top}) {
    draw_layers(stream, *sizes, [&](std::span<const double> values, std::int64_t out, std::int64_t in) {
      entry->value.copy_(in > 0 ? real(values, {out, in}) : real(values, {out}));
      ++entry;
    });
  }
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    if (!projections_[i].defined()) continue;
    const auto columns = architecture_.tables[architecture_.features[i].table].dim;
    const auto values = draw_projection(seed, i, architecture_.dim, columns);
    dense_->find(fmt::format("emb_l.{}.proj.weight", i)).value.copy_(real(values, {architecture_.dim, columns}));
  }
}

std::vector<at::Tensor> Model::vectors_of(const std::vector<at::Tensor>& rows) const {
  std::vector<at::Tensor> vectors;
  for (std::size_t i = 0; i < architecture_.features.size(); ++i) {
    const auto& feature = architecture_.features[i];
    const auto& first = rows[feature.table];
    switch (feature.kind) {
      case FeatureKind::kPlain:
        vectors.push_back(first);
        break;
      case FeatureKind::kProjected:
        vectors.push_back(first.mm(projections_[i].t()));
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
  const Region region("DLRM interaction forward", [&] { return dimensions_text(x); });
  std::vector<at::Tensor> all = {x.detach()};
  for (const auto& vector : vectors) all.push_back(with_dense_rows(vector.detach()));
  if (architecture_.interaction == Interaction::kCat) return at::cat(all, 1);
  const auto out = at::empty({x.size(0), architecture_.interactions()}, type_);
  if (type_ == at::kDouble) {
    dot_forward<double>(dot_shape(architecture_), all, out);
  } else {
    dot_forward<float>(dot_shape(architecture_), all, out);
  }
  return out;
}

ShardedEmbeddings::Pending Model::post(const ModelBatch& batch) {
  const Region region("DLRM embedding forward", [&] { return fmt::format("{} samples", batch.samples); });
  return tables_->post(batch.samples, batch.lookups, batch.number);
}

std::vector<at::Tensor> Model::wait(const ShardedEmbeddings::Pending& pending) {
  const Region region("DLRM alltoall_wait_fwd_single");
  return vectors_of(tables_->wait(pending));
}

at::Tensor Model::forward(const ModelBatch& batch) {
  const Region region("DLRM forward", [&] { return dimensions_text(batch.dense); });
  const auto pending = post(batch);
  const auto anchor = at::empty({0}, type_).requires_grad_();
  kept_->x = BottomNode::apply(anchor, batch.dense, bottom_.get());
  kept_->vectors = wait(pending);
  const at::NoGradGuard no_grad;
  const auto joined = interact(kept_->x, kept_->vectors);
  const Region top("DLRM top nlp forward", [&] { return dimensions_text(joined); });
  return top_->forward(joined);
}

std::vector<at::Tensor> Model::pooled(const ModelBatch& batch) const {
  const Region region("DLRM embedding forward", [&] { return fmt::format("{} samples", batch.samples); });
  std::vector<at::Tensor> rows;
  for (std::size_t table = 0; table < packed_.size(); ++table)
    rows.push_back(packed_[table].pool(batch.lookups[table]).to(type_));
  return rows;
}

at::Tensor Model::predict(const ModelBatch& batch) {
  const Region region("DLRM forward", [&] { return dimensions_text(batch.dense); });
  const at::NoGradGuard no_grad;
  const auto pending = tables_ ? post(batch) : ShardedEmbeddings::Pending();
  const auto x = small_bottom_ ? small_bottom_->infer(batch.dense) : bottom_->infer(batch.dense);
  const auto joined = interact(x, tables_ ? wait(pending) : vectors_of(pooled(batch)));
  return small_top_ ? small_top_->infer(joined) : top_->infer(joined);
}

void Model::quantise(int mlp_bits, int table_bits) {
  if (mlp_bits != 32) {
    small_bottom_ = std::make_unique<QuantisedMlp>(*bottom_, mlp_bits);
    small_top_ = std::make_unique<QuantisedMlp>(*top_, mlp_bits);
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
  const Region region("DLRM backward", [&] { return dimensions_text(gradient); });
  for (const auto& projection : projections_) {
    if (projection.defined()) projection.grad().zero_();  // autograd adds to these
  }
  variable_list results = {kept_->x}, gradients;
  results.insert(results.end(), kept_->vectors.begin(), kept_->vectors.end());
  {
    const at::NoGradGuard no_grad;
    const auto joined = [&] {
      const Region top("DLRM top nlp backward", [&] { return dimensions_text(gradient); });
      return top_->backward(gradient, true);
    }();
    const Region interaction("DLRM interaction backward");
    if (architecture_.interaction == Interaction::kCat) {
      gradients = joined.split(architecture_.dim, 1);
    } else {
      std::vector<at::Tensor> all;
      for (const auto& result : results) {
        all.push_back(with_dense_rows(result.detach()));
        gradients.push_back(at::empty(all.back().sizes(), type_));
      }
      if (type_ == at::kDouble) {
        dot_backward<double>(dot_shape(architecture_), all, joined, gradients);
      } else {
        dot_backward<float>(dot_shape(architecture_), all, joined, gradients);
      }
    }
  }
  tables_->set_lr(learning_rate);
  *kept_ = {};
  torch::autograd::backward(results, gradients);
  const at::NoGradGuard no_grad;
  if (dense_group_) {
    const Region reduce("DLRM all_reduce of MLPs");
    all_reduce(dense_group_, dense_->gradients());
  }
  const Region step("DLRM optimizer step");
  dense_->step(learning_rate);
}

}  // namespace tutti::dlrm
