/* libc10.so: what PyTorch's allocator calls outside of itself. */
#include "c10.h"

namespace c10 {

/* PyTorch asks whether a profiler is listening and returns when none is, which is all that happens here. */
__attribute__((noipa)) void reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, Device)
{
}

} // namespace c10
