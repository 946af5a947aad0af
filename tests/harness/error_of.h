#pragma once
// The text of the exception that a call throws, for tests of messages.
#include <exception>
#include <functional>
#include <string>

namespace tutti::test {

// what() of the exception, or "no error".
inline std::string error_of(const std::function<void()>& act) {
  try {
    act();
    return "no error";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace tutti::test
