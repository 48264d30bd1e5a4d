/* Libraries (cuLibrary…): modules without a context, and their kernels. */
#include "image.h"

static CUresult create(struct call *call, CUlibrary *library, CUresult read, char *ptx)
{
	struct object *o = NULL;
	CUresult result = read ? read : module_new(call, LIBRARY, NULL, ptx, &o);
	if (!result)
		*library = (CUlibrary)o;
	return result;
}

static CUresult load(struct call *call, CUlibrary *library, const void *code)
{
	char *ptx;
	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult read = image_read(code, &ptx);
	return create(call, library, read, ptx);
}

static CUresult load_file(struct call *call, CUlibrary *library, const char *path)
{
	char *ptx;
	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult read = image_read_file(path, &ptx);
	return create(call, library, read, ptx);
}

#define LIBRARY_LOAD(fn, source_type, work)                                                                                \
	EXPORT CUresult fn(CUlibrary *library, source_type source, CUjit_option *jitOptions, void **jitOptionsValues,      \
			   unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,        \
			   unsigned int numLibraryOptions)                                                                 \
	{                                                                                                                  \
		BEGIN(fn, NEEDS_INIT, .src_ptr = H(source));                                                               \
		(void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;                                             \
		(void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;                                  \
		DO(work(&call, library, source));                                                                          \
		return END();                                                                                              \
	}
LIBRARY_LOAD(cuLibraryLoadData, const void *, load)
LIBRARY_LOAD(cuLibraryLoadFromFile, const char *, load_file)

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
	BEGIN(cuLibraryUnload, NEEDS_INIT, .ptr = H(library));
	DO(module_unload(object_of(library, LIBRARY)));
	return END();
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	BEGIN(cuLibraryGetKernel, NEEDS_INIT, .ptr = H(library), .kernel = name);
	struct object *o = NULL;
	DO(pKernel ? module_find(object_of(library, LIBRARY), KERNEL, name, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		*pKernel = (CUkernel)o;
		call.function = H(o);
	}
	return END();
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	BEGIN(cuLibraryGetKernelCount, NEEDS_INIT, .ptr = H(lib));
	DO(module_count(object_of(lib, LIBRARY), KERNEL, count));
	if (!call.result)
		call.value = *count;
	return END();
}

EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	BEGIN(cuLibraryEnumerateKernels, NEEDS_INIT, .ptr = H(lib), .value = numKernels);
	DO(module_enumerate(object_of(lib, LIBRARY), KERNEL, (struct object **)kernels, numKernels));
	return END();
}

EXPORT CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	BEGIN(cuLibraryGetModule, NEEDS_CONTEXT, .src_ptr = H(library));
	struct object *o = NULL;
	DO(pMod ? module_of_library(object_of(library, LIBRARY), call.current, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		*pMod = (CUmodule)o;
		call.ptr = H(o);
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

EXPORT CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
	BEGIN(cuKernelGetName, NEEDS_INIT, .function = H(hfunc));
	call.kernel = kernel_name(hfunc);
	DO(!name ? CUDA_ERROR_INVALID_VALUE : call.kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
	if (!call.result)
		*name = call.kernel;
	return END();
}
