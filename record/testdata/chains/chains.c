/*
 * The native half of chain.py and train_sim.py, loaded by ctypes: functions with known names between Python
 * and the driver. It is compiled without frame pointers and without Python's headers, so that one
 * file serves every CPython.
 */
#include "cuda_sim.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAME __attribute__((visibility("default"), noinline))

/* Declarations from Python's stable ABI. */
typedef struct _object PyObject;
extern PyObject _Py_NoneStruct;
PyObject *PyObject_CallFunction(PyObject *callable, const char *format, ...);
PyObject *PyObject_CallObject(PyObject *callable, PyObject *args);
void PyErr_Print(void);
void Py_DecRef(PyObject *o);
int PyGILState_Ensure(void);
void PyGILState_Release(int state);

static void check(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "chains: %s: error %d\n", what, result);
		abort();
	}
}

static void done_with(PyObject *o)
{
	if (!o) {
		PyErr_Print();
		abort();
	}
	Py_DecRef(o);
}

static CUcontext context;
static CUfunction kernel;

static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry step_kernel()\n{\n\tret;\n}\n";

FRAME void chains_init(void)
{
	CUmodule module;
	check(cuInit(0), "cuInit");
	check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	check(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
	check(cuModuleGetFunction(&kernel, module, "step_kernel"), "cuModuleGetFunction");
}

/* Sets the current context. Every thread must call this function once. */
FRAME void chains_thread_init(void)
{
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/*
 * Allocates and frees. Before, record(bytes) may read the current Python frames, whose lines are then
 * those of this call. Called with the GIL (PyDLL).
 */
FRAME void chain_alloc(PyObject *record, uint64_t bytes)
{
	CUdeviceptr memory;
	if (record != &_Py_NoneStruct)
		done_with(PyObject_CallFunction(record, "K", (unsigned long long)bytes));
	check(cuMemAlloc_v2(&memory, bytes), "cuMemAlloc_v2");
	check(cuMemFree_v2(memory), "cuMemFree_v2");
}

/* Calls a ctypes callback. Called without the GIL (CDLL). */
FRAME void chain_call_back(void (*callback)(void))
{
	callback();
	__asm__ volatile("");
}

/* Calls a Python object from a large frame. Called with the GIL (PyDLL). */
FRAME void chain_call_object(PyObject *callable)
{
	volatile char ballast[5000];
	ballast[0] = ballast[4999] = 0;
	done_with(PyObject_CallObject(callable, NULL));
	ballast[1] = 0;
}

FRAME void *chain_thread_main(void *callback)
{
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	((void (*)(void))callback)();
	return NULL;
}

/* Runs the callback in a thread that Python did not create. Called without the GIL. */
FRAME void chain_native_thread(void (*callback)(void))
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, chain_thread_main, (void *)callback) || pthread_join(thread, NULL))
		abort();
}

/*
 * Kernels of train_sim.py. All launches go through one function, as in a library. So many different stacks have
 * the same caller of the driver, and often the same stack pointer. gridDimX identifies the stack.
 */
FRAME void launch_kernel(unsigned int site)
{
	check(cuLaunchKernel(kernel, site, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
}

#define OP(name)                                                                                                                \
	FRAME void name(unsigned int site)                                                                                      \
	{                                                                                                                       \
		launch_kernel(site);                                                                                            \
		__asm__ volatile("" ::"i"(__LINE__));                                                                           \
	}
OP(op_gemm) OP(op_softmax) OP(op_norm) OP(op_elementwise)

/* One more native frame, so that a shallow Python stack can have the stack pointer of a deep one. */
FRAME void op_composite(unsigned int site)
{
	op_elementwise(site);
	__asm__ volatile("");
}

FRAME void op_synchronize(void)
{
	check(cuCtxSynchronize(), "cuCtxSynchronize");
}

/*
 * The backward pass: a native thread executes a list of nodes while the caller waits, as in PyTorch's engine.
 * A node >= 0 is the site number of a native launch. A node < 0 means callback(-node), which may run
 * Python.
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	const int *nodes;
	int count;
	void (*callback)(int);
	int started;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

FRAME void backward_gemm(unsigned int site)
{
	launch_kernel(site);
	__asm__ volatile("");
}

FRAME void backward_reduce(unsigned int site)
{
	launch_kernel(site);
	__asm__ volatile("" ::"i"(__LINE__));
}

FRAME void backward_custom(int node)
{
	engine.callback(-node);
	__asm__ volatile("");
}

FRAME void backward_node(int node)
{
	if (node < 0)
		backward_custom(node);
	else if (node % 2)
		backward_gemm(node);
	else
		backward_reduce(node);
	__asm__ volatile("");
}

FRAME void *backward_thread(void *unused)
{
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	pthread_mutex_lock(&engine.lock);
	for (;;) {
		while (!engine.nodes)
			pthread_cond_wait(&engine.changed, &engine.lock);
		const int *nodes = engine.nodes;
		pthread_mutex_unlock(&engine.lock);
		for (int i = 0; i < engine.count; i++)
			backward_node(nodes[i]);
		pthread_mutex_lock(&engine.lock);
		engine.nodes = NULL;
		pthread_cond_broadcast(&engine.changed);
	}
	return unused;
}

/* Called without the GIL. */
FRAME void backward_run(const int *nodes, int count, void (*callback)(int))
{
	pthread_t thread;
	pthread_mutex_lock(&engine.lock);
	if (!engine.started) {
		engine.started = 1;
		if (pthread_create(&thread, NULL, backward_thread, NULL))
			abort();
		pthread_detach(thread);
	}
	engine.nodes = nodes, engine.count = count, engine.callback = callback;
	pthread_cond_broadcast(&engine.changed);
	while (engine.nodes)
		pthread_cond_wait(&engine.changed, &engine.lock);
	pthread_mutex_unlock(&engine.lock);
}
