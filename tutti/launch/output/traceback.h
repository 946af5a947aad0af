#pragma once
// The traceback with which a Python program ends, found in the lines of its standard error.
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace tutti::launch {

// Keeps the last traceback of a stream, together with the exceptions that led to it ("During handling of the above
// exception ..."). Skipped: exceptions that end no program ("Exception ignored in ...", "Exception in thread ..."), and
// a traceback after which the program wrote many more lines. Of a long traceback the middle is lost, so the memory is
// bounded.
class Traceback {
 public:
  void add(std::string_view line);
  // The line of the exception, and below it the whole traceback:
  //   "ValueError: x\nTraceback (most recent call last):\n  File ...\nValueError: x"
  // Empty: the stream does not end with a traceback.
  std::string message() const;

 private:
  enum class State {
    kOutside,    // the next line is no part of a traceback
    kFrames,     // the next line is a frame or the exception
    kException,  // the next line may continue the text of the exception
    kIgnored     // as kFrames, of an exception that ends no program
  };

  void begin(bool prefixed);
  void keep(const std::string& line);
  bool continues(const std::string& line, bool prefixed) const;
  void add_outside(const std::string& line, bool prefixed);

  State state_ = State::kOutside;
  std::string before_;              // the last line that was not empty
  std::string exception_;           // its line; empty: the traceback has not ended
  std::string head_;                // the first lines of the traceback, each with '\n'
  std::deque<std::string> tail_;    // the later ones
  std::size_t tail_bytes_ = 0;      // with a '\n' for each
  std::size_t lost_ = 0;            // lines between head_ and tail_
  std::size_t lines_after_ = 0;     // since exception_
  bool prefixed_ = false;           // PyTorch prefixes the lines: "[rank3]: "
  bool only_syntax_error_ = false;  // it began without a header, as the traceback of a program that does not compile
};

// A line without what PyTorch ("[rank3]: ") or Python (colours) add to the lines of a traceback.
std::string plain_line(std::string_view line);

}  // namespace tutti::launch
