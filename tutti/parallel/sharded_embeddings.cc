// ShardedTables does the work; here it becomes part of an autograd graph, by two nodes.
//
// post() makes a PostNode, wait() a WaitNode. The PostNode's output is a token, a tensor without elements, which is the
// WaitNode's input. So both nodes are in the graph of every rank, also of one that has no tables. Backward runs the
// WaitNode first: it sends the gradients of all tables. Next come the nodes that were made between post() and wait(),
// because autograd's engine takes the latest of the nodes that are ready. Then the PostNode waits for the gradients of
// this rank's rows, and updates these rows.
#include "tutti/parallel/sharded_embeddings.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <variant>

#include "tutti/embedding/sharded_tables.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/tensor_bytes.h"
#include "tutti/trace/region.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

// A ShardedTables of either type.
using AnyTables = std::variant<std::shared_ptr<ShardedTables<float>>, std::shared_ptr<ShardedTables<double>>>;

template <class T>
struct PendingBatch {
  std::shared_ptr<ShardedTables<T>> tables;
  typename ShardedTables<T>::BatchPtr batch;
};

template <class T>
constexpr at::ScalarType kScalar = std::is_same_v<T, float> ? at::kFloat : at::kDouble;

void in_parallel(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(0, n, grain, body);
}

at::Tensor token() { return at::empty({0}, at::kFloat); }

constexpr char kEmbeddingsWho[] = "ShardedEmbeddings";

// Anchored: rows have no gradient of their own for autograd.
template <class T>
struct PostNode {
  static constexpr const char* kName = kEmbeddingsWho;
  static constexpr bool kAnchored = true;
  using State = PendingBatch<T>;

  static at::Tensor forward(AutogradContext*, const PendingBatch<T>&) { return token(); }
  static variable_list backward(AutogradContext*, const PendingBatch<T>& pending, const variable_list&) {
    const Region region("DLRM alltoall_wait_bwd_single");  // labels as in facebookresearch/dlrm
    pending.tables->apply_gradients(pending.batch).or_throw();
    return {};
  }
};

// By table, tensors that keep the memory of the batch.
template <class T>
variable_list wait_for_rows(const PendingBatch<T>& pending) {
  const auto& [tables, batch] = pending;
  tables->wait(batch).or_throw();
  variable_list rows;
  for (std::size_t t = 0; t < tables->tables().size(); ++t) {
    const std::span<T> values = tables->rows_of(batch, t);
    const std::int64_t dim = tables->tables()[t].dim;
    rows.push_back(at::from_blob(
        values.data(), {std::int64_t(values.size()) / dim, dim}, [memory = tables->memory_of(batch)](void*) {},
        at::TensorOptions(kScalar<T>)));
  }
  return rows;
}

template <class T>
struct WaitNode {
  static constexpr const char* kName = kEmbeddingsWho;
  using State = PendingBatch<T>;

  static variable_list forward(AutogradContext* context, const PendingBatch<T>& pending, const at::Tensor&) {
    context->set_materialize_grads(false);
    return wait_for_rows(pending);
  }
  static variable_list backward(AutogradContext*, const PendingBatch<T>& pending, const variable_list& gradients) {
    const Region region("DLRM alltoall_req_bwd_single");
    std::vector<at::Tensor> dense;  // until they have been copied
    std::vector<RowGradients<T>> rows;
    for (const at::Tensor& gradient : gradients) {
      if (!gradient.defined() || gradient.numel() == 0) {
        rows.push_back({});
        continue;
      }
      at::Tensor plain = gradient.detach();
      if (plain.scalar_type() != kScalar<T> || plain.stride(1) != 1) plain = plain.to(kScalar<T>).contiguous();
      rows.push_back({plain.template data_ptr<T>(), plain.stride(0)});
      dense.push_back(std::move(plain));
    }
    pending.tables->send_gradients(pending.batch, rows).or_throw();
    return {token()};
  }
};

}  // namespace

