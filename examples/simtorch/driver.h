/* The driver API, as simcuda's libcuda.so.1 offers it. */
#ifndef SIMTORCH_DRIVER_H
#define SIMTORCH_DRIVER_H

#include <cstddef>
#include <cstdint>

#define _Static_assert static_assert /* the headers are C */
extern "C" {
#include "cuda_sim.h"
}
#undef _Static_assert

/* Calls a function of the driver, which may only succeed. */
#define CU(fn, ...) driver_check(fn(__VA_ARGS__), #fn)
void driver_check(CUresult result, const char *name);

int driver_start(); /* the number of devices */
/* Makes the device's primary context current in this thread. */
void driver_use(int device);
size_t driver_memory(int device);

#endif
