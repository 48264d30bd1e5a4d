/*
 * Modules, libraries, and the functions and kernels in them. Nothing is compiled: of PTX only the names of its entry points are
 * read, of binary images nothing, so any name is found in those.
 */
#include "sim.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult load(struct call *call, enum kind kind, struct object *context, const void *image, struct object **out)
{
	static const uint32_t binaries[] = {0x464c457f /* ELF */, 0xba55ed50 /* fatbin */, 0x466243b1 /* its wrapper */};
	const char *ptx = image;
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(binaries) / sizeof(*binaries); i++)
		if (!memcmp(image, &binaries[i], sizeof(binaries[i])))
			ptx = NULL;
	/* PTX text begins with a directive, a comment or white space, so reading on to its NUL is safe. */
	if (ptx && !((*ptx == '.' || *ptx == '/' || isspace((unsigned char)*ptx)) && strstr(ptx, ".version")))
		return CUDA_ERROR_INVALID_IMAGE;
	char *copy = ptx ? strdup(ptx) : NULL;
	struct object *o = ptx && !copy ? NULL : object_new(kind, context);
	if (!o) {
		free(copy);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->module.ptx = copy;
	*out = o;
	call->ptr = H(o);
	call->src_ptr = H(image);
	return CUDA_SUCCESS;
}

static bool has_entry(const char *ptx, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = ptx; (p = strstr(p, ".entry")); ) {
		p += strlen(".entry");
		while (isspace((unsigned char)*p))
			p++;
		if (!strncmp(p, name, n) && !isalnum((unsigned char)p[n]) && !strchr("_$%", p[n] ? p[n] : ' '))
			return true;
	}
	return false;
}

static struct object *add(struct object *module, enum kind kind, const char *name, struct object *kernel)
{
	char *copy = strdup(name);
	struct object *o = copy ? object_new(kind, module->context) : NULL;
	if (!o) {
		free(copy);
		return NULL;
	}
	o->name = copy;
	o->function.module = module;
	o->function.kernel = kernel;
	o->next = module->module.functions;
	module->module.functions = o;
	return o;
}

/* The same name gives the same handle. */
static CUresult find(struct object *module, enum kind kind, const char *name, struct object **out)
{
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	if (strlen(name) >= KERNEL_NAME_MAX || (module->module.ptx && !has_entry(module->module.ptx, name)))
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&lock);
	struct object *o = module->module.functions;
	while (o && !(atomic_load(&o->kind) == (uint32_t)kind && !strcmp(o->name, name)))
		o = o->next;
	if (!o)
		o = add(module, kind, name, NULL);
	pthread_mutex_unlock(&lock);
	*out = o;
	return o ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult function_of_kernel(struct object *kernel, struct object **out)
{
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	struct object *library = kernel->function.module;
	pthread_mutex_lock(&lock);
	struct object *o = library->module.functions;
	while (o && o->function.kernel != kernel)
		o = o->next;
	if (!o)
		o = add(library, FUNCTION, kernel->name, kernel);
	pthread_mutex_unlock(&lock);
	*out = o;
	return o ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void module_free(struct object *module)
{
	pthread_mutex_lock(&lock);
	for (struct object *o = module->module.functions, *next; o; o = next) {
		next = o->next;
		object_free(o);
	}
	free(module->module.ptx);
	module->module.ptx = NULL;
	module->module.functions = NULL;
	object_free(module);
	pthread_mutex_unlock(&lock);
}

const char *kernel_name(const void *handle)
{
	struct object *o = object_of(handle, FUNCTION);
	if (!o)
		o = object_of(handle, KERNEL);
	return o ? o->name : NULL;
}

static CUresult unload(struct object *module)
{
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	module_free(module);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	BEGIN(cuModuleLoadData, NEEDS_CONTEXT, .src_ptr = H(image));
	struct object *o = NULL;
	DO(module ? load(&call, MODULE, call.current, image, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		*module = (CUmodule)o;
	return END();
}

EXPORT CUresult cuModuleUnload(CUmodule hmod)
{
	BEGIN(cuModuleUnload, NEEDS_CONTEXT, .ptr = H(hmod));
	DO(unload(object_of(hmod, MODULE)));
	return END();
}

EXPORT CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	BEGIN(cuModuleGetFunction, NEEDS_CONTEXT, .ptr = H(hmod), .kernel = name);
	struct object *o = NULL;
	DO(hfunc ? find(object_of(hmod, MODULE), FUNCTION, name, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		*hfunc = (CUfunction)o;
		call.function = H(o);
	}
	return END();
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
				  unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
				  unsigned int numLibraryOptions)
{
	BEGIN(cuLibraryLoadData, NEEDS_INIT, .src_ptr = H(code));
	(void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
	(void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
	struct object *o = NULL;
	DO(library ? load(&call, LIBRARY, NULL, code, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		*library = (CUlibrary)o;
	return END();
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
	BEGIN(cuLibraryUnload, NEEDS_INIT, .ptr = H(library));
	DO(unload(object_of(library, LIBRARY)));
	return END();
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	BEGIN(cuLibraryGetKernel, NEEDS_INIT, .ptr = H(library), .kernel = name);
	struct object *o = NULL;
	DO(pKernel ? find(object_of(library, LIBRARY), KERNEL, name, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		*pKernel = (CUkernel)o;
		call.function = H(o);
	}
	return END();
}

EXPORT CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	BEGIN(cuKernelGetFunction, NEEDS_CONTEXT, .ptr = H(kernel));
	struct object *o = NULL;
	DO(pFunc ? function_of_kernel(object_of(kernel, KERNEL), &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		*pFunc = (CUfunction)o;
		call.function = H(o);
		call.kernel = o->name;
	}
	return END();
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
	BEGIN(cuFuncGetName, NEEDS_INIT, .function = H(hfunc));
	call.kernel = kernel_name(hfunc);
	DO(!name ? CUDA_ERROR_INVALID_VALUE : call.kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
	if (!call.result)
		*name = call.kernel;
	return END();
}
