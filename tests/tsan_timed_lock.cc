// g++ 12's thread sanitizer does not know pthread_mutex_clocklock, with which std::timed_mutex is
// locked until a time: it would report races between threads that hold the mutex in turns. This
// definition comes before libc's, and tells the sanitizer of the lock.
#include <dlfcn.h>
#include <pthread.h>
#include <sanitizer/tsan_interface.h>

extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const timespec* until) noexcept {
  using Function = int (*)(pthread_mutex_t*, clockid_t, const timespec*);
  static const auto libc = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_mutex_clocklock"));
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
  const int result = libc(mutex, clock, until);
  const unsigned failed = result == 0 ? 0U : __tsan_mutex_try_lock_failed;
  __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock | failed, 0);
  return result;
}
