// A C++ library that brings operator new into a C program while it is traced.
#include <cstddef>
#include <new>

#include "workload.h"

extern "C" {

CALL_SITE void* late_new(size_t size_bytes) {
    return ::operator new(size_bytes);
}

CALL_SITE void late_delete(void* block) {
    ::operator delete(block);
}
}
