/* Conversion of the arguments of copies and memory sets to ops (see graph.h). */
#ifndef SIMCUDA_COPY_H
#define SIMCUDA_COPY_H

#include "graph.h"

enum direction { ANY, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

CUresult copy_op(enum direction direction, uint64_t dst, uint64_t src, size_t bytes, struct op *op);
CUresult copy_op_3d(const CUDA_MEMCPY3D_PEER *copy, struct op *op);
CUresult set_op(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height, struct op *op);

#endif
