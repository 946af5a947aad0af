// For each head and each run of kRows queries Q, over the keys K, V that they see (FlashAttention-2's
// formulas; a causal tile ends at its diagonal, so half of the scores are never computed):
//
//   forward:    S = Q K' scale   m = max S   P = exp(S - m)   l = sum P   O = drop(P) V / l   L = m + log l
//   backward:   P = exp(S - L)   dP = drop(dO V')   dS = P (dP - product)
//               dV += drop(P)' dO   dQ += dS K scale   dK += dS' Q scale
//
// where drop() multiplies by the mask of dropout, 1 / (1 - p) or 0. A tile of 128 rows by 1024 keys is 512 KiB in f32.
// On a GPU a tile has all heads of all samples.
#include "tutti/parallel/tensor/attention_tiles.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "tutti/base/kernels/elementwise.h"
#include "tutti/parallel/tensor/dropout_mask.h"
#include "tutti/parallel/tensor/matrix_product.h"
#include "tutti/parallel/tensor/random_mask.h"

namespace tutti {
namespace {

constexpr std::int64_t kRows = 128;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of one head: [rows, dim].
at::Tensor head_of(const at::Tensor& tensor, std::int64_t batch, std::int64_t head) {
  return tensor.select(1, batch).select(1, head);
}

template <class T>
void drop(const RandomMask& random, const AttentionTask& task, std::uint64_t head, std::int64_t first_row, T* values,
          std::int64_t rows, std::int64_t keys) {
  std::int64_t row = 0;  // of all queries
  for (const SequenceRange& queries : task.queries) {
    for (std::int64_t i = 0; i < queries.count; ++i, ++row) {
      if (row < first_row || row >= first_row + rows) continue;
      const std::uint64_t row_key = random.row_key(std::uint64_t(queries.first + i), head);
      T* const of_row = values + (row - first_row) * keys;
      std::int64_t column = 0;
      for (const SequenceRange& seen : task.keys) {
        const std::int64_t count = std::min(seen.count, keys - column);
        if (count <= 0) break;
        random.multiply(row_key, std::uint64_t(seen.first), std::span(of_row + column, std::size_t(count)));
        column += count;
      }
    }
  }
}

// What a thread needs for its tiles, and the tile that it is at.
class Tiles {
 public:
  Tiles(const at::Tensor& query, const at::Tensor& key, const AttentionTask& task, int matrices)
      : task_(task), keys_(key.size(0)), random_(task.dropout, task.seed) {
    for (int i = 0; i < matrices; ++i) memory_.push_back(at::empty({kRows * keys_}, query.options()));
  }

  void begin(std::int64_t first_row, std::int64_t rows) {
    first_ = first_row;
    rows_ = rows;
    seen_ = task_.causal ? first_row + rows : keys_;
  }
  std::int64_t seen() const { return seen_; }

  // [rows, seen]
  at::Tensor matrix(int number) const {
    return memory_[std::size_t(number)].narrow(0, 0, rows_ * seen_).view({rows_, seen_});
  }
  // Scores into matrix 0, minus infinity for keys of documents before a row's; causal: those of keys that a row does
  // not see are there, too.
  at::Tensor scores(const at::Tensor& query, const at::Tensor& key, std::int64_t batch) const {
    at::Tensor out = matrix(0);
    add_matrix_product(out, query, key.narrow(0, 0, seen_).t(), 0, task_.scale);
    if (task_.first_seen.defined()) hide_before(out, batch);
    return out;
  }
  // f(row of the tile, its first number, how many keys it sees) for the rows of a matrix; what a row does not see
  // becomes 0.
  template <class T, class Act>
  void for_rows(const at::Tensor& tile, Act act) const {
    T* row = tile.data_ptr<T>();
    for (std::int64_t i = 0; i < rows_; ++i, row += seen_) {
      const std::int64_t sees = task_.causal ? first_ + i + 1 : seen_;
      act(i, row, std::size_t(sees));
      std::fill(row + sees, row + seen_, T(0));
    }
  }
  // The mask of dropout, on a matrix.
  void drop(const at::Tensor& tile, std::int64_t batch, std::int64_t head) const {
    if (task_.dropout == 0) return;
    // A number for each head of each sample that does not depend on how many of them this rank has.
    const std::uint64_t number = std::uint64_t(batch) << 32 | std::uint64_t(task_.first_head + head);
    if (tile.scalar_type() == at::kDouble) {
      tutti::drop(random_, task_, number, first_, tile.data_ptr<double>(), rows_, seen_);
    } else {
      tutti::drop(random_, task_, number, first_, tile.data_ptr<float>(), rows_, seen_);
    }
  }

