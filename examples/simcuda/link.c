/* The simulated linker (cuLink…). It collects PTX texts, and makes one image that contains all
 * their names. */
#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUresult create(struct call *call, CUlinkState *out, unsigned int n, const CUjit_option *options, void *const *values)
{
	if (!out || (n > 0 && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(LINK, call->current);
	char *text = o ? strdup("") : NULL;
	if (!text) {
		if (o)
			object_free(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->link.text = text;
	*out = (CUlinkState)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

#define LINK_CREATE(fn)                                                                                                   \
	EXPORT CUresult fn(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)    \
	{                                                                                                                 \
		BEGIN(fn, NEEDS_CONTEXT);                                                                                 \
		DO(create(&call, stateOut, numOptions, options, optionValues));                                           \
		return END();                                                                                             \
	}
LINK_CREATE(cuLinkCreate)
LINK_CREATE(cuLinkCreate_v2)

static CUresult append(struct object *o, const char *more)
{
	size_t have = strlen(o->link.text), add = strlen(more);
	char *text = realloc(o->link.text, have + add + 1);
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(text + have, more, add + 1);
	o->link.text = text;
	return CUDA_SUCCESS;
}

/* Adds an input to the link. simcuda reads no names from binary inputs, so they add nothing. */
static CUresult add(struct object *o, CUjitInputType type, const char *data, size_t size)
{
	/* Number of input types: cubin, PTX, fat binary, object, library, NVVM. */
	enum { TYPES = 6 };
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!data || !size || (unsigned)type >= TYPES || o->link.cubin)
		return CUDA_ERROR_INVALID_VALUE;
	/* Zero bytes appended to the data, which may lack a complete header or a final NUL. */
	enum { ZEROS = 64 };
	char *copy = calloc(1, size + ZEROS), *ptx = NULL;
	if (copy)
		memcpy(copy, data, size);
	CUresult result = !copy ? CUDA_ERROR_OUT_OF_MEMORY : type == CU_JIT_INPUT_PTX ? image_read(copy, &ptx) : CUDA_SUCCESS;
	if (!result && ptx)
		result = append(o, ptx);
	free(copy);
	free(ptx);
	return result;
}

#define LINK_ADD_DATA(fn)                                                                                          \
	EXPORT CUresult fn(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,      \
			   unsigned int numOptions, CUjit_option *options, void **optionValues)                    \
	{                                                                                                          \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(state), .src_ptr = H(data));                                     \
		(void)name, (void)numOptions, (void)options, (void)optionValues;                                   \
		DO(add(object_of(state, LINK), type, data, size));                                                 \
		return END();                                                                                      \
	}
LINK_ADD_DATA(cuLinkAddData)
LINK_ADD_DATA(cuLinkAddData_v2)

static CUresult add_file(struct object *o, CUjitInputType type, const char *path)
{
	char text[4096];
	FILE *f = path ? fopen(path, "r") : NULL;
	if (!f)
		return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
	size_t n = fread(text, 1, sizeof(text), f);
	fclose(f);
	return n < sizeof(text) ? add(o, type, text, n) : CUDA_ERROR_OUT_OF_MEMORY;
}

#define LINK_ADD_FILE(fn)                                                                                     \
	EXPORT CUresult fn(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions, \
			   CUjit_option *options, void **optionValues)                                        \
	{                                                                                                     \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(state), .src_ptr = H(path));                                \
		(void)numOptions, (void)options, (void)optionValues;                                          \
		DO(add_file(object_of(state, LINK), type, path));                                             \
		return END();                                                                                 \
	}
LINK_ADD_FILE(cuLinkAddFile)
LINK_ADD_FILE(cuLinkAddFile_v2)

/* Makes the linked image. The link state owns the image and frees it with itself. */
static CUresult complete(struct object *o, void **image, size_t *size)
{
	size_t length;
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!image || o->link.cubin)
		return CUDA_ERROR_INVALID_VALUE;
	o->link.cubin = image_wrap(o->link.text, &length);
	if (!o->link.cubin)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*image = o->link.cubin;
	if (size)
		*size = length;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	BEGIN(cuLinkComplete, NEEDS_CONTEXT, .ptr = H(state));
	DO(complete(object_of(state, LINK), cubinOut, sizeOut));
	return END();
}

void link_free(struct object *o)
{
	free(o->link.text);
	free(o->link.cubin);
	object_free(o);
}

static CUresult destroy(struct object *o)
{
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	link_free(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkDestroy(CUlinkState state)
{
	BEGIN(cuLinkDestroy, NEEDS_CONTEXT, .ptr = H(state));
	DO(destroy(object_of(state, LINK)));
	return END();
}
