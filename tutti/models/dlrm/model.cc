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

#include "tutti/models/dlrm/initial_weights.h"
#include "tutti/models/dlrm/interaction.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/collectives.h"

namespace tutti::dlrm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The bottom MLP as a node. The anchor is an empty tensor that requires a gradient: without it there would be no node.
struct BottomNode : torch::autograd::Function<BottomNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*anchor*/, const at::Tensor& dense, Mlp* mlp) {
    context->saved_data["mlp"] = std::int64_t(reinterpret_cast<std::intptr_t>(mlp));
    return mlp->forward(dense);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
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
  tables_ = std::make_unique<ShardedEmbeddings>(table_specs(architecture_, 1), std::move(placement), table_group_,
                                                table_options(architecture_, options));
}

Model::~Model() = default;

void Model::draw_weights(std::uint32_t seed) {
  NumpyRandom stream(seed);
  const auto mine = tables_->my_tables();
  std::vector<bool> wanted(architecture_.tables.size());
  for (auto table : mine) wanted[table] = true;
  const auto real = [](std::span<const double> values, std::vector<std::int64_t> shape) {
    return at::from_blob(const_cast<double*>(values.data()), shape, at::kDouble);
  };
  draw_tables(
      stream, architecture_, seed, [&](std::size_t table) { return wanted[table]; },
      [&](std::size_t table, std::int64_t row, std::span<const double> values) {
        const auto dim = architecture_.tables[table].dim;
        tables_->write_rows(table, row, real(values, {std::int64_t(values.size()) / dim, dim}));
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

at::Tensor Model::forward(const ModelBatch& batch) {
  const auto pending = tables_->post(batch.samples, batch.lookups, batch.number);
  const auto anchor = at::empty({0}, type_).requires_grad_();
  kept_->x = BottomNode::apply(anchor, batch.dense, bottom_.get());
  kept_->vectors = vectors_of(tables_->wait(pending));
  const at::NoGradGuard no_grad;
  return top_->forward(interact(kept_->x, kept_->vectors));
}

at::Tensor Model::predict(const ModelBatch& batch) {
  const at::NoGradGuard no_grad;
  const auto pending = tables_->post(batch.samples, batch.lookups, batch.number);
  const auto x = bottom_->infer(batch.dense);
  return top_->infer(interact(x, vectors_of(tables_->wait(pending))));
}

void Model::learn(const at::Tensor& gradient, double learning_rate) {
  dense_->zero_gradients();
  variable_list results = {kept_->x}, gradients;
  results.insert(results.end(), kept_->vectors.begin(), kept_->vectors.end());
  {
    const at::NoGradGuard no_grad;
    const auto joined = top_->backward(gradient, true);
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
  if (dense_group_) all_reduce(dense_group_, dense_->gradients());
  dense_->step(learning_rate);
}

}  // namespace tutti::dlrm