 private:
  void hide_before(const at::Tensor& scores, std::int64_t batch) const {
    const auto first_seen = task_.first_seen.accessor<std::int64_t, 2>();
    const auto hide = [&](auto* values) {
      for (std::int64_t row = 0; row < rows_; ++row) {
        const std::int64_t first = first_seen[first_ + row][batch];
        std::int64_t column = 0;
        for (const SequenceRange& keys : task_.keys) {
          const std::int64_t count = std::clamp<std::int64_t>(seen_ - column, 0, keys.count);
          const std::int64_t hidden = std::clamp<std::int64_t>(first - keys.first, 0, count);
          std::fill_n(values + row * seen_ + column, hidden, -kInfinity);
          column += count;
        }
      }
    };
    if (scores.scalar_type() == at::kDouble) {
      hide(scores.data_ptr<double>());
    } else {
      hide(scores.data_ptr<float>());
    }
  }

  const AttentionTask& task_;
  const std::int64_t keys_;
  const RandomMask random_;
  std::vector<at::Tensor> memory_;
  std::int64_t first_ = 0, rows_ = 0, seen_ = 0;
};

// act(tiles, batch, head, group, first row, rows) for every tile. The heads of one group are one thread's, so that
// gradients of keys and values can be added up.
template <class Act>
void for_tiles(const at::Tensor& query, const at::Tensor& key, const AttentionTask& task, int matrices, Act act) {
  const std::int64_t rows = query.size(0), batches = query.size(1), heads = query.size(2), groups = key.size(2);
  const std::int64_t heads_each = heads / groups;
  at::parallel_for(0, batches * groups, 1, [&](std::int64_t begin, std::int64_t end) {
    Tiles tiles(query, key, task, matrices);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t batch = i / groups, group = i % groups;
      for (std::int64_t head = group * heads_each; head < (group + 1) * heads_each; ++head) {
        for (std::int64_t first = 0; first < rows; first += kRows) {
          const std::int64_t count = std::min(kRows, rows - first);
          tiles.begin(first, count);
          act(tiles, batch, head, group, first, count);
        }
      }
    }
  });
}

// ---- On a GPU: the same formulas by ATen's operators, a tile of all heads of all samples at a time ----

// [rows, batch, heads, ...] as [batch, heads, rows, ...]
at::Tensor heads_first(const at::Tensor& tensor) { return tensor.transpose(0, 1).transpose(1, 2); }

class WideTile {
 public:
  WideTile(const at::Tensor& query, const at::Tensor& key, const AttentionTask& task, std::int64_t first)
      : task_(task),
        first_(first),
        rows_(std::min(kRows, query.size(0) - first)),
        seen_(task.causal ? first + rows_ : key.size(0)),
        heads_(query.size(2)),
        groups_(key.size(2)) {}

  at::Tensor rows_of(const at::Tensor& tensor) const { return heads_first(tensor.narrow(0, first_, rows_)); }
  at::Tensor seen_of(const at::Tensor& tensor) const { return heads_first(tensor.narrow(0, 0, seen_)); }

