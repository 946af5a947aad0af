#pragma once
// Megatron-LM's verbs between neighbouring stages, for schedules written by hand: one stage on each rank of the group.
// (Pipeline, in pipeline.h, runs any schedule and does not need them.)
//
//   StageLinks links(pp, {.sizes = {sequence, microbatch, hidden}});
//   at::Tensor input = links.recv_forward();                                  // undefined on the first stage
//   at::Tensor output = stage(input);
//   at::Tensor gradient = links.send_forward_recv_backward(output);           // undefined on the last stage
//
// Calls of a kind are numbered, and the n-th send_forward() of a stage is the n-th recv_forward() of the next one.
// Receives block; sends do not, and combined calls start all of theirs before they wait, so no order of them on two
// neighbours makes these wait for one another. Forward tensors are received with requires_grad. Nothing is sent beyond
// the first and the last stage: sending there does nothing, receiving returns an undefined tensor.
#include <utility>

#include "tutti/parallel/pipeline/messages.h"

namespace tutti {

// One thread. Failures throw Exception; see messages.h.
class StageLinks {
 public:
  StageLinks(const Group& group, MessageOptions options);
  ~StageLinks();

  bool is_first_stage() const;
  bool is_last_stage() const;

  at::Tensor recv_forward();   // the output of the stage before
  at::Tensor recv_backward();  // the gradient of what this stage sent forward
  void send_forward(const at::Tensor& output);
  void send_backward(const at::Tensor& input_gradient);

  at::Tensor send_forward_recv_backward(const at::Tensor& output);
  at::Tensor send_backward_recv_forward(const at::Tensor& input_gradient);
  // `receive`: whether anything is to come; else the result is undefined.
  at::Tensor send_forward_recv_forward(const at::Tensor& output, bool receive = true);
  at::Tensor send_backward_recv_backward(const at::Tensor& input_gradient, bool receive = true);
  // The input of the next microbatch, and the gradient of an output.
  std::pair<at::Tensor, at::Tensor> send_forward_backward_recv_forward_backward(const at::Tensor& output,
                                                                                const at::Tensor& input_gradient,
                                                                                bool receive_forward = true,
                                                                                bool receive_backward = true);
  // Waits until all has been sent: at the end of a step.
  void finish();

 private:
  StageMessage output_of(int stage, int& counter) const;
  StageMessage gradient_of(int stage, int& counter) const;
  // The next message from the stage before, or after; none at the end of the pipeline.
  std::optional<StageMessage> expect_forward();
  std::optional<StageMessage> expect_backward();
  at::Tensor take(const std::optional<StageMessage>& message);

  Group group_;
  StageMessages messages_;
  int forwards_sent_ = 0, forwards_received_ = 0, backwards_sent_ = 0, backwards_received_ = 0;
};

}  // namespace tutti
