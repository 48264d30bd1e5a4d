/* Modules and their functions. simcuda compiles nothing: a function is a name. */
#include "arguments.h"
#include "image.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CUresult module_new(struct call *call, enum kind kind, struct object *context, char *ptx, struct object **out)
{
	struct object *o = object_new(kind, context);
	if (!o) {
		free(ptx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->module.ptx = ptx;
	*out = o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
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
	o->function.has_duration = module->module.ptx && ptx_has_duration(module->module.ptx, name);
	o->next = module->module.functions;
	module->module.functions = o;
	return o;
}

/* Returns the existing handle of the name, if any: each name has one handle. */
static struct object *find_locked(struct object *module, enum kind kind, const char *name)
{
	struct object *o = module->module.functions;
	while (o && !(atomic_load(&o->kind) == (uint32_t)kind && !strcmp(o->name, name)))
		o = o->next;
	return o ? o : add(module, kind, name, NULL);
}

CUresult module_find(struct object *module, enum kind kind, const char *name, struct object **out)
{
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	if (strlen(name) >= KERNEL_NAME_MAX || (module->module.ptx && !ptx_has_entry(module->module.ptx, name)))
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&lock);
	struct object *o = find_locked(module, kind, name);
	pthread_mutex_unlock(&lock);
	*out = o;
	return o ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult function_of_kernel(struct object *kernel, struct object **out)
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

CUresult module_enumerate(struct object *module, enum kind kind, struct object **out, unsigned int n)
{
	unsigned int len = 0;
	bool ok = true;
	size_t length;
	if (!module || !out)
		return module ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	const char *p = module->module.ptx;
	while (p && len < n && ok && (p = ptx_next_entry(p, &length))) {
		char *name = strndup(p, length);
		ok = name && (out[len++] = find_locked(module, kind, name));
		free(name);
		p += length;
	}
	for (struct object *o = module->module.functions; o && !module->module.ptx && len < n; o = o->next)
		if (atomic_load(&o->kind) == (uint32_t)kind)
			out[len++] = o;
	pthread_mutex_unlock(&lock);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult module_count(struct object *module, enum kind kind, unsigned int *out)
{
	size_t length;
	unsigned int n = 0;
	if (!module || !out)
		return module ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	for (const char *p = module->module.ptx; p && (p = ptx_next_entry(p, &length)); p += length)
		n++;
	for (struct object *o = module->module.functions; o && !module->module.ptx; o = o->next)
		n += atomic_load(&o->kind) == (uint32_t)kind;
	pthread_mutex_unlock(&lock);
	*out = n;
	return CUDA_SUCCESS;
}

/* Returns the library's module in the given context, and creates it at the first use. The module
 * is freed with the library or with the context. */
CUresult module_of_library(struct object *library, struct object *context, struct object **out)
{
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	struct object *o = library->module.modules;
	while (o && o->context != context)
		o = o->next;
	if (!o && (o = object_new(MODULE, context))) {
		o->module.ptx = library->module.ptx ? strdup(library->module.ptx) : NULL;
		o->module.library = library;
		o->next = library->module.modules;
		library->module.modules = o;
	}
	pthread_mutex_unlock(&lock);
	*out = o;
	return o ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void free_locked(struct object *module)
{
	struct object *library = module->module.library;
	for (struct object **link = library ? &library->module.modules : NULL; link && *link; link = &(*link)->next) {
		if (*link == module) {
			*link = module->next;
			break;
		}
	}
	while (module->module.modules)
		free_locked(module->module.modules);
	for (struct object *o = module->module.functions, *next; o; o = next) {
		next = o->next;
		object_free(o);
	}
	for (struct global *g = module->module.globals, *next; g; g = next) {
		next = g->next;
		memory_unplace(g->device, g->address);
		free(g->name);
		free(g);
	}
	free(module->module.ptx);
	module->module.ptx = NULL;
	module->module.functions = NULL;
	object_free(module);
}

void module_free(struct object *module)
{
	pthread_mutex_lock(&lock);
	free_locked(module);
	pthread_mutex_unlock(&lock);
}

CUresult module_unload(struct object *module)
{
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (module->module.library)
		return CUDA_ERROR_NOT_PERMITTED;
	module_free(module);
	return CUDA_SUCCESS;
}

const char *kernel_name(const void *handle)
{
	struct object *o = object_of(handle, FUNCTION);
	if (!o)
		o = object_of(handle, KERNEL);
	return o ? o->name : NULL;
}

bool parameters_of(const void *handle, struct parameters *out)
{
	struct object *o = object_of(handle, FUNCTION);
	if (!o)
		o = object_of(handle, KERNEL);
	const char *ptx = o ? o->function.module->module.ptx : NULL;
	return ptx && ptx_parameters(ptx, o->name, out);
}

uint64_t kernel_duration(const void *handle, void *const *arguments)
{
	const struct object *o = object_of(handle, FUNCTION);
	if (!o || !o->function.has_duration || !arguments || !arguments[0])
		return 0;
	uint64_t ns = *(const uint64_t *)arguments[0];
	return ns < KERNEL_MAX_NS ? ns : KERNEL_MAX_NS;
}

/* ---- variables ---- */

static struct global *global_new(struct object *module, const char *name, uint64_t bytes)
{
	struct global *g = calloc(1, sizeof(*g));
	struct device *d = module->context->ctx.device;
	char *copy = strdup(name);
	uint64_t address = g && copy ? memory_place(d, bytes, GLOBAL_MEMORY, NULL, NULL) : 0;
	if (!address) {
		free(g);
		free(copy);
		return NULL;
	}
	*g = (struct global){copy, address, bytes, d, module->module.globals};
	module->module.globals = g;
	return g;
}

static CUresult global_of(struct call *call, struct object *module, const char *name, CUdeviceptr *address, size_t *bytes)
{
	enum { IN_BINARY = 64 /* bytes of every variable of a binary image */ };
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!name || !*name || (!address && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t size = module->module.ptx ? ptx_global_bytes(module->module.ptx, name) : IN_BINARY;
	if (!size)
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&lock);
	struct global *g = module->module.globals;
	while (g && strcmp(g->name, name))
		g = g->next;
	if (!g)
		g = global_new(module, name, size);
	pthread_mutex_unlock(&lock);
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (address)
		*address = g->address;
	if (bytes)
		*bytes = g->bytes;
	call->ptr = g->address;
	call->bytes = g->bytes;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	BEGIN(cuModuleGetGlobal_v2, NEEDS_CONTEXT, .src_ptr = H(hmod), .kernel = name);
	DO(global_of(&call, object_of(hmod, MODULE), name, dptr, bytes));
	return END();
}

/* A library's variables are the variables of its module in the current context. */
#define LIBRARY_GET_GLOBAL(fn)                                                                                     \
	EXPORT CUresult fn(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)                  \
	{                                                                                                          \
		BEGIN(fn, NEEDS_CONTEXT, .src_ptr = H(library), .kernel = name);                                   \
		struct object *module = NULL;                                                                      \
		DO(module_of_library(object_of(library, LIBRARY), call.current, &module));                         \
		DO(global_of(&call, module, name, dptr, bytes));                                                   \
		return END();                                                                                      \
	}
LIBRARY_GET_GLOBAL(cuLibraryGetGlobal)
LIBRARY_GET_GLOBAL(cuLibraryGetManaged)

EXPORT CUresult cuFuncLoad(CUfunction function)
{
	BEGIN(cuFuncLoad, NEEDS_CONTEXT, .function = H(function));
	call.kernel = kernel_name(function);
	DO(call.kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
	return END();
}

/* ---- loading, unloading and queries ---- */

static CUresult create(struct call *call, CUmodule *module, CUresult read, char *ptx)
{
	struct object *o = NULL;
	CUresult result = read ? read : module_new(call, MODULE, call->current, ptx, &o);
	if (!result)
		*module = (CUmodule)o;
	return result;
}

static CUresult load(struct call *call, CUmodule *module, const void *image)
{
	char *ptx;
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult read = image_read(image, &ptx);
	return create(call, module, read, ptx);
}

static CUresult load_file(struct call *call, CUmodule *module, const char *path)
{
	char *ptx;
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult read = image_read_file(path, &ptx);
	return create(call, module, read, ptx);
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	BEGIN(cuModuleLoad, NEEDS_CONTEXT, .src_ptr = H(fname));
	DO(load_file(&call, module, fname));
	return END();
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	BEGIN(cuModuleLoadData, NEEDS_CONTEXT, .src_ptr = H(image));
	DO(load(&call, module, image));
	return END();
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
				   void **optionValues)
{
	BEGIN(cuModuleLoadDataEx, NEEDS_CONTEXT, .src_ptr = H(image));
	DO(numOptions && (!options || !optionValues) ? CUDA_ERROR_INVALID_VALUE : load(&call, module, image));
	return END();
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	BEGIN(cuModuleLoadFatBinary, NEEDS_CONTEXT, .src_ptr = H(fatCubin));
	DO(load(&call, module, fatCubin));
	return END();
}

EXPORT CUresult cuModuleUnload(CUmodule hmod)
{
	BEGIN(cuModuleUnload, NEEDS_CONTEXT, .ptr = H(hmod));
	DO(module_unload(object_of(hmod, MODULE)));
	return END();
}

EXPORT CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	BEGIN(cuModuleGetFunction, NEEDS_CONTEXT, .ptr = H(hmod), .kernel = name);
	struct object *o = NULL;
	DO(hfunc ? module_find(object_of(hmod, MODULE), FUNCTION, name, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		*hfunc = (CUfunction)o;
		call.function = H(o);
	}
	return END();
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	BEGIN(cuModuleGetFunctionCount, NEEDS_CONTEXT, .ptr = H(mod));
	DO(module_count(object_of(mod, MODULE), FUNCTION, count));
	if (!call.result)
		call.value = *count;
	return END();
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	BEGIN(cuModuleEnumerateFunctions, NEEDS_CONTEXT, .ptr = H(mod), .value = numFunctions);
	DO(module_enumerate(object_of(mod, MODULE), FUNCTION, (struct object **)functions, numFunctions));
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
