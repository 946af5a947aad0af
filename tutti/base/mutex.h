#pragma once
// A mutex that clang's thread-safety analysis understands (-Wthread-safety, enabled with clang). A member with
// TUTTI_GUARDED_BY(mutex_) may only be used while the mutex is held; otherwise the code does not compile.
#include <chrono>
#include <mutex>

#if defined(__clang__)
#define TUTTI_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TUTTI_THREAD_ANNOTATION(x)
#endif
#define TUTTI_GUARDED_BY(mutex) TUTTI_THREAD_ANNOTATION(guarded_by(mutex))
#define TUTTI_REQUIRES(mutex) TUTTI_THREAD_ANNOTATION(requires_capability(mutex))  // the caller holds it
#define TUTTI_EXCLUDES(mutex) TUTTI_THREAD_ANNOTATION(locks_excluded(mutex))       // the caller does not hold it
// For other kinds of lock: the type, its functions, and a function that returns a reference to one.
#define TUTTI_CAPABILITY(name) TUTTI_THREAD_ANNOTATION(capability(name))
#define TUTTI_SCOPED_CAPABILITY TUTTI_THREAD_ANNOTATION(scoped_lockable)
#define TUTTI_ACQUIRE(...) TUTTI_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TUTTI_TRY_ACQUIRE(...) TUTTI_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TUTTI_RELEASE(...) TUTTI_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TUTTI_RETURNS_CAPABILITY(mutex) TUTTI_THREAD_ANNOTATION(lock_returned(mutex))
// A function that uses guarded members without the mutex. A comment says why that is right.
#define TUTTI_NO_THREAD_SAFETY_ANALYSIS TUTTI_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace tutti {

class TUTTI_CAPABILITY("mutex") Mutex {
 public:
  void lock() TUTTI_ACQUIRE() { mutex_.lock(); }
  void unlock() TUTTI_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// A Mutex whose holder may be stuck.
class TUTTI_CAPABILITY("mutex") TimedMutex {
 public:
  void lock() TUTTI_ACQUIRE() { mutex_.lock(); }
  bool try_lock_for(std::chrono::nanoseconds limit) TUTTI_TRY_ACQUIRE(true) { return mutex_.try_lock_for(limit); }
  void unlock() TUTTI_RELEASE() { mutex_.unlock(); }

 private:
  std::timed_mutex mutex_;
};

// Holds a mutex during its lifetime, except between unlock() and lock(), which std::condition_variable_any uses.
template <class Kind>
class TUTTI_SCOPED_CAPABILITY LockOf {
 public:
  explicit LockOf(Kind& mutex) TUTTI_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockOf() TUTTI_RELEASE() {
    if (locked_) mutex_.unlock();
  }
  LockOf(const LockOf&) = delete;
  void lock() TUTTI_ACQUIRE() {
    mutex_.lock();
    locked_ = true;
  }
  void unlock() TUTTI_RELEASE() {
    locked_ = false;
    mutex_.unlock();
  }

 private:
  Kind& mutex_;
  bool locked_ = true;
};
using MutexLock = LockOf<Mutex>;
using TimedMutexLock = LockOf<TimedMutex>;

}  // namespace tutti
