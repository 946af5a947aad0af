#include "tutti/checkpoint/torch/pickle_machine.h"

#include <fmt/format.h>

#include "tutti/base/text.h"
#include "tutti/checkpoint/torch/pickle_names.h"

namespace tutti {
namespace {

constexpr std::size_t kMostNodes = std::size_t(1) << 28, kMostCopies = std::size_t(1) << 20;

}  // namespace

void PickleMachine::corrupt(const std::string& what) const {
  fail_pickle(Code::kCorrupt, fmt::format("the pickle {} at byte {}", what, at_));
}

std::string_view PickleMachine::take(std::uint64_t bytes) {
  if (bytes > text_.size() - at_) corrupt(fmt::format("wants {} bytes where it has {},", bytes, text_.size() - at_));
  const std::string_view out = text_.substr(at_, bytes);
  at_ += bytes;
  return out;
}

std::string_view PickleMachine::line() {
  const std::size_t end = text_.find('\n', at_);
  if (end == std::string_view::npos) corrupt("has a line without an end");
  const std::string_view out = take(end - at_);
  ++at_;
  return out;
}

PickleMachine::Number PickleMachine::add(PickleNode node) {
  if (pickle_.nodes.size() == kMostNodes) fail_pickle(Code::kLimit, "the pickle has too many objects");
  pickle_.nodes.push_back(std::move(node));
  return Number(pickle_.nodes.size() - 1);
}

void PickleMachine::spend(std::size_t copied) {
  copied_ += copied;
  if (copied_ > kMostCopies + 16 * text_.size()) fail_pickle(Code::kLimit, "the pickle copies far more than it holds");
}

PickleMachine::Number PickleMachine::top() {
  if (stack_.empty() || at(stack_.back()).kind == Kind::kMark) corrupt("takes from an empty stack");
  return stack_.back();
}

PickleMachine::Number PickleMachine::pop() {
  const Number number = top();
  stack_.pop_back();
  return number;
}

std::vector<PickleMachine::Number> PickleMachine::pop_to_mark() {
  auto mark = stack_.end();
  while (true) {
    if (mark == stack_.begin()) corrupt("takes to a mark that is not there");
    if (at(*--mark).kind == Kind::kMark) break;
  }
  std::vector<Number> items(mark + 1, stack_.end());
  stack_.erase(mark, stack_.end());
  return items;
}

void PickleMachine::append(Kind kind, const std::vector<Number>& items) {
  PickleNode& into = at(top());
  // Foreign objects that are dicts or lists of their own keep their class.
  if (into.kind != kind && into.kind != Kind::kForeign) corrupt("adds to what is no such container");
  if (kind == Kind::kDict && items.size() % 2 != 0) corrupt("has a key without a value");
  into.items.insert(into.items.end(), items.begin(), items.end());
}

void PickleMachine::push_long(std::string_view bytes) {  // little-endian, two's complement
  if (bytes.size() <= 8) {
    std::int64_t value = !bytes.empty() && (bytes.back() & 0x80) ? -1 : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return push_int(value);
  }
  std::string text;
  for (std::size_t i = bytes.size(); i > 0 && text.size() < 64; --i)
    text += fmt::format("{:02x}", std::uint8_t(bytes[i - 1]));
  push_text(Kind::kBig, "0x" + text);
}

void PickleMachine::push_decimal(std::string_view text) {
  if (text == "00" || text == "01") return push_bool(text == "01");
  if (text.ends_with('L')) text.remove_suffix(1);
  const auto value = parse_int(text);
  if (value) return push_int(*value);
  if (text.empty() || text.find_first_not_of("-0123456789") != std::string_view::npos) corrupt("has no number");
  push_text(Kind::kBig, text.substr(0, 64));
}

}  // namespace tutti