struct ShardedEmbeddings::State {
  AnyTables tables;
  template <class What>
  decltype(auto) with(const What& what) const {
    return std::visit([&](const auto& typed) -> decltype(auto) { return what(*typed); }, tables);
  }
};

struct ShardedEmbeddings::Pending::State {
  at::Tensor token;  // of PostNode; undefined with gradients off
  std::variant<PendingBatch<float>, PendingBatch<double>> batch;
};

namespace {

template <class T>
AnyTables make_tables(std::vector<TableSpec> tables, TablePlacement placement, const Group& group,
                      const EmbeddingOptions& options) {
  return std::shared_ptr<ShardedTables<T>>(
      ShardedTables<T>::create(std::move(tables), std::move(placement), group, options, in_parallel).or_throw());
}

template <class T>
std::pair<at::Tensor, PendingBatch<T>> post_batch(const std::shared_ptr<ShardedTables<T>>& tables, std::int64_t samples,
                                                  std::span<const LookupsView> lookups, std::int64_t number) {
  PendingBatch<T> pending{tables, tables->post(samples, lookups, number).or_throw()};
  at::Tensor posted;
  if (c10::GradMode::is_enabled()) posted = autograd::apply_node<PostNode<T>>(pending);
  return {posted, std::move(pending)};
}

}  // namespace

ShardedEmbeddings::ShardedEmbeddings(std::vector<TableSpec> tables, TablePlacement placement, const Group& group,
                                     EmbeddingOptions options)
    : state_(std::make_unique<State>()), rank_(group ? group.rank() : 0), ranks_(group ? group.size() : 1) {
  TUTTI_REQUIRE(options.dtype == DType::kF32 || options.dtype == DType::kF64, "embedding tables of ",
                name(options.dtype), "; expected f32 or f64");
  state_->tables = options.dtype == DType::kF32
                       ? make_tables<float>(std::move(tables), std::move(placement), group, options)
                       : make_tables<double>(std::move(tables), std::move(placement), group, options);
}
ShardedEmbeddings::~ShardedEmbeddings() = default;

const std::vector<TableSpec>& ShardedEmbeddings::tables() const {
  return state_->with([](const auto& tables) -> const auto& { return tables.tables(); });
}
const TablePlacement& ShardedEmbeddings::placement() const {
  return state_->with([](const auto& tables) -> const auto& { return tables.placement(); });
}
const EmbeddingOptions& ShardedEmbeddings::options() const {
  return state_->with([](const auto& tables) -> const auto& { return tables.options(); });
}
std::vector<std::size_t> ShardedEmbeddings::my_tables() const { return tables_of(placement(), rank_); }

ShardedEmbeddings::Pending ShardedEmbeddings::post(std::int64_t samples, std::span<const LookupsView> lookups,
                                                   std::int64_t batch) {
  Pending pending;
  pending.state_ = std::make_shared<Pending::State>();
  std::visit(
      [&](const auto& typed) {
        std::tie(pending.state_->token, pending.state_->batch) = post_batch(typed, samples, lookups, batch);
      },
      state_->tables);
  return pending;
}

std::vector<at::Tensor> ShardedEmbeddings::wait(const Pending& pending) {
  TUTTI_REQUIRE(pending.state_ != nullptr, "wait() for a batch that no post() has returned");
  return std::visit(
      [&]<class T>(const PendingBatch<T>& batch) {
        const at::Tensor posted = std::exchange(pending.state_->token, at::Tensor());
        return posted.defined() ? autograd::apply_node<WaitNode<T>>(batch, posted) : wait_for_rows(batch);
      },
      pending.state_->batch);
}

void ShardedEmbeddings::set_lr(double lr) {
  state_->with([&](auto& tables) { tables.set_lr(lr); });
}
double ShardedEmbeddings::lr() const { return options().lr; }

