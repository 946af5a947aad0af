#include "tutti/parallel/tensor/rows.h"

#include <ATen/Functions.h>

#include <vector>

#include "tutti/tensor/collectives.h"
#include "tutti/tensor/tensor_requests.h"

namespace tutti {

at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows) {
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, like.options());
}

at::Tensor gathered_rows(const Group& group, const at::Tensor& mine) {
  const at::Tensor packed = mine.contiguous();
  at::Tensor all = empty_rows(packed, packed.size(0) * group.size());
  run_on_stream(group, tensor_requests::parts(group, Kind::kAllGather, packed, all, ReduceOp::kSum));
  return all;
}

at::Tensor part_of_summed_rows(const Group& group, const at::Tensor& whole) {
  at::Tensor mine = empty_rows(whole, whole.size(0) / group.size());
  run_on_stream(group, tensor_requests::parts(group, Kind::kReduceScatter, whole, mine, ReduceOp::kSum));
  return mine;
}

}  // namespace tutti
