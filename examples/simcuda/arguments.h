/* Arguments of kernel launches: the parameters of a kernel, the ledger of arguments, and their check. */
#ifndef SIMCUDA_ARGUMENTS_H
#define SIMCUDA_ARGUMENTS_H

#include "sim.h"

enum { PARAMETERS_MAX = 64 };

struct parameters {
	uint32_t len;
	struct {
		uint32_t offset, size;
		bool pointer; /* declared with .ptr */
	} at[PARAMETERS_MAX];
};

/* Defined in image.c: reads the parameters of an entry from PTX; false: it does not understand them. */
bool ptx_parameters(const char *ptx, const char *name, struct parameters *out);
/* Returns the parameters of a function or a kernel; false: they are unknown. */
bool parameters_of(const void *handle, struct parameters *out);

/* Notes the arguments of a launch, before it runs. */
void arguments_note(struct call *call, const void *handle, void **params, void **extra);
void arguments_open(void);

#endif
