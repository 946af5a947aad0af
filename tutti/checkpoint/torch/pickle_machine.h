#pragma once
// The machine that a pickle is a program for, as far as this reader has it: a stack and a memo of objects' numbers.
// Every function throws an Exception where the pickle is none (kCorrupt) or wants too much (kLimit, kUnsupported).
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/checkpoint/torch/pickle.h"

namespace tutti {

class PickleMachine {
 public:
  explicit PickleMachine(std::string_view text) : text_(text) {}
  Pickle run();

 private:
  using Kind = PickleNode::Kind;
  using Number = std::uint32_t;

  // The text.
  [[noreturn]] void corrupt(const std::string& what) const;
  std::string_view take(std::uint64_t bytes);
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line();

  // Objects, and the stack.
  Number add(PickleNode node);
  void push(PickleNode node) { stack_.push_back(add(std::move(node))); }
  void push_text(Kind kind, std::string_view text) { push({.kind = kind, .text = std::string(text), .items = {}}); }
  void push_int(std::int64_t value) { push({.kind = Kind::kInt, .whole = value, .text = {}, .items = {}}); }
  void push_bool(bool value) { push({.kind = Kind::kBool, .whole = value, .text = {}, .items = {}}); }
  void push_float(double value) { push({.kind = Kind::kFloat, .real = value, .text = {}, .items = {}}); }
  void push_items(Kind kind, std::vector<Number> items = {}) {
    push({.kind = kind, .text = {}, .items = std::move(items)});
  }
  PickleNode& at(Number number) { return pickle_.nodes[number]; }
  // Copies are counted, so that a short text cannot unfold into much.
  void spend(std::size_t copied);
  Number top();
  Number pop();
  // What lies above the last mark, without the mark.
  std::vector<Number> pop_to_mark();
  void append(Kind kind, const std::vector<Number>& items);
  void push_long(std::string_view bytes);
  void push_decimal(std::string_view text);

  // Calls: pickle_calls.cc.
  void push_name(std::string_view module, std::string_view name);
  // An object of a foreign name.
  void push_foreign(const std::string& name, std::vector<Number> items);
  // Calls `function`, a name, with `arguments`.
  void call(Number function, Number arguments);
  // Of the arguments of dict(): none, a list of pairs, or (of a defaultdict) a name.
  std::vector<Number> pairs_of(const std::vector<Number>& given);
  std::vector<Number> sequence_of(const std::vector<Number>& given);
  // Bytes in protocol 2: each is a character below 256, in UTF-8.
  void push_latin1(Number given);
  void build();

  // Opcodes: pickle.cc.
  void step(std::uint8_t opcode);
  void step_container(std::uint8_t opcode);
  void step_memo(std::uint8_t opcode);
  void step_text(std::uint8_t opcode);
  Number remembered(std::uint64_t place);

  const std::string_view text_;
  std::size_t at_ = 0, copied_ = 0;
  Pickle pickle_;
  std::vector<Number> stack_;
  std::unordered_map<std::uint64_t, Number> memo_;
};

}  // namespace tutti
