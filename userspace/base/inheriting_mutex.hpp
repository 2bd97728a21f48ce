// A mutex whose holder has the priority of who waits for it, so that a thread in a hurry does not wait for a cpu that a
// less urgent one waits for. Uses nothing.
#pragma once

#include <pthread.h>

namespace memtrace {

/// BasicLockable, as std::mutex is. Thread-safe.
class InheritingMutex {
  public:
    InheritingMutex() {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
        pthread_mutex_init(&mutex_, &attributes);
        pthread_mutexattr_destroy(&attributes);
    }
    ~InheritingMutex() { pthread_mutex_destroy(&mutex_); }
    InheritingMutex(const InheritingMutex&) = delete;
    InheritingMutex& operator=(const InheritingMutex&) = delete;

    void lock() { pthread_mutex_lock(&mutex_); }
    void unlock() { pthread_mutex_unlock(&mutex_); }

  private:
    pthread_mutex_t mutex_;
};

}  // namespace memtrace
