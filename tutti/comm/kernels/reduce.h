#pragma once
// Element-wise arithmetic of the collectives. Every dtype and op of Request; bf16 and f16 are computed in float; sums
// of bool are "or", products "and"; kAvg is treated as kSum: divide at the end with divide(). Integer sums wrap. No
// alignment is needed. Complex numbers have sum, avg and premul_sum.
#include <cstddef>
#include <span>

#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti {

// into[i] = into[i] op other[i]
void reduce_pair(DType dtype, ReduceOp op, void* into, const void* other, std::size_t count);

// out[k][i] = (in[0][i] op in[1][i] op ... ) for every k, in the order of `in` with one rounding at the end for the
// 16-bit types; then divided by `divisor` (1: not). An output may be one of the inputs. kPremulSum: each input is first
// multiplied by its factor (`factors`, one for each input), in the type in which it is added.
void reduce_many(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out,
                 std::size_t count, int divisor, const double* factors = nullptr);

// bool has no arithmetic of its own: a sum or maximum is an or, a product or minimum an and.
ReduceOp op_for_bool(ReduceOp op);

// data[i] /= divisor: floating types divide, integers truncate towards zero.
void divide(DType dtype, void* data, std::size_t count, int divisor);

// Whether the op exists for the dtype: band, bor, bxor need integers or bool; avg is not for bool or integers of 8
// bits, premul_sum for floating and complex numbers only, and complex numbers have nothing but sum, avg and premul_sum.
Status check_reduction(DType dtype, ReduceOp op);

}  // namespace tutti
