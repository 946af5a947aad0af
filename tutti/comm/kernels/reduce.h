#pragma once
// The element-wise arithmetic of the collectives, for every dtype and op of Request. bf16 and f16 are computed in
// float. Sums of bool are "or", products are "and". kAvg is treated as kSum; divide at the end with divide(). Integer
// sums wrap. No alignment is required. Complex numbers have sum, avg and premul_sum.
#include <cstddef>
#include <span>

#include "tutti/base/error.h"
#include "tutti/comm/request.h"

namespace tutti::comm {

// into[i] = into[i] op other[i]
void reduce_pair(DType dtype, ReduceOp op, void* into, const void* other, std::size_t count);

// out[k][i] = (in[0][i] op in[1][i] op ... ) for every k, in the order of `in`, then divided by `divisor` (1: no
// division). The 16-bit types are rounded once, at the end. An output may be one of the inputs. For kPremulSum each
// input is first multiplied by its factor (`factors`, one per input), in the type of the addition.
void reduce_many(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out,
                 std::size_t count, int divisor, const double* factors = nullptr);

// bool has no arithmetic of its own: sum and maximum become "or", product and minimum become "and".
ReduceOp op_for_bool(ReduceOp op);

// data[i] /= divisor. Floating types divide; integers truncate towards zero.
void divide(DType dtype, void* data, std::size_t count, int divisor);

// Whether the op exists for the dtype. band, bor and bxor need integers or bool. avg does not support bool and 8-bit
// integers. premul_sum supports floating and complex types only. Complex types support only sum, avg and premul_sum.
Status check_reduction(DType dtype, ReduceOp op);

}  // namespace tutti::comm
