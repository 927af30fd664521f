// Device and pinned allocations. Fresh device memory is garbage (all ones); optionally it is
// inaccessible while host code runs and ends at a guard page.
#pragma once
#include <cstddef>

namespace vitrine::emu {

// Null when the host is out of memory.
void* AllocateDevice(size_t bytes);
void* AllocatePinned(size_t bytes);
// False when `p` was not allocated here.
bool FreeAllocation(void* p);
// True for device and pinned memory: a kernel may read both.
bool IsKernelAccessible(const void* p);
// True when [p, p + bytes) lies inside one device or pinned allocation, or wholly outside all.
bool IsWithinAllocation(const void* p, size_t bytes);
size_t AllocatedBytes();
// Opens or closes device memory in protected mode; no effect otherwise.
void ProtectDeviceMemory(bool accessible);

// Opens device memory for the duration of a copy or launch.
class DeviceAccess {
 public:
  DeviceAccess() { ProtectDeviceMemory(true); }
  ~DeviceAccess() { ProtectDeviceMemory(false); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace vitrine::emu
