#include "tutti/parallel/data_parallel/join.h"

#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

class Joined {
 public:
  Joined(Reducer& reducer, const JoinUnevenOptions& options) : reducer_(reducer) {
    reducer_.begin_join(!options.divide_by_initial_world_size, options.throw_on_early_end);
  }
  ~Joined() { reducer_.end_join(); }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

 private:
  Reducer& reducer_;
};

}  // namespace

void join_uneven(Reducer& reducer, const std::function<void()>& train, JoinUnevenOptions options) {
  const Joined joined(reducer, options);
  train();
  bool was_last = true;
  for (auto turn = reducer.turn(false); turn.active > 0; turn = reducer.turn(false)) {
    was_last = false;
    reducer.join_step(turn);
  }
  const Group& group = reducer.group();
  reducer.broadcast_model(all_reduce(group, was_last ? std::int32_t(group.rank()) : -1, ReduceOp::kMax));
}

}  // namespace tutti
