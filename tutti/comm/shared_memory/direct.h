#pragma once
// Collectives between ranks of one host through shared memory. direct.cc explains the algorithms.
#include <optional>

#include "tutti/comm/operation.h"
#include "tutti/comm/shared_memory/channel.h"
#include "tutti/comm/shared_memory/small.h"
#include "tutti/comm/shared_memory/staged.h"

namespace tutti::comm {

class DirectOperation final : public Operation {
 public:
  // begun: what try_inline() has done of it already.
  DirectOperation(DirectChannel& channel, const Request& request, std::uint64_t sequence, const InlineCall& begun = {});
  Result<Progress> step() override;
  std::optional<bool> awaits_this_core() const override;
  void blockers(Blockers& blockers) const override;

 private:
  enum class Stage : std::uint8_t { kEnter, kMeet, kShare, kLeave, kStaged, kCompare };
  void post(const void* payload, std::size_t bytes);
  Result<Progress> compare_with(int peer);
  Result<Progress> compare();
  Result<Progress> enter();
  Result<Progress> after_meeting();
  Result<Progress> after_piece();
  std::size_t most_copied() const;
  bool all_gave_copies() const;
  bool can_go_direct() const;
  void act_direct();
  bool tells_splits() const;
  std::size_t split_before(int from) const;
  Result<Progress> share();
  bool is_shared() const;
  std::size_t given_bytes() const;
  void tell_splits(Descriptor& mine) const;
  std::optional<Error> different_splits(int peer) const;
  Status check_splits() const;

  DirectChannel& channel_;
  const Request request_;
  const std::uint64_t sequence_;
  std::uint64_t word_;  // awaited from the peers
  std::size_t element_;
  std::uint16_t fingerprint_;
  Stage stage_ = Stage::kEnter;
  int next_ = 0;  // first peer not yet seen at this tick; in kCompare: the peer with another call
  Clock::time_point compared_since_{};
  enum class Way : std::uint8_t { kInline, kOneShot, kLarge } way_;
  std::optional<StagedTransfer> staged_;
};

}  // namespace tutti::comm
