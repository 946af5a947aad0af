#pragma once
// Tensors between the stages of a pipeline. Sends are not waited for, receives are posted before they are needed, so
// both go on while the stages compute. Messages are matched by what they are (kind, stage, microbatch), not by their
// order.
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/comm/group.h"
#include "tutti/planning/schedules/messages.h"

namespace at {
class Tensor;
}

namespace tutti {

struct MessageOptions {
  // Of all that travels: activations and their gradients.
  DType dtype = DType::kF32;
  c10::Device device = c10::kCPU;  // of this stage, and of the tensors that it receives
  // Its sizes, such as {sequence, microbatch, hidden}, at most 8 of them. Empty: negotiated, each tensor is announced
  // by a small message with its sizes, which may differ from one to the next; that costs a second message.
  std::vector<std::int64_t> sizes = {};
  // The tensor-parallel group of this rank, where all its ranks have the same activations: each then sends and receives
  // its part alone, and the parts are put together on the receiver's side. (Megatron-LM's scatter/gather optimization,
  // SC21; a gain where the ranks of a host have network cards of their own.) A tensor whose elements the group does not
  // divide travels whole. An empty Group: everything travels whole. Not for activations that sequence parallelism has
  // split already.
  Group split_over = {};
};

// One thread. Failures throw Exception: the group's own error (PeerLost, Timeout, Mismatch, ...), with the message that
// was on its way named in it.
class StageMessages {
 public:
  // `group`: the ranks of the pipeline, by stage.
  StageMessages(const Group& group, MessageOptions options);
  ~StageMessages();
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // From now on messages are of a model of so many stages (ranks x chunks). Nothing may be under way.
  void begin(int stages);
  // Starts it. The tensor must stay as it is until it has been sent; it is kept alive that long. Refused, with a
  // sentence: another dtype or other sizes than agreed.
  void send(const StageMessage& message, const at::Tensor& tensor);
  // Makes a place for it, so that it can come from now on; from one peer in the order in which it sends.
  void expect(const StageMessage& message);
  // What was expected: waits until it is there. A fresh tensor, without a gradient.
  at::Tensor take(const StageMessage& message);
  // Lets go of what has been sent, and reads on what has been announced. Does not wait.
  void look();
  // Waits until all has been sent. What is expected still is an error.
  void finish();

  const MessageOptions& options() const { return options_; }

 private:
  struct Incoming;
  struct Outgoing;

  int tag(const StageMessage& message) const;
  at::Tensor piece_of(const at::Tensor& flat) const;
  void check_outgoing(const StageMessage& message, const at::Tensor& tensor) const;
  void announce(const StageMessage& message, const at::Tensor& tensor);
  void make_place(Incoming& incoming, const std::vector<std::int64_t>& sizes) const;
  void receive(Incoming& incoming, const std::vector<std::int64_t>& sizes);
  void receive_now(Incoming& incoming);
  void open(Incoming& incoming);

  Group group_;
  MessageOptions options_;
  int stages_;
  std::vector<std::vector<Incoming>> incoming_;  // by peer, in the order of expect()
  std::vector<Outgoing> outgoing_;               // in the order of send()
};

}  // namespace tutti
