// A C++ library that brings operator new into a C program while it is traced.
#include <cstddef>
#include <new>

extern "C" {

__attribute__((noipa)) void* late_new(size_t size_bytes) {
    return ::operator new(size_bytes);
}

__attribute__((noipa)) void late_delete(void* block) {
    ::operator delete(block);
}
}