  // [batch, heads, rows, n] as [batch, groups, rows of all its heads, n]: the heads of a group have its keys.
  at::Tensor by_group(const at::Tensor& tensor) const {
    return tensor.reshape({tensor.size(0), groups_, heads_ / groups_ * rows_, tensor.size(3)});
  }
  at::Tensor by_head(const at::Tensor& tensor) const {
    return tensor.reshape({tensor.size(0), heads_, rows_, tensor.size(3)});
  }
  // Minus infinity for keys that a row does not see. [batch, heads, rows, seen]
  at::Tensor scores(const at::Tensor& query, const at::Tensor& key) const {
    const at::Tensor scores = by_head(by_group(rows_of(query)).matmul(seen_of(key).transpose(2, 3))).mul_(task_.scale);
    const auto numbers = query.options().dtype(at::kLong);
    if (task_.causal)
      scores.masked_fill_(at::arange(seen_, numbers).gt(at::arange(first_, first_ + rows_, numbers).unsqueeze(1)),
                          -kInfinity);
    if (task_.first_seen.defined())  // [batch, 1, rows, 1]
      scores.masked_fill_(
          key_positions(query).lt(task_.first_seen.narrow(0, first_, rows_).t().unsqueeze(1).unsqueeze(3)), -kInfinity);
    return scores;
  }
  // The factors of dropout: [batch, heads, rows, seen].
  at::Tensor factors(const at::Tensor& query) const {
    const RandomMask random(task_.dropout, task_.seed);
    const auto numbers = query.options().dtype(at::kLong);
    const at::Tensor samples = at::arange(query.size(1), numbers).bitwise_left_shift_(32).view({-1, 1, 1});
    const at::Tensor heads = at::arange(task_.first_head, task_.first_head + heads_, numbers).view({-1, 1});
    const at::Tensor positions = positions_of(task_.queries, query.device()).narrow(0, first_, rows_);
    return dropout_factors(random, row_keys(random, positions, samples + heads), key_positions(query),
                           query.scalar_type());
  }

 private:
  at::Tensor key_positions(const at::Tensor& query) const {
    return positions_of(task_.keys, query.device()).narrow(0, 0, seen_);
  }

  const AttentionTask& task_;
  const std::int64_t first_, rows_, seen_, heads_, groups_;
};

void attend_by_operators(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const AttentionTask& task, const Attended& result) {
  const bool wide = query.scalar_type() == at::kDouble;
  const double lowest = wide ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
  const double least = wide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  for (std::int64_t first = 0; first < query.size(0); first += kRows) {
    const WideTile tile(query, key, task, first);
    at::Tensor p = tile.scores(query, key);
    const at::Tensor largest = p.amax({3}, /*keepdim=*/true).clamp_min_(lowest);
    p.sub_(largest).exp_();
    const at::Tensor sums = p.sum({3}, /*keepdim=*/true);
    tile.rows_of(result.log_sum).copy_((sums.log() + largest).squeeze(3));
    if (task.dropout > 0) p.mul_(tile.factors(query));
    tile.rows_of(result.out)
        .copy_(tile.by_head(tile.by_group(p).matmul(tile.seen_of(value))).div_(sums.clamp_min(least)));
  }
}

void attend_backward_by_operators(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const at::Tensor& out_gradient, const at::Tensor& log_sum, const at::Tensor& product,
                                  const AttentionTask& task, const AttentionGradients& gradients) {
  for (std::int64_t first = 0; first < query.size(0); first += kRows) {
    const WideTile tile(query, key, task, first);
    const at::Tensor p = tile.scores(query, key).sub_(tile.rows_of(log_sum).unsqueeze(3)).exp_();
    const at::Tensor of_out = tile.by_group(tile.rows_of(out_gradient));
    const at::Tensor of_p = tile.by_head(of_out.matmul(tile.seen_of(value).transpose(2, 3)));
    at::Tensor dropped = p;
    if (task.dropout > 0) {
      const at::Tensor factors = tile.factors(query);
      dropped = p * factors;
      of_p.mul_(factors);
    }
    tile.seen_of(gradients.value).add_(tile.by_group(dropped).transpose(2, 3).matmul(of_out));
    const at::Tensor of_scores = tile.by_group(of_p.sub_(tile.rows_of(product).unsqueeze(3)).mul_(p));
    tile.rows_of(gradients.query).add_(tile.by_head(of_scores.matmul(tile.seen_of(key))), task.scale);
    tile.seen_of(gradients.key).add_(of_scores.transpose(2, 3).matmul(tile.by_group(tile.rows_of(query))), task.scale);
  }
}

}  // namespace

