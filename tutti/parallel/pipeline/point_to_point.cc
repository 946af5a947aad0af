#include "tutti/parallel/pipeline/point_to_point.h"

#include <ATen/core/Tensor.h>

namespace tutti {
namespace {

// Messages are told apart by the number of their microbatch, which here only counts: so far apart are two of a number.
constexpr int kCounts = 1 << 16;

int next(int& counter) {
  const int value = counter;
  counter = (counter + 1) % kCounts;
  return value;
}

}  // namespace

StageLinks::StageLinks(const Group& group, MessageOptions options)
    : group_(group), messages_(group, std::move(options)) {
  TUTTI_REQUIRE(group.size() <= 1 << 12, "pipeline: ", group.size(), " stages, expected at most ", 1 << 12);
}
StageLinks::~StageLinks() = default;

bool StageLinks::is_first_stage() const { return group_.rank() == 0; }
bool StageLinks::is_last_stage() const { return group_.rank() == group_.size() - 1; }

StageMessage StageLinks::output_of(int stage, int& counter) const {
  return {
      .kind = StageMessage::Kind::kOutput, .microbatch = next(counter), .stage = stage, .from = stage, .to = stage + 1};
}
StageMessage StageLinks::gradient_of(int stage, int& counter) const {
  return {.kind = StageMessage::Kind::kGradient,
          .microbatch = next(counter),
          .stage = stage,
          .from = stage,
          .to = stage - 1};
}

std::optional<StageMessage> StageLinks::expect_forward() {
  if (is_first_stage()) return {};
  const StageMessage message = output_of(group_.rank() - 1, forwards_received_);
  messages_.expect(message);
  return message;
}
std::optional<StageMessage> StageLinks::expect_backward() {
  if (is_last_stage()) return {};
  const StageMessage message = gradient_of(group_.rank() + 1, backwards_received_);
  messages_.expect(message);
  return message;
}

at::Tensor StageLinks::take(const std::optional<StageMessage>& message) {
  messages_.look();
  if (!message) return {};
  at::Tensor tensor = messages_.take(*message);
  if (message->kind == StageMessage::Kind::kOutput) tensor.requires_grad_();
  return tensor;
}

at::Tensor StageLinks::recv_forward() { return take(expect_forward()); }
at::Tensor StageLinks::recv_backward() { return take(expect_backward()); }
void StageLinks::send_forward(const at::Tensor& output) {
  if (!is_last_stage()) messages_.send(output_of(group_.rank(), forwards_sent_), output);
}
void StageLinks::send_backward(const at::Tensor& input_gradient) {
  if (!is_first_stage()) messages_.send(gradient_of(group_.rank(), backwards_sent_), input_gradient);
}

at::Tensor StageLinks::send_forward_recv_backward(const at::Tensor& output) {
  const auto gradient = expect_backward();
  send_forward(output);
  return take(gradient);
}
at::Tensor StageLinks::send_backward_recv_forward(const at::Tensor& input_gradient) {
  const auto input = expect_forward();
  send_backward(input_gradient);
  return take(input);
}
at::Tensor StageLinks::send_forward_recv_forward(const at::Tensor& output, bool receive) {
  const auto input = receive ? expect_forward() : std::nullopt;
  send_forward(output);
  return take(input);
}
at::Tensor StageLinks::send_backward_recv_backward(const at::Tensor& input_gradient, bool receive) {
  const auto gradient = receive ? expect_backward() : std::nullopt;
  send_backward(input_gradient);
  return take(gradient);
}
std::pair<at::Tensor, at::Tensor> StageLinks::send_forward_backward_recv_forward_backward(
    const at::Tensor& output, const at::Tensor& input_gradient, bool receive_forward, bool receive_backward) {
  const auto input = receive_forward ? expect_forward() : std::nullopt;
  const auto gradient = receive_backward ? expect_backward() : std::nullopt;
  send_forward(output);
  send_backward(input_gradient);
  at::Tensor came = take(input);
  return {std::move(came), take(gradient)};
}

void StageLinks::finish() { messages_.finish(); }

}  // namespace tutti
