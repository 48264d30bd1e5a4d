/* What modules and libraries have in common, and reading their images. */
#ifndef SIMCUDA_IMAGE_H
#define SIMCUDA_IMAGE_H

#include "sim.h"

/* A variable of a module, once somebody has asked for it. */
struct global {
	char *name;
	uint64_t address, bytes;
	struct device *device;
	struct global *next;
};

/* image.c. *ptx is a copy of the text, NULL for a binary image. */
CUresult image_read(const void *image, char **ptx);
CUresult image_read_file(const char *path, char **ptx);
char *image_wrap(const char *ptx, size_t *size); /* a binary image that image_read takes apart again */
const char *ptx_next_entry(const char *from, size_t *length); /* NULL when there are no more */
bool ptx_has_entry(const char *ptx, const char *name);
uint64_t ptx_global_bytes(const char *ptx, const char *name); /* 0: no such variable */

/* module.c. Takes over ptx. */
CUresult module_new(struct call *call, enum kind kind, struct object *context, char *ptx, struct object **out);
CUresult module_find(struct object *module, enum kind kind, const char *name, struct object **out);
CUresult module_unload(struct object *module);
CUresult module_count(struct object *module, enum kind kind, unsigned int *out);
/* All functions that the text has, in its order; of a binary image those that were asked for. */
CUresult module_enumerate(struct object *module, enum kind kind, struct object **out, unsigned int n);
CUresult module_of_library(struct object *library, struct object *context, struct object **out);
CUresult function_of_kernel(struct object *kernel, struct object **out);

#endif
