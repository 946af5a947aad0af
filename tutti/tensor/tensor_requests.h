#pragma once
// The Request that describes a call on tensors. All that can be wrong with the tensors throws here, with a sentence.
// The tensors and splits must outlive the Request.
#include <span>

#include "tutti/comm/group.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti::tensor_requests {

Request all_reduce(const at::Tensor& tensor, Reduction op);
Request broadcast(const Group& group, const at::Tensor& tensor, int root);
Request reduce(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op);
Request scan(const Group& group, Kind kind, const at::Tensor& in, const at::Tensor& out, Reduction op);
Request gather(const Group& group, const at::Tensor& in, const at::Tensor& out, int root);
Request scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, int root);
// One side holds a part for every rank.
Request parts(const Group& group, Kind kind, const at::Tensor& in, const at::Tensor& out, Reduction op);
Request uneven(const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
               std::span<const std::size_t> out_splits);
Request point(Kind kind, const at::Tensor& tensor, int peer, int tag);
// A _v verb with all of its buffers on every rank.
Request everywhere_v(const Group& group, Kind kind, const at::Tensor& in, const at::Tensor& out,
                     std::span<const std::size_t> splits, Reduction op);
Request gather_v(const Group& group, const at::Tensor& in, const at::Tensor& out,
                 std::span<const std::size_t> out_splits, int root);
Request scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                  const at::Tensor& out, int root);

}  // namespace tutti::tensor_requests
