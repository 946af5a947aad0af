#pragma once
// What a program that does not catch an Exception dies of: a sentence and an exit code, instead of "terminate called
// after throwing an instance of ..." and a core.

namespace tutti {

// Installs a std::terminate handler, once; init() calls it. An uncaught tutti::Exception, of whatever thread, is
// printed on standard error and ends the process: code 2 for wrong usage, 4 where the ranks did not meet, else 1.
// Streams of stdio are flushed, destructors do not run. Anything else goes to the handler that was there before.
void end_uncaught_exceptions_with_a_sentence();

}  // namespace tutti
