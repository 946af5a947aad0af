// Sends and receives.
#include "bench/collectives/exercises.h"
#include "bench/collectives/pattern.h"
#include "tutti/comm/collectives.h"

namespace tutti::bench {
namespace {

// Pieces of the vector that go to peers, and pieces that come from them.
class MessageExercise : public Exercise {
 public:
  MessageExercise(const Group& group, const Operation& operation, Size size, Buffers buffers)
      : Exercise(group, operation, size, buffers), pattern_{size.dtype, size.op, group.size()} {
    const int ranks = group.size(), rank = group.rank();
    if (ranks == 1) return;
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    const std::size_t middle = count_ / 2;
    switch (operation.form) {
      case Form::kRing:
        add(next, before, 0, count_, 0);
        break;
      case Form::kBatch:  // the tag tells the halves apart where both neighbours are one rank
        add(next, before, 0, middle, 0);
        add(before, next, middle, count_, 1);
        break;
      case Form::kPingPong:
        if (const int partner = rank ^ 1; partner < ranks) add(partner, partner, 0, count_, 0);
        break;
      case Form::kCollective:
      case Form::kUneven:
      case Form::kCoalesced:
      case Form::kBytes:
      case Form::kJson:
      case Form::kMonitored:
        break;
    }
  }

  void write_pattern() override {
    write_zeros();
    pattern_.write(group_.rank(), a_, count_);
  }
  void call() override {
    if (pieces_.empty()) return;
    if (operation_.form == Form::kPingPong) return there_and_back(pieces_[0]);
    if (operation_.form == Form::kBatch) return batch();
    const Work received = group_.submit(pieces_[0].receive), sent = group_.submit(pieces_[0].send);
    sent.get();
    received.get();
  }
  std::size_t count_wrong() const override {
    std::size_t wrong = 0;
    for (const Message& piece : pieces_)
      wrong += pattern_.count_wrong(b_ + piece.begin * size_of(size_.dtype), piece.receive.count, [&](std::size_t i) {
        return pattern_.brought(piece.receive.root, piece.begin + i);
      });
    return wrong;
  }
  std::string plan_name() const override { return pieces_.empty() ? "alone" : group_.plan_name(pieces_[0].send); }

 private:
  struct Message {
    std::size_t begin;
    Request send, receive;
  };

  // Elements [begin, end) go to `to`, and those of `from` come.
  void add(int to, int from, std::size_t begin, std::size_t end, int tag) {
    const std::size_t offset = begin * size_of(size_.dtype);
    Message piece{
        .begin = begin,
        .send = {.kind = Kind::kSend, .dtype = size_.dtype, .root = to, .tag = tag, .in = place(a_) + offset},
        .receive = {.kind = Kind::kRecv, .dtype = size_.dtype, .root = from, .tag = tag, .out = place(b_) + offset}};
    piece.send.count = piece.receive.count = end - begin;
    piece.send.device = piece.receive.device = device();
    pieces_.push_back(piece);
  }
  void there_and_back(const Message& piece) const {
    const bool first = group_.rank() % 2 == 0;
    group_.run(first ? piece.send : piece.receive).or_throw();
    group_.run(first ? piece.receive : piece.send).or_throw();
  }
  void batch() const {
    batch_isend_irecv(group_, {pieces_[0].receive, pieces_[1].receive, pieces_[0].send, pieces_[1].send}).get();
  }

  const Pattern pattern_;
  std::vector<Message> pieces_;
};

}  // namespace

std::unique_ptr<Exercise> make_messages(const Group& group, const Operation& operation, Size size, Buffers buffers) {
  return std::make_unique<MessageExercise>(group, operation, size, buffers);
}

}  // namespace tutti::bench