Attended attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const AttentionTask& task) {
  Attended result{at::empty(query.sizes(), query.options()), at::empty(query.sizes().slice(0, 3), query.options())};
  if (!query.device().is_cpu()) return attend_by_operators(query, key, value, task, result), result;
  for_tiles(query, key, task, 1,
            [&](Tiles& tiles, std::int64_t batch, std::int64_t head, std::int64_t group, std::int64_t first,
                std::int64_t count) {
              const at::Tensor rows = head_of(query, batch, head).narrow(0, first, count);
              const at::Tensor p = tiles.scores(rows, head_of(key, batch, group), batch);
              const at::Tensor sums = at::empty({count, 1}, p.options());
              const at::Tensor log_sums = head_of(result.log_sum, batch, head).narrow(0, first, count);
              AT_DISPATCH_FLOATING_TYPES(p.scalar_type(), "attend", [&] {
                scalar_t *const of_rows = sums.data_ptr<scalar_t>(), *const logs = log_sums.data_ptr<scalar_t>();
                const std::int64_t stride = log_sums.stride(0);
                tiles.for_rows<scalar_t>(p, [&](std::int64_t i, scalar_t* row, std::size_t sees) {
                  // A row may see none of these keys, all of documents before its own: it gets 0, and a logarithm of
                  // minus infinity.
                  const scalar_t largest = std::max(largest_of(row, sees), std::numeric_limits<scalar_t>::lowest());
                  const scalar_t sum = exponentials(row, sees, largest);
                  of_rows[i] = std::max(sum, std::numeric_limits<scalar_t>::min());
                  logs[i * stride] = std::log(sum) + largest;
                });
              });
              tiles.drop(p, batch, head);
              at::Tensor out = head_of(result.out, batch, head).narrow(0, first, count);
              add_matrix_product(out, p, head_of(value, batch, group).narrow(0, 0, tiles.seen()), 0);
              out.div_(sums);
            });
  return result;
}

void attend_backward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& out_gradient, const at::Tensor& log_sum, const at::Tensor& product,
                     const AttentionTask& task, const AttentionGradients& gradients) {
  if (!query.device().is_cpu())
    return attend_backward_by_operators(query, key, value, out_gradient, log_sum, product, task, gradients);
  for_tiles(query, key, task, 3,
            [&](Tiles& tiles, std::int64_t batch, std::int64_t head, std::int64_t group, std::int64_t first,
                std::int64_t count) {
              const auto rows = [&](const at::Tensor& tensor) {
                return head_of(tensor, batch, head).narrow(0, first, count);
              };
              const auto seen = [&](const at::Tensor& tensor) {
                return head_of(tensor, batch, group).narrow(0, 0, tiles.seen());
              };
              const at::Tensor queries = rows(query), of_out = rows(out_gradient);
              const at::Tensor p = tiles.scores(queries, head_of(key, batch, group), batch);
              AT_DISPATCH_FLOATING_TYPES(p.scalar_type(), "attend", [&] {
                const at::Tensor log_sums = rows(log_sum);
                const scalar_t* const logs = log_sums.data_ptr<scalar_t>();
                const std::int64_t stride = log_sums.stride(0);
                tiles.for_rows<scalar_t>(p, [&](std::int64_t i, scalar_t* row, std::size_t sees) {
                  exponentials(row, sees, logs[i * stride]);
                });
              });
              at::Tensor of_p = tiles.matrix(1);
              add_matrix_product(of_p, of_out, seen(value).t(), 0);
              at::Tensor dropped = p;
              if (task.dropout > 0) {
                dropped = tiles.matrix(2).copy_(p);
                tiles.drop(dropped, batch, head);
                tiles.drop(of_p, batch, head);
              }
              add_matrix_product(seen(gradients.value), dropped.t(), of_out);
              AT_DISPATCH_FLOATING_TYPES(p.scalar_type(), "attend", [&] {
                const at::Tensor products = rows(product);
                const scalar_t *const of_rows = products.data_ptr<scalar_t>(), *row_of_p = p.data_ptr<scalar_t>();
                const std::int64_t stride = products.stride(0);
                tiles.for_rows<scalar_t>(of_p, [&](std::int64_t i, scalar_t* row, std::size_t sees) {
                  softmax_gradient(row_of_p + i * tiles.seen(), row, sees, of_rows[i * stride]);
                });
              });
              add_matrix_product(rows(gradients.query), of_p, seen(key), 1, task.scale);
              add_matrix_product(seen(gradients.key), of_p.t(), queries, 1, task.scale);
            });
}

}  // namespace tutti
