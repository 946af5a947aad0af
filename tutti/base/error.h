#pragma once
// An error as a value. Functions above the Torch line return Status or Result<T>. At the edge
// (Work::get(), tutti::init(), TUTTI_REQUIRE) the same Error is thrown inside an Exception. error.cc composes the text
// that a user reads from the fields.
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

enum class Code {
  kInvalidArgument,  // the caller's mistake: says what was given and what was expected
  kUsage,            // the command line or the environment is wrong: exit code 2
  kMismatch,         // ranks made different calls, or run different programs
  kTimeout,          // the deadline passed
  kPeerLost,         // another rank died or closed its connection
  kAborted,          // the group was ended by an earlier error or by the user
  kRefused,          // the peer rejected this process: secret, job, generation
  kUnreachable,      // no answer from an address
  kAddressInUse,     // another process holds a port or socket
  kNotFound,         // a key, file or program does not exist
  kCorrupt,          // bytes do not match their format
  kLimit,            // a size, count or resource limit was reached
  kNonFinite,        // a loss or a gradient is NaN or infinite
  kUnsupported,      // not possible here, and never emulated silently
  kSystem,           // a system call failed
  kInternal,         // a defect of tutti
};

// The class name that opens the text of an error: "PeerLost", "Timeout", ...
const char* name(Code code);

// Metadata only; unknown fields stay empty. `detail` is a clause without a full stop ("closed the connection"), with
// what no other field contains. `hint` says what to do.
struct Error {
  Code code = Code::kInternal;
  std::string detail = {};
  std::string hint = {};
  std::string group = {};       // name of the group, e.g. "world"
  int rank = -1;                // this rank, in `group`
  std::string operation = {};   // e.g. "all_reduce #42 (f32[1048576], sum)"
  int peer = -1;                // the peer's rank, in `group`
  std::vector<int> ranks = {};  // in `group`: those that are late; empty: not known, or not what the error is about
  std::vector<int> lost = {};   // in `group`: those that are gone, as far as this rank knows
  std::string address = {};     // of the peer or the server, e.g. "10.0.0.7:4123"
  double waited = -1;           // seconds
  double limit = -1;            // seconds allowed
  int errno_value = 0;          // 0: not from a system call
  std::string cause = {};       // the text of the error that led to this one, if it is another error
};

// One line, for example:
//   PeerLost: all_reduce #42 (f32[1048576]) on group dp, rank 2: rank 3 at 10.0.0.7:4123 closed the connection after
//   12.4 s of 30 s (hint: ...)
std::string to_string(const Error& error);

// The only exception type of the library.
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error) : std::runtime_error(to_string(error)), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// Success, or an Error. Cheap when successful (one null pointer); copies share the error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::make_shared<const Error>(std::move(error))) {}  // NOLINT: meant to convert
  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }  // only if !ok()
  void or_throw() const {
    if (error_) throw Exception(*error_);
  }

 private:
  std::shared_ptr<const Error> error_;
};

// A T, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: meant to convert
  Result(Error error) : status_(std::move(error)) {}     // NOLINT
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: must hold an error
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  T& operator*() & { return *value_; }  // only if ok(), like the four functions below
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }       // moves the error out; do not call error() afterwards
  const Error& error() const { return status_.error(); }  // only if !ok()
  T or_throw() && {
    status_.or_throw();
    return std::move(value_).value();
  }

 private:
  std::optional<T> value_;
  Status status_;  // holds an error if there is no value
};

namespace detail {
inline Status status_of(Status&& status) { return std::move(status); }
template <class T>
Status status_of(Result<T>&& result) {
  return std::move(result).status();
}
inline void value_of(Status&&) {}
template <class T>
T value_of(Result<T>&& r) {
  return *std::move(r);
}
[[noreturn]] void fail_requirement(const char* condition, std::string detail, std::string hint);
[[noreturn]] void fail_invariant(const char* condition, const char* file, int line, std::string detail);
}  // namespace detail

// Returns the result of `make`, or the Error of the Exception that it throws. For a constructor call in a function that
// returns a Result.
template <class Make>
auto as_result(const Make& make) -> Result<decltype(make())> {
  try {
    return make();
  } catch (const Exception& thrown) {
    return thrown.error();
  }
}

// An Error of a system call. `what` is the clause before errno's text.
Error system_error(int errno_value, std::string what, std::string hint = {});
inline Error invalid_argument(std::string detail, std::string hint = {}) {
  return Error{.code = Code::kInvalidArgument, .detail = std::move(detail), .hint = std::move(hint)};
}

// auto x = TUTTI_TRY(expression of Result<T>);  TUTTI_TRY(expression of Status);
// On failure both return the error from the calling function.
#define TUTTI_TRY(expression)                                                           \
  __extension__({                                                                       \
    auto tutti_result = (expression);                                                   \
    if (!tutti_result.ok()) return ::tutti::detail::status_of(std::move(tutti_result)); \
    ::tutti::detail::value_of(std::move(tutti_result));                                 \
  })

// The caller's fault: throws Exception(kInvalidArgument) with the given message.
#define TUTTI_REQUIRE(condition, ...) \
  ((condition) ? void() : ::tutti::detail::fail_requirement(#condition, ::tutti::detail::words(__VA_ARGS__), {}))

// A defect of tutti: throws Exception(kInternal).
#define TUTTI_INVARIANT(condition, ...) \
  ((condition) ? void()                 \
               : ::tutti::detail::fail_invariant(#condition, __FILE__, __LINE__, ::tutti::detail::words(__VA_ARGS__)))

namespace detail {
inline void append(std::string& out, const std::string& part) { out += part; }
inline void append(std::string& out, const char* part) { out += part; }
template <class T>
  requires std::is_arithmetic_v<T>
void append(std::string& out, T part) { out += std::to_string(part); }
// Concatenates the operands to one string.
template <class... Parts>
std::string words(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}
}  // namespace detail

// Puts a command-line option in front of an error: "--trace: cannot make the ...". Returns ok unchanged.
inline Status of_option(const std::string& option, Status status) {
  if (status.ok()) return status;
  Error error = status.error();
  error.detail = option + ": " + error.detail;
  return error;
}

}  // namespace tutti
