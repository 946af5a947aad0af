// The rounded copy of a bucket lies in memory of the group, so that on one host nobody copies it once more, and is
// kept: a steady step allocates nothing.
#include "tutti/parallel/data_parallel/hooks/compression.h"

#include <ATen/Functions.h>

#include "tutti/tensor/collectives.h"
#include "tutti/tensor/group_tensor.h"

namespace tutti {
namespace {

class Compression final : public CommHook {
 public:
  Compression(at::ScalarType type, const char* name) : type_(type), name_(name) {}

  std::string name() const override { return name_; }

  Finish start(const Group& group, const GradientBucket& bucket) override {
    if (wires_.size() <= bucket.index) wires_.resize(bucket.index + 1);
    auto& wire = wires_[bucket.index];
    if (!wire.defined() || wire.numel() != bucket.buffer.numel())
      wire = group_tensor(group, bucket.buffer.numel(), bucket.buffer.options().dtype(type_));
    wire.copy_(bucket.buffer);
    auto work = all_reduce_async(group, wire, ReduceOp::kAvg);
    return [work = std::move(work), wire, buffer = bucket.buffer] {
      work.get();
      return buffer.copy_(wire);
    };
  }

 private:
  at::ScalarType type_;
  const char* name_;
  std::vector<at::Tensor> wires_;  // by bucket
};

}  // namespace

std::shared_ptr<CommHook> bf16_compression() {
  return std::make_shared<Compression>(at::kBFloat16, "bf16_compression");
}
std::shared_ptr<CommHook> f16_compression() { return std::make_shared<Compression>(at::kHalf, "f16_compression"); }

}  // namespace tutti
