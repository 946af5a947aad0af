#include "tutti/comm/group/local_operation.h"

#include <cstring>

#include "tutti/comm/kernels/reduce.h"
#include "tutti/comm/layout.h"

namespace tutti {
namespace {

class AloneOperation final : public Operation {
 public:
  explicit AloneOperation(const Request& request) : request_(request) {}
  Result<Progress> step() override {
    run_alone(request_);
    return Progress::kDone;
  }
  void blockers(Blockers&) const override {}

 private:
  const Request request_;
};

}  // namespace

void run_alone(const Request& request) {
  const std::size_t count = extent_of(request, 0, 1)->out;
  if (count == 0 || !request.out || !request.in) return;
  if (is_reduction(request.kind) && request.op == ReduceOp::kPremulSum) {
    const void* const in[] = {request.in};
    void* const out[] = {request.out};
    reduce_many(request.dtype, request.op, in, out, count, 1, &request.factor);
    return;
  }
  if (request.out != request.in) std::memmove(request.out, request.in, count * size_of(request.dtype));
}

std::unique_ptr<Operation> make_alone(const Request& request) { return std::make_unique<AloneOperation>(request); }

}  // namespace tutti
