/* The driver API of simcuda's libcuda.so.1. */
#ifndef SIMTORCH_DRIVER_H
#define SIMTORCH_DRIVER_H

#include <cstddef>
#include <cstdint>

#define _Static_assert static_assert /* the headers are C */
extern "C" {
#include "cuda_sim.h"
}
#undef _Static_assert

/* Calls a driver function. Throws if it fails. */
#define CU(fn, ...) driver_check(fn(__VA_ARGS__), #fn)
void driver_check(CUresult result, const char *name);

int driver_start(); /* returns the number of devices */
/* Makes the primary context of the device current in the calling thread. */
void driver_use(int device);
size_t driver_memory(int device);

#endif
