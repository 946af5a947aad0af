#pragma once
// Whether an exception unwinds the stack past an object: asked in its destructor. That is more than that there is one
// under way, since objects may come and go within a destructor that an exception called.
#include <exception>

namespace tutti {

// A member of the object.
class Unwinding {
 public:
  bool is_past() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace tutti
