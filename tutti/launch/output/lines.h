#pragma once
// From the bytes of a pipe to whole lines.
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace tutti {

// Collects bytes until a line is whole. A line longer than kLongest comes out in pieces of that size, so one endless
// line cannot take the memory of the agent.
class LineSplitter {
 public:
  static constexpr std::size_t kLongest = 64 * 1024;
  using Sink = std::function<void(std::string_view line)>;  // without its '\n'

  void feed(std::string_view bytes, const Sink& sink);
  void flush(const Sink& sink);  // the partial last line, if any

 private:
  std::string partial_;
};

// The last lines of a worker, for the report of its failure.
class Tail {
 public:
  explicit Tail(std::size_t lines) : lines_(lines) {}
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return kept_; }

 private:
  static constexpr std::size_t kLongest = 2000;
  std::size_t lines_;
  std::deque<std::string> kept_;
};

}  // namespace tutti
