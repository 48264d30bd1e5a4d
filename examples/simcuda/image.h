/* Functions for images (PTX or binary), and for modules and libraries, which are made from
 * images. */
#ifndef SIMCUDA_IMAGE_H
#define SIMCUDA_IMAGE_H

#include "sim.h"

/* A variable of a module, created at the first query for it. */
struct global {
	char *name;
	uint64_t address, bytes;
	struct device *device;
	struct global *next;
};

/* Defined in image.c. *ptx receives a copy of the PTX text, or NULL for a binary image. */
CUresult image_read(const void *image, char **ptx);
CUresult image_read_file(const char *path, char **ptx);
/* Returns a binary image around the PTX text. image_read extracts the text again. */
char *image_wrap(const char *ptx, size_t *size);
const char *ptx_next_entry(const char *from, size_t *length); /* NULL after the last entry */
bool ptx_has_entry(const char *ptx, const char *name);
/* Reports whether the first parameter of a kernel is the duration of its launch. */
bool ptx_has_duration(const char *ptx, const char *name);
uint64_t ptx_global_bytes(const char *ptx, const char *name); /* 0: no such variable */

/* Defined in module.c. The new module owns ptx. */
CUresult module_new(struct call *call, enum kind kind, struct object *context, char *ptx, struct object **out);
CUresult module_find(struct object *module, enum kind kind, const char *name, struct object **out);
CUresult module_unload(struct object *module);
CUresult module_count(struct object *module, enum kind kind, unsigned int *out);
/* Lists the functions in the order of the PTX text. For a binary image, lists only the functions
 * that were looked up before. */
CUresult module_enumerate(struct object *module, enum kind kind, struct object **out, unsigned int n);
CUresult module_of_library(struct object *library, struct object *context, struct object **out);
CUresult function_of_kernel(struct object *kernel, struct object **out);

#endif
