#pragma once
// The weights that a run starts from: those of dlrm_s_pytorch.py for the same --numpy-rand-seed, drawn from one stream
// of numpy's generator: the tables, then the bottom MLP, then the top one. They do not depend on the number of ranks:
// each rank goes through the whole stream and keeps what is its own.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tutti/base/random.h"
#include "tutti/models/dlrm/architecture.h"

namespace tutti::dlrm {

// Takes `values` of table `table`, from row `row` on: whole rows, one after another. Rows come in ascending order.
using TakeRows = std::function<void(std::size_t table, std::int64_t row, std::span<const double> values)>;
// Takes a weight [out, in] or, with in == 0, a bias [out] of a layer, in the order in which they are drawn.
using TakeLayer = std::function<void(std::span<const double> values, std::int64_t out, std::int64_t in)>;

// Every table of a plain or a projected feature: uniform in +-sqrt(1 / rows). The tables of a quotient-remainder
// feature come from streams of their own, so that they do not shift the others' (as there), and are scaled so that what
// is combined varies as a row of the whole table would. `wants(table)`: whether anybody takes its rows; if not they are
// drawn and dropped.
void draw_tables(NumpyRandom& stream, const Architecture& architecture, std::uint32_t seed,
                 const std::function<bool(std::size_t table)>& wants, const TakeRows& take);
// Weights normal with variance 2 / (in + out), biases with 1 / out, layer by layer.
void draw_layers(NumpyRandom& stream, const std::vector<std::int64_t>& sizes, const TakeLayer& take);
// The matrix [dim, columns] of a projected feature (Glorot's uniform), from a stream of its own.
std::vector<double> draw_projection(std::uint32_t seed, std::size_t feature, std::int64_t dim, std::int64_t columns);

}  // namespace tutti::dlrm