void ShardedEmbeddings::write_rows(std::size_t table, std::int64_t first, const at::Tensor& rows, TableArray array) {
  TUTTI_REQUIRE(rows.defined() && rows.dim() == 2 && rows.device().is_cpu(), "write_rows: a tensor of ",
                rows.defined() ? describe(rows) : "nothing", "; expected [rows, columns] on the CPU");
  TUTTI_REQUIRE(table < tables().size() && rows.size(1) == columns(table, array), "write_rows: ", describe(rows),
                " for the ", name(array), " of table ", table, ", which have ",
                table < tables().size() ? columns(table, array) : 0, " columns");
  std::visit(
      [&]<class T>(const std::shared_ptr<ShardedTables<T>>& typed) {
        const at::Tensor dense = rows.detach().to(kScalar<T>).contiguous();
        typed->write(table, array, first, dense.size(0), dense.template data_ptr<T>()).or_throw();
      },
      state_->tables);
}

void ShardedEmbeddings::fill(std::size_t table,
                             const std::function<void(std::int64_t row, std::span<double> out)>& values) {
  TUTTI_REQUIRE(table < tables().size(), "fill: table ", table, " of ", tables().size());
  std::visit(
      [&]<class T>(const std::shared_ptr<ShardedTables<T>>& typed) {
        const std::size_t dim = std::size_t(typed->tables()[table].dim);
        std::vector<double> row(dim);
        std::vector<T> stored(dim);
        for (std::int64_t r = 0; r < typed->tables()[table].rows; ++r) {
          if (!typed->has_row(table, r)) continue;
          values(r, row);
          std::copy(row.begin(), row.end(), stored.begin());
          typed->write(table, TableArray::kRows, r, 1, stored.data()).or_throw();
        }
      },
      state_->tables);
}

std::int64_t ShardedEmbeddings::columns(std::size_t table, TableArray array) const {
  TUTTI_REQUIRE(table < tables().size(), "table ", table, " of ", tables().size());
  return columns_of(array, tables()[table].dim, options());
}

at::Tensor ShardedEmbeddings::read_rows(std::size_t table, std::int64_t first, std::int64_t count,
                                        TableArray array) const {
  return std::visit(
      [&]<class T>(const std::shared_ptr<ShardedTables<T>>& typed) {
        at::Tensor rows = at::empty({std::max<std::int64_t>(count, 0), columns(table, array)}, kScalar<T>);
        typed->read(table, array, first, count, rows.template data_ptr<T>()).or_throw();
        return rows;
      },
      state_->tables);
}

std::vector<std::pair<std::size_t, TableShard>> ShardedEmbeddings::my_shards() const {
  std::vector<std::pair<std::size_t, TableShard>> boxes;
  state_->with([&](const auto& typed) {
    for (const auto& shard : typed.shards()) boxes.emplace_back(shard.table(), shard.box());
  });
  return boxes;
}

at::Tensor ShardedEmbeddings::read_shard(std::size_t shard, TableArray array, std::int64_t first,
                                         std::int64_t count) const {
  return std::visit(
      [&]<class T>(const std::shared_ptr<ShardedTables<T>>& typed) {
        TUTTI_REQUIRE(shard < typed->shards().size(), "read_shard: part ", shard, " of ", typed->shards().size());
        const LocalShard<T>& part = typed->shards()[shard];
        const std::int64_t width = columns_of(array, part.width(), options());
        TUTTI_REQUIRE(width > 0 && first >= 0 && count >= 0 && first <= part.count() - count, "read_shard: rows ",
                      first, " - ", first + count, " of the ", name(array), " of a part with ", part.count(),
                      " rows of ", width);
        at::Tensor rows = at::empty({count, width}, kScalar<T>);
        part.read(array, first, count, rows.template data_ptr<T>(), width);
        return rows;
      },
      state_->tables);
}

}  // namespace tutti
