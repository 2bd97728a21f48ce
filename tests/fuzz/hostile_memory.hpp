// The memory of a process that is an enemy. Who links hostile_memory.cpp reads it by every TargetMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "processes/target_memory.hpp"

namespace memtrace {

enum class MemoryShape : uint8_t {
    once,      // the bytes are at their place, and nothing else can be read
    endless,   // every address can be read: the bytes are there over and over
    changing,  // as once, and each read finds them in another order
};

/// What is read from now on: `bytes`, which must live as long, at `start`.
void set_hostile_memory(MemoryShape shape, std::span<const uint8_t> bytes, uint64_t start);
/// A TargetMemory of it.
TargetMemory hostile_memory();

}  // namespace memtrace
